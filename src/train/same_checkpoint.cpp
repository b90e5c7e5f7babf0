#include "phalanx/train/same_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/comm/rank_list.h"

namespace phx {
namespace {

uint64_t checksum_of_text(const std::string& text) {
  return xxh3(std::as_bytes(std::span(text.data(), text.size())));
}

// Notes and pictures beside the weights may differ.
bool counts(const Path& file) {
  constexpr const char* kKinds[] = {".safetensors", ".bin", ".json", ".distcp", ".pt"};
  return file.filename() == ".metadata" ||
         std::ranges::find(kKinds, file.extension().string()) != std::end(kKinds);
}

std::string names_and_sizes(const Path& folder) {
  std::vector<std::string> lines;
  const auto look = [&](const Path& inside) {
    for (const auto& entry : std::filesystem::directory_iterator(inside))
      if (entry.is_regular_file() && counts(entry.path()))
        lines.push_back(str_cat(entry.path().lexically_relative(folder).string(), " ",
                                entry.file_size(), "\n"));
  };
  look(folder);
  // Megatron's folders of ranks, and no others: runs may save below what they began from.
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory() && entry.path().filename().string().starts_with("mp_rank_"))
      look(entry.path());
  std::ranges::sort(lines);
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

}  // namespace

uint64_t native_checksum(const Path& checkpoint) {
  try {
    return checksum_of_text(read_file(manifest_path(checkpoint)));
  } catch (const std::exception&) {  // the ranks that can read it name this one
    return 0;
  }
}

uint64_t folder_checksum(const Path& folder) {
  try {
    std::string text = names_and_sizes(folder);
    for (const char* name : {"config.json", ".metadata"})
      if (std::filesystem::is_regular_file(folder / name)) text += read_file(folder / name);
    return text.empty() ? 0 : checksum_of_text(text);
  } catch (const std::exception&) {
    return 0;
  }
}

void check_same_checkpoint(const Session& session, const Path& path, uint64_t checksum) {
  Communicator* world = session.mesh.world();
  if (world == nullptr || world->size() == 1) return;
  const Device device = session.store.weights().device();
  const auto own = static_cast<int64_t>(checksum);
  const Tensor shard = from_ints(std::span(&own, 1), {1}, DType::i64, device);
  const Tensor all = empty({world->size()}, DType::i64, device);  // [ranks]
  world->all_gather(shard, all, device.runtime().stream(StreamName::compute));
  std::vector<int64_t> found(size_t(world->size()));
  copy_to_host(all, found.data());
  std::map<int64_t, std::vector<int>> ranks;
  for (size_t rank = 0; rank < found.size(); ++rank) ranks[found[rank]].push_back(int(rank));
  if (ranks.size() == 1) return;
  std::string list;
  for (const auto& [value, who] : ranks)
    list += str_cat(list.empty() ? "" : "; ",
                    value == 0 ? "nothing" : str_cat("xxh3:", static_cast<uint64_t>(value)), " on ",
                    rank_list(who));
  throw_error(str_cat("the ranks do not find the same checkpoint at ", path.string(), ": ", list,
                      "\n  hint: copy it from one machine to the others, or load from a file "
                      "system that all machines share"));
}

}  // namespace phx
