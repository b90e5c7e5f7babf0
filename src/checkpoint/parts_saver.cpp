#include "phalanx/checkpoint/parts_saver.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "phalanx/base/atomic_folder.h"
#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/shard_bytes.h"
#include "phalanx/checkpoint/shard_writer.h"

namespace phx {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kCopyBytes = 4 << 20;  // a multiple of DirectFile::kAlignment
constexpr auto kLook = std::chrono::milliseconds(20);
// When it is clear that there will be no checkpoint, the others have as long to say what they know.
constexpr auto kLastWords = std::chrono::seconds(1);

std::string numbered(const char* format, int rank) {
  char name[40];
  std::snprintf(name, sizeof name, format, rank);
  return name;
}

std::string state_name(int rank) { return numbered("rank_%05d.state", rank); }
std::string part_name(int rank) { return numbered("rank_%05d.part", rank); }
std::string shard_name(int rank) { return numbered("shard_%05d.safetensors", rank); }

void publish(const Path& path, const std::string& text, Disk& disk) {
  AtomicFile file(path, disk);
  file.write(text);
  file.publish();
}

// "ranks 1, 2 and 5"
std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += str_cat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

}  // namespace

Path parts_path(const Path& folder, const std::string& run) {
  return folder / str_cat("iter_parts-", run, ".tmp");
}

PartsSaver::PartsSaver(PartsOptions options)
    : options_(std::move(options)), path_(parts_path(options_.folder, options_.run)) {}

void PartsSaver::say(const RankState& state) {
  own_ = state;
  if (options_.disk->make_folder(path_.c_str()) != 0 && errno != EEXIST)
    throw_file_error("make folder", path_, errno);
  publish(path_ / state_name(options_.rank),
          json_text(nlohmann::json{{"run", options_.run},
                                   {"rank", options_.rank},
                                   {"ranks", options_.ranks},
                                   {"iteration", state.iteration},
                                   {"unfit", state.unfit}}),
          *options_.disk);
}

void PartsSaver::write(const std::vector<LocalBox>& boxes) {
  PHX_ASSERT(own_.unfit.empty(), "a part of a state that ", own_.unfit);
  std::vector<PieceToWrite> pieces;
  for (const LocalBox& box : boxes) pieces.push_back({box.name, box.info, box.box});
  ShardWriter shard(path_, shard_name(options_.rank), std::move(pieces), *options_.disk);
  const ShardBytes bytes(shard.header(), boxes);
  shard.open();
  std::vector<std::byte> buffer(size_t(std::min(kCopyBytes, bytes.size())));
  for (int64_t at = 0; at < bytes.size(); at += kCopyBytes) {
    const std::span<std::byte> part(buffer.data(), size_t(std::min(kCopyBytes, bytes.size() - at)));
    bytes.copy(at, part, ReadNext::soon);
    shard.account(part);
    shard.write_at(at, part);
  }
  Manifest part = shard.finish();
  part.iteration = own_.iteration;
  if (options_.verify) verify_on_disk(path_, part);
  publish(path_ / part_name(options_.rank), part.to_text(), *options_.disk);
  written_ = true;
}

// What speaks against a checkpoint; of ranks that say nothing only if `all` should be there.
std::string PartsSaver::problems(bool all) const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  std::vector<int> silent, unwritten;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const Path file = path_ / state_name(rank);
    if (!std::filesystem::exists(file)) {
      silent.push_back(rank);
      continue;
    }
    const nlohmann::json said = parse_json(read_file(file));
    const auto iteration = said.at("iteration").get<int64_t>();
    const auto unfit = said.at("unfit").get<std::string>();
    if (said.at("run") != options_.run || said.at("ranks") != options_.ranks)
      add(str_cat("rank ", rank, " is one of another run"));
    else if (!unfit.empty())
      add(str_cat("rank ", rank, " ", unfit));
    else if (iteration != own_.iteration)
      add(str_cat("rank ", rank, " has the state of iteration ", iteration, ", rank ",
                  options_.rank, " that of iteration ", own_.iteration));
    else if (!std::filesystem::exists(path_ / part_name(rank)))
      unwritten.push_back(rank);
  }
  if (!all) return text;
  if (!silent.empty()) add(str_cat("nothing came from ", list_of(silent)));
  if (!unwritten.empty()) add(str_cat("no complete part came from ", list_of(unwritten)));
  return text;
}

bool PartsSaver::has_all_parts() const {
  for (int rank = 0; rank < options_.ranks; ++rank)
    if (!std::filesystem::exists(path_ / part_name(rank))) return false;
  return true;
}

std::string PartsSaver::join(const CheckpointInfo& info) {
  const Clock::time_point end = Clock::now() + options_.patience;
  std::optional<Clock::time_point> last_words;
  bool stopped = false;
  while (!has_all_parts()) {
    stopped = options_.stop();
    if (stopped || Clock::now() > end) break;
    if (!last_words && !problems(false).empty()) last_words = Clock::now() + kLastWords;
    if (last_words && Clock::now() > *last_words) break;
    std::this_thread::sleep_for(kLook);
  }
  std::string missing = problems(true);
  if (stopped && !missing.empty()) missing += " when the wait was interrupted";
  try {
    if (missing.empty()) commit(info);
  } catch (const std::exception& error) {
    missing = error.what();
  }
  if (missing.empty()) return missing;
  // Under another name first: nobody adds to it while it is removed.
  Path leaving = path_;
  leaving.replace_extension(".gone.tmp");
  const bool renamed = options_.disk->rename(path_.c_str(), leaving.c_str()) == 0;
  remove_tree(renamed ? leaving : path_, *options_.disk);
  return missing;
}

void PartsSaver::commit(const CheckpointInfo& info) {
  Disk& disk = *options_.disk;
  Manifest manifest;
  manifest.iteration = own_.iteration;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const Path file = path_ / part_name(rank);
    Manifest part = Manifest::parse(read_file(file), file.string());
    for (const ShardFile& shard : part.files) {
      const auto bytes = int64_t(std::filesystem::file_size(path_ / shard.name));
      PHX_CHECK(bytes == shard.bytes, (path_ / shard.name).string(), " has ", bytes,
                " bytes and should have ", shard.bytes);
    }
    manifest.merge(std::move(part), file.string());
  }
  manifest.info = info;
  manifest.check_complete(path_.string());
  write_file(manifest_path(path_), manifest.to_text(), disk);
  for (int rank = 0; rank < options_.ranks; ++rank)
    for (const Path& file : {path_ / state_name(rank), path_ / part_name(rank)})
      if (disk.remove(file.c_str()) != 0) throw_file_error("remove", file, errno);
  const Path temporary = temporary_path(options_.folder, own_.iteration);
  remove_tree(temporary, disk);  // of a save that the failure ended
  if (disk.rename(path_.c_str(), temporary.c_str()) != 0) throw_file_error("rename", path_, errno);
  commit_checkpoint(options_.folder, own_.iteration, disk);
}

void PartsSaver::wait_for_join() {
  const Clock::time_point begin = Clock::now();
  while (std::filesystem::exists(path_)) {
    // Rank 0 may write longer than others. If it says nothing at all, it is not there.
    const bool heard = std::filesystem::exists(path_ / state_name(0));
    if (options_.stop() || Clock::now() > begin + options_.patience * (heard ? 2 : 1)) {
      remove_own();
      return;
    }
    std::this_thread::sleep_for(kLook);
  }
}

// Rank 0 may be about to join the parts after all: a part belongs to whoever removes its part of
// the manifest. The last rank removes the folder, too.
void PartsSaver::remove_own() {
  const Path part = path_ / part_name(options_.rank);
  if (written_ && options_.disk->remove(part.c_str()) != 0) return;
  for (const std::string& name : {state_name(options_.rank), shard_name(options_.rank)})
    options_.disk->remove((path_ / name).c_str());
  options_.disk->remove(path_.c_str());
}

}  // namespace phx
