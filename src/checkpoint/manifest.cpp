#include "phalanx/checkpoint/manifest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/base/math.h"
#include "phalanx/core/shape.h"

namespace phx {

namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "phalanx-2";
constexpr int64_t kMost = int64_t{1} << 60;  // no offset, size or count is larger
constexpr std::string_view kBefore = "{\"xxh3\": \"",
                           kBetween = "\", \"checkpoint\": ", kBehind = "}\n";
constexpr size_t kDigits = 16;

std::string hex(uint64_t value) {
  std::string text(kDigits, '0');
  for (size_t i = kDigits; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

// Reads members with a place to blame.
struct Reader {
  const std::string& where;

  [[noreturn]] void fail(const std::string& what) const {
    throw_error(str_cat(where, ": ", printable(what)));
  }
  const Json& member(const Json& object, const char* key) const {
    if (!object.is_object()) fail(str_cat("an object with \"", key, "\" is missing"));
    const auto found = object.find(key);
    if (found == object.end()) fail(str_cat("\"", key, "\" is missing"));
    return *found;
  }
  const Json& list(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!value.is_array()) fail(str_cat("\"", key, "\" is not a list"));
    return value;
  }
  int64_t number(const Json& value, const char* what) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kMost ||
        (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(kMost)))
      fail(str_cat("\"", what, "\" is not a number from 0 to 2^60"));
    return value.get<int64_t>();
  }
  std::string text(const Json& value, const char* what) const {
    if (!value.is_string()) fail(str_cat("\"", what, "\" is not a text"));
    return value.get<std::string>();
  }
  std::vector<int64_t> numbers(const Json& object, const char* key) const {
    std::vector<int64_t> values;
    for (const Json& value : list(object, key)) values.push_back(number(value, key));
    return values;
  }
  uint64_t hash(const Json& value) const {
    const std::string digits = text(value, "xxh3");
    uint64_t hash = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
    if (digits.size() != kDigits || parsed.ptr != digits.data() + digits.size())
      fail(str_cat("\"xxh3\" is \"", digits, "\" and not 16 hexadecimal digits"));
    return hash;
  }
};

ShardFile read_file_entry(const Json& entry, const Reader& read) {
  ShardFile file{.name = read.text(read.member(entry, "name"), "name"),
                 .bytes = read.number(read.member(entry, "bytes"), "bytes"),
                 .header_bytes = read.number(read.member(entry, "header_bytes"), "header_bytes"),
                 .header_hash = read.hash(read.member(entry, "xxh3"))};
  // A name must not lead out of the folder.
  if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos ||
      file.name.find('\0') != std::string::npos)
    read.fail(str_cat("\"", file.name, "\" is no name of a file in this folder"));
  if (file.header_bytes > file.bytes)
    read.fail(str_cat(file.name, " has a header of ", file.header_bytes, " of its ", file.bytes,
                      " bytes"));
  return file;
}

// The number of elements; fails where it would not fit.
int64_t count_of(const std::vector<int64_t>& shape, const Reader& read, const std::string& name) {
  int64_t count = 1;
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(count, extent, &count) || count > kMost / 8)
      read.fail(str_cat(name, " has more than 2^57 elements"));
  return count;
}

SavedPiece read_piece(const Json& entry, const std::string& name, const SavedTensor& tensor,
                      const Manifest& manifest, const Reader& read) {
  SavedPiece piece{.file = read.number(read.member(entry, "file"), "file"),
                   .offset = read.number(read.member(entry, "offset"), "offset"),
                   .box = {read.numbers(entry, "begin"), read.numbers(entry, "size")},
                   .hashes = {}};
  for (const Json& hash : read.list(entry, "xxh3")) piece.hashes.push_back(read.hash(hash));
  if (piece.file >= int64_t(manifest.files.size()))
    read.fail(str_cat(name, " lies in file ", piece.file, " of ", manifest.files.size()));
  const auto& shape = tensor.info.shape;
  bool inside = piece.box.begin.size() == shape.size() && piece.box.size.size() == shape.size();
  for (size_t i = 0; inside && i < shape.size(); ++i)
    inside = piece.box.size[i] > 0 && piece.box.begin[i] + piece.box.size[i] <= shape[i];
  if (!inside) read.fail(str_cat(name, ": a piece lies outside of ", describe(tensor.info)));
  const int64_t bytes = piece_bytes(tensor.info, piece.box);
  const ShardFile& file = manifest.files[size_t(piece.file)];
  if (piece.offset < file.header_bytes || piece.offset + bytes > file.bytes)
    read.fail(str_cat(name, ": a piece of ", bytes, " bytes at ", piece.offset, " lies outside of ",
                      file.name, " with its ", file.bytes, " bytes"));
  if (int64_t(piece.hashes.size()) != ceil_div(bytes, manifest.block_bytes))
    read.fail(str_cat(name, ": a piece of ", bytes, " bytes has ", piece.hashes.size(),
                      " checksums of blocks of ", manifest.block_bytes));
  return piece;
}

SavedTensor read_tensor(const Json& entry, const std::string& name, const Manifest& manifest,
                        const Reader& read) {
  SavedTensor tensor;
  const std::string dtype = read.text(read.member(entry, "dtype"), "dtype");
  const auto known = dtype_of_safetensors(dtype);
  if (!known) read.fail(str_cat(name, " has the dtype ", dtype, ", which is not known"));
  tensor.info = {*known, read.numbers(entry, "shape")};
  if (tensor.info.shape.size() > Shape::kMaxRank)
    read.fail(str_cat(name, " has ", tensor.info.shape.size(), " dimensions"));
  count_of(tensor.info.shape, read, name);
  for (const Json& piece : read.list(entry, "pieces"))
    tensor.pieces.push_back(read_piece(piece, name, tensor, manifest, read));
  return tensor;
}

Json parse_manifest_json(std::string_view text, const Reader& read) {
  try {
    return parse_strict_json(text, /*depth=*/64);
  } catch (const Error& error) {
    read.fail(str_cat("the manifest ", error.what()));
  }
}

Json piece_json(const SavedPiece& piece) {
  Json hashes = Json::array();
  for (const uint64_t hash : piece.hashes) hashes.push_back(hex(hash));
  return {{"file", piece.file},
          {"offset", piece.offset},
          {"begin", piece.box.begin},
          {"size", piece.box.size},
          {"xxh3", std::move(hashes)}};
}

// Whether two boxes of one tensor have an element in common.
bool overlap(const Box& a, const Box& b) {
  for (size_t i = 0; i < a.begin.size(); ++i)
    if (a.begin[i] >= b.begin[i] + b.size[i] || b.begin[i] >= a.begin[i] + a.size[i]) return false;
  return true;
}

}  // namespace

int64_t piece_bytes(const TensorInfo& info, const Box& box) {
  return box.numel() * size_of(info.dtype);
}

uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Xxh3::State {
  XXH3_state_t state;  // has an alignment of its own, which new keeps
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) { begin(); }
Xxh3::~Xxh3() = default;
void Xxh3::begin() { XXH3_64bits_reset(&state_->state); }
void Xxh3::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->state, bytes.data(), bytes.size());
}
uint64_t Xxh3::value() const { return XXH3_64bits_digest(&state_->state); }

std::string Manifest::to_text() const {
  Json files_json = Json::array(), tensors_json = Json::object(), info_json = Json::object();
  for (const ShardFile& file : files)
    files_json.push_back({{"name", file.name},
                          {"bytes", file.bytes},
                          {"header_bytes", file.header_bytes},
                          {"xxh3", hex(file.header_hash)}});
  for (const auto& [name, tensor] : tensors) {
    Json pieces = Json::array();
    for (const SavedPiece& piece : tensor.pieces) pieces.push_back(piece_json(piece));
    tensors_json[name] = {{"dtype", safetensors_dtype(tensor.info.dtype)},
                          {"shape", tensor.info.shape},
                          {"pieces", std::move(pieces)}};
  }
  for (const auto& [key, text] : info) info_json[key] = parse_json(text);
  const std::string body = json_text(Json{{"format", kFormat},
                                          {"iteration", iteration},
                                          {"block_bytes", block_bytes},
                                          {"files", std::move(files_json)},
                                          {"tensors", std::move(tensors_json)},
                                          {"info", std::move(info_json)}});
  return str_cat(kBefore, hex(xxh3(std::as_bytes(std::span(body)))), kBetween, body, kBehind);
}

Manifest Manifest::parse(std::string_view text, const std::string& where) {
  const Reader read{where};
  const size_t frame = kBefore.size() + kDigits + kBetween.size();
  if (text.size() < frame + kBehind.size() || !text.starts_with(kBefore) ||
      text.substr(kBefore.size() + kDigits, kBetween.size()) != kBetween ||
      !text.ends_with(kBehind))
    read.fail("this is no manifest of a checkpoint, or it is cut off");
  const std::string_view body = text.substr(frame, text.size() - frame - kBehind.size());
  const std::string said(text.substr(kBefore.size(), kDigits));
  const std::string found = hex(xxh3(std::as_bytes(std::span(body))));
  if (said != found)
    read.fail(str_cat("the file is damaged: its checksum is ", found, ", it should be ", said));
  return parse_body(body, where);
}

Manifest Manifest::parse_body(std::string_view body, const std::string& where) {
  const Reader read{where};
  const Json json = parse_manifest_json(body, read);
  const std::string format = read.text(read.member(json, "format"), "format");
  if (format != kFormat)
    read.fail(str_cat("the format is \"", format, "\"; this build reads ", kFormat));
  Manifest manifest;
  manifest.iteration = read.number(read.member(json, "iteration"), "iteration");
  manifest.block_bytes = read.number(read.member(json, "block_bytes"), "block_bytes");
  if (manifest.block_bytes < 1 || manifest.block_bytes > int64_t{1} << 30)
    read.fail(str_cat("\"block_bytes\" is ", manifest.block_bytes, ", and not from 1 to 2^30"));
  std::set<std::string> names;
  for (const Json& entry : read.list(json, "files")) {
    manifest.files.push_back(read_file_entry(entry, read));
    if (!names.insert(manifest.files.back().name).second)
      read.fail(str_cat("the file ", manifest.files.back().name, " is there twice"));
  }
  const Json& tensors = read.member(json, "tensors");
  if (!tensors.is_object()) read.fail("\"tensors\" is not an object");
  for (const auto& [name, entry] : tensors.items())
    manifest.tensors.emplace(name, read_tensor(entry, name, manifest, read));
  const Json& info = read.member(json, "info");
  if (!info.is_object()) read.fail("\"info\" is not an object");
  for (const auto& [key, value] : info.items()) manifest.info[key] = json_text(value);
  return manifest;
}

void Manifest::merge(Manifest other, const std::string& where) {
  PHX_CHECK(other.iteration == iteration && other.block_bytes == block_bytes, where,
            " is of another save: iteration ", other.iteration, " and not ", iteration);
  const int64_t first_file = int64_t(files.size());
  files.insert(files.end(), other.files.begin(), other.files.end());
  for (auto& [name, tensor] : other.tensors) {
    const auto [mine, added] = tensors.try_emplace(name, SavedTensor{tensor.info, {}});
    PHX_CHECK(mine->second.info == tensor.info, where, ": ", name, " is ", describe(tensor.info),
              " here and ", describe(mine->second.info), " on other ranks");
    for (SavedPiece& piece : tensor.pieces) {
      piece.file += first_file;
      mine->second.pieces.push_back(std::move(piece));
    }
  }
}

void Manifest::check_complete(const std::string& where) const {
  for (const auto& [name, tensor] : tensors) {
    int64_t left = whole_box(tensor.info.shape).numel();
    for (const SavedPiece& piece : tensor.pieces) left -= piece.box.numel();
    PHX_CHECK(left >= 0, where, ": the pieces of ", printable(name), " hold ", -left,
              " elements more than ", describe(tensor.info));
    PHX_CHECK(left == 0, where, ": ", left, " elements of ", printable(name), " ",
              describe(tensor.info), " are in no piece");
    // By first row, a piece can only meet those that begin before it ends.
    std::vector<const Box*> boxes;
    for (const SavedPiece& piece : tensor.pieces) boxes.push_back(&piece.box);
    std::ranges::sort(boxes, {}, [](const Box* box) { return box->begin; });
    for (size_t i = 0; i < boxes.size(); ++i)
      for (size_t j = i + 1; j < boxes.size(); ++j) {
        const Box &a = *boxes[i], &b = *boxes[j];
        if (!a.begin.empty() && b.begin[0] >= a.begin[0] + a.size[0]) break;
        PHX_CHECK(!overlap(a, b), where, ": two pieces of ", printable(name),
                  " hold the same elements");
      }
  }
}

}  // namespace phx
