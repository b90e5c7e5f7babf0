#include "phalanx/checkpoint/safetensors.h"

#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/base/math.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLengthBytes = 8;
// The limit of the format: a hostile length may not make a reader take all memory.
constexpr int64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxDims = 64;
constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<std::string_view, int64_t>, 17> kDtypes = {{
    {"F64", 8},
    {"I64", 8},
    {"U64", 8},
    {"C64", 8},
    {"F32", 4},
    {"I32", 4},
    {"U32", 4},
    {"F16", 2},
    {"BF16", 2},
    {"I16", 2},
    {"U16", 2},
    {"I8", 1},
    {"U8", 1},
    {"BOOL", 1},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"F8_E8M0", 1},
}};

std::string known_dtypes() {
  std::string names;
  for (const auto& [name, size] : kDtypes) names += str_cat(names.empty() ? "" : " ", name);
  return names;
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t dim : shape) text += str_cat(text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

// Bytes of a tensor; `where` names it in errors.
int64_t byte_size(const SafetensorsEntry& entry, const std::string& where) {
  const std::optional<int64_t> dtype_size = safetensors_dtype_size(entry.dtype);
  PHX_CHECK(dtype_size, where, " has the dtype ", printable(entry.dtype), "; known are ",
            known_dtypes());
  PHX_CHECK(entry.shape.size() <= kMaxDims, where, " has ", entry.shape.size(),
            " dimensions; at most ", kMaxDims, " are taken");
  int64_t size = *dtype_size;
  bool too_large = false;
  for (const int64_t dim : entry.shape) {
    PHX_CHECK(dim >= 0, where, " has a negative dimension: ", text_of(entry.shape));
    too_large |= __builtin_mul_overflow(size, dim, &size);
  }
  // An empty tensor is empty whatever its other dimensions are.
  if (std::count(entry.shape.begin(), entry.shape.end(), 0) > 0) return 0;
  PHX_CHECK(!too_large, where, " has more than 2^63 bytes: ", text_of(entry.shape));
  return size;
}

// The same name twice is an error, since two readers could see different tensors. A header is never
// deeper than tensors -> tensor -> list.
Json parse_header(std::string_view header, const std::string& file) {
  try {
    return parse_strict_json(header, /*depth=*/3);
  } catch (const Error& error) {
    throw_error(str_cat(file, ": the header ", printable(error.what())));
  }
}

int64_t non_negative(const Json& value, const std::string& where, const char* what) {
  PHX_CHECK(value.is_number_integer(), where, ": ", what, " should hold whole numbers, but has ",
            printable(value.dump(-1, ' ', true, Json::error_handler_t::replace)));
  // Numbers from 2^63 on are unsigned in nlohmann's reading.
  PHX_CHECK(!value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{1} << 62, where, ": ",
            what, " holds ", value.get<uint64_t>(), ", which is too large");
  const int64_t number = value.get<int64_t>();
  PHX_CHECK(number >= 0, where, ": ", what, " holds the negative number ", number);
  return number;
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  PHX_CHECK(found != object.end(), where, " has no \"", key, "\"");
  return *found;
}

}  // namespace

std::optional<int64_t> safetensors_dtype_size(std::string_view dtype) {
  for (const auto& [name, size] : kDtypes) {
    if (name == dtype) return size;
  }
  return std::nullopt;
}

SafetensorsFile::SafetensorsFile(const Path& path) : file_(path) {
  PHX_CHECK(file_.size() >= kLengthBytes, path.native(), " has ", file_.size(),
            " bytes, too few for a safetensors file: it is cut off, or something else");
  uint64_t length;  // little endian, like the machines we run on
  std::memcpy(&length, file_.data(), sizeof length);
  PHX_CHECK(length <= static_cast<uint64_t>(kMaxHeader), path.native(), ": the header length is ",
            length, ", above the ", kMaxHeader,
            " bytes that safetensors allows; is this a safetensors file?");
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  PHX_CHECK(data_begin <= file_.size(), path.native(), " has ", file_.size(),
            " bytes, but its header alone needs ", data_begin, ": the file is cut off");
  read_header({reinterpret_cast<const char*>(file_.data()) + kLengthBytes, length}, data_begin);
  check_layout();
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

void SafetensorsFile::read_header(std::string_view header, int64_t data_begin) {
  const std::string file = path().native();
  PHX_CHECK(header.starts_with('{'), file,
            ": the header should start with '{'; is this a "
            "safetensors file?");
  const Json json = parse_header(header, file);
  const int64_t data_size = file_.size() - data_begin;
  for (const auto& [name, value] : json.items()) {
    const std::string where = str_cat(file, ": tensor \"", printable(name), "\"");
    PHX_CHECK(value.is_object(), where, " should be described by a JSON object");
    if (name == kMetadata) {
      for (const auto& [key, text] : value.items()) {
        PHX_CHECK(text.is_string(), file, ": metadata \"", printable(key), "\" should be a string");
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    Tensor tensor;
    tensor.name = name;
    const Json& dtype = member(value, "dtype", where);
    PHX_CHECK(dtype.is_string(), where, ": \"dtype\" should be a string");
    tensor.dtype = dtype.get<std::string>();
    const Json& shape = member(value, "shape", where);
    PHX_CHECK(shape.is_array(), where, ": \"shape\" should be a list");
    for (const Json& dim : shape) tensor.shape.push_back(non_negative(dim, where, "\"shape\""));

    const Json& offsets = member(value, "data_offsets", where);
    PHX_CHECK(offsets.is_array() && offsets.size() == 2, where,
              ": \"data_offsets\" should be a list of two numbers");
    const int64_t begin = non_negative(offsets[0], where, "\"data_offsets\"");
    const int64_t end = non_negative(offsets[1], where, "\"data_offsets\"");
    PHX_CHECK(begin <= end, where, " ends at ", end, ", before it begins at ", begin);
    PHX_CHECK(end <= data_size, where, " ends at byte ", end, ", but the file holds ", data_size,
              " bytes of data: it is cut off");
    const int64_t size = byte_size(tensor, where);
    PHX_CHECK(end - begin == size, where, " is ", tensor.dtype, " ", text_of(tensor.shape),
              ", which is ", size, " bytes, but its offsets span ", end - begin);
    tensor.bytes = file_.bytes().subspan(data_begin + begin, size);
    tensors_.push_back(std::move(tensor));
  }
  // By address; empty tensors before the one that starts where they do.
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) {
    return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
  });
}

// The tensors must lie end to end and fill the file: hidden bytes and shared bytes are both
// refused.
void SafetensorsFile::check_layout() const {
  uint64_t length;
  std::memcpy(&length, file_.data(), sizeof length);
  const std::byte* const data = file_.data() + kLengthBytes + length;
  const std::byte* expected = data;
  const std::string* before = nullptr;
  for (const Tensor& tensor : tensors_) {
    const std::byte* const begin = tensor.bytes.data();
    PHX_CHECK(begin >= expected, path().native(), ": tensor \"", printable(tensor.name),
              "\" overlaps \"", before ? printable(*before) : "", "\"");
    PHX_CHECK(begin == expected, path().native(), ": ", begin - expected, " bytes before tensor \"",
              printable(tensor.name), "\" belong to no tensor");
    expected = begin + tensor.bytes.size();
    before = &tensor.name;
  }
  const int64_t rest = file_.data() + file_.size() - expected;
  PHX_CHECK(rest == 0, path().native(), ": ", rest, " bytes at the end belong to no tensor");
}

const SafetensorsFile::Tensor* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const SafetensorsFile::Tensor& SafetensorsFile::at(const std::string& name) const {
  const Tensor* tensor = find(name);
  PHX_CHECK(tensor, path().native(), " has no tensor \"", name, "\" among its ", tensors_.size());
  return *tensor;
}

std::string safetensors_header(const Path& path, std::span<const SafetensorsEntry> entries,
                               const SafetensorsMetadata& metadata, int64_t alignment) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::set<std::string_view> names;
  int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::string where = str_cat(path.native(), ": tensor \"", printable(entry.name), "\"");
    PHX_CHECK(entry.name != kMetadata, where, " has a name that the format keeps for itself");
    PHX_CHECK(names.insert(entry.name).second, where, " is given twice");
    const int64_t size = byte_size(entry, where);
    PHX_CHECK(offset <= std::numeric_limits<int64_t>::max() - size, where,
              " makes the file larger than 2^63 bytes");
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text;
  try {
    text = json_text(header);
  } catch (const Json::exception& error) {  // a name or a metadata string that is not UTF-8
    throw_error(str_cat(path.native(), ": cannot be written as JSON: ", error.what()));
  }
  const int64_t own = static_cast<int64_t>(text.size()), before = sizeof(uint64_t);
  text.resize(static_cast<size_t>(round_up(own + before, alignment) - before), ' ');
  PHX_CHECK(static_cast<int64_t>(text.size()) <= kMaxHeader, path.native(), ": the header has ",
            text.size(), " bytes, above the ", kMaxHeader,
            " that safetensors allows; spread the tensors over more files");
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

SafetensorsWriter::SafetensorsWriter(const Path& path, std::vector<SafetensorsEntry> entries,
                                     const SafetensorsMetadata& metadata)
    : file_(path), entries_(std::move(entries)) {
  file_.write(safetensors_header(path, entries_, metadata));
  for (const SafetensorsEntry& entry : entries_) sizes_.push_back(byte_size(entry, path.native()));
  skip_full_tensors();
}

void SafetensorsWriter::skip_full_tensors() {
  while (current_ < entries_.size() && written_ == sizes_[current_]) {
    ++current_;
    written_ = 0;
  }
}

void SafetensorsWriter::append(const std::string& name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;  // so that empty tensors may be given too
  PHX_CHECK(current_ < entries_.size(), file_.path().native(), ": bytes of tensor \"", name,
            "\" came after all tensors were complete");
  PHX_CHECK(entries_[current_].name == name, file_.path().native(), ": bytes of tensor \"", name,
            "\" came, but it is the turn of \"", entries_[current_].name, "\"");
  const int64_t room = sizes_[current_] - written_;
  PHX_CHECK(static_cast<int64_t>(bytes.size()) <= room, file_.path().native(), ": tensor \"", name,
            "\" has ", sizes_[current_], " bytes; ", bytes.size(), " came where ", room,
            " were missing");
  file_.write(bytes);
  written_ += static_cast<int64_t>(bytes.size());
  skip_full_tensors();
}

void SafetensorsWriter::commit() {
  PHX_CHECK(current_ == entries_.size(), file_.path().native(), ": tensor \"",
            entries_[current_].name, "\" has ", written_, " of ", sizes_[current_],
            " bytes: the file is not complete");
  file_.commit();
}

}  // namespace phx
