// A pair of files PREFIX.bin and PREFIX.idx, as Megatron writes them: sequences of tokens, and
// where each begins. Mapped, not read: opening looks at the header and the ends of the arrays only,
// check_all() at everything. What is copied out is checked against the files' sizes every time.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "phalanx/base/file.h"
#include "phalanx/data/indexed/token_code.h"
#include "phalanx/data/sequence_store.h"

namespace phx {

Path bin_file(const Path& prefix);
Path idx_file(const Path& prefix);

class IndexedDataset : public SequenceStore {
 public:
  explicit IndexedDataset(const Path& prefix);

  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_document_entries_ - 1; }
  int64_t num_tokens() const { return bin_.size() / token_size_; }
  TokenCode code() const { return code_; }
  const Path& prefix() const { return prefix_; }
  const MappedFile& idx() const { return idx_; }
  const MappedFile& bin() const { return bin_; }

  int32_t length(int64_t sequence) const { return load<int32_t>(lengths_, sequence); }
  int64_t pointer(int64_t sequence) const { return load<int64_t>(pointers_, sequence); }  // bytes
  int64_t document_start(int64_t entry) const { return load<int64_t>(documents_, entry); }
  LengthsView lengths() const override { return {lengths_, num_sequences_}; }
  std::string name() const override { return prefix_.native(); }

  // A token that does not fit 32 bits is an error.
  void copy(int64_t sequence, int64_t offset, std::span<int32_t> out) const override;
  std::span<const std::byte> sequence_bytes(int64_t sequence) const;

  // Every length, pointer and document entry: throws on the first that cannot be.
  void check_all() const;
  // The same for some sequences, so that several threads can share the work.
  void check_sequences(int64_t begin, int64_t end) const;
  void check_documents() const;

 private:
  template <class T>
  T load(const std::byte* array, int64_t index) const {
    T value;  // the arrays are not aligned
    std::memcpy(&value, array + index * int64_t{sizeof(T)}, sizeof(T));
    return value;
  }
  void read_header();
  void check_ends() const;
  // The bytes of tokens [offset, offset + count), checked.
  const std::byte* tokens_at(int64_t sequence, int64_t offset, int64_t count) const;
  [[noreturn]] void broken(const std::string& what) const;

  Path prefix_;
  MappedFile idx_, bin_;
  TokenCode code_ = TokenCode::u16;
  int token_size_ = 2;
  int64_t num_sequences_ = 0, num_document_entries_ = 0;
  const std::byte *lengths_ = nullptr, *pointers_ = nullptr, *documents_ = nullptr;
};

}  // namespace phx
