// A source whose tensors are made of the rows of another source's: Hugging Face's tensors under
// Megatron's names, or the other way round. Nothing is held: a box is read when it is asked for.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/convert/tensor_map.h"

namespace phx {

class RearrangedSource : public TensorSource {
 public:
  const std::map<std::string, TensorInfo>& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override { return description_; }

  // Our names over a source of theirs. Strict: an error lists tensors that are missing (with the
  // nearest names), that have another shape, and that nothing asks for. `where` names the folder.
  static std::unique_ptr<RearrangedSource> hf_as_megatron(std::shared_ptr<const TensorSource> hf,
                                                          const Family& family,
                                                          const std::vector<TensorPair>& pairs,
                                                          const std::string& where);
  // Their names over a source of ours, of which optimizer state and the like is not looked at.
  static std::unique_ptr<RearrangedSource> megatron_as_hf(std::shared_ptr<const TensorSource> ours,
                                                          const std::vector<TensorPair>& pairs,
                                                          const std::string& where);

 private:
  // Rows [row, row + count) of the tensor are rows [from_row, ..) of `from`.
  struct Block {
    std::string from;
    int64_t row = 0, from_row = 0, count = 0;
  };
  struct Recipe {
    std::vector<Block> blocks;  // by row
    bool from_transposed = false, transposed = false;
  };

  RearrangedSource(std::shared_ptr<const TensorSource> from, std::string description)
      : from_(std::move(from)), description_(std::move(description)) {}
  void read_rows(const Recipe& recipe, const Box& box, int64_t element,
                 std::span<std::byte> out) const;

  std::shared_ptr<const TensorSource> from_;
  std::string description_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, Recipe> recipes_;
};

}  // namespace phx
