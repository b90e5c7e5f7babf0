// The names that a pickle may mention: what torch.save, PyTorch's distributed checkpoints and
// Megatron put into their files. None of them is looked up or run.
#pragma once

#include <string_view>

namespace phx {

enum class PickleName {
  refused,
  value,        // a constant such as torch.float32: it cannot be called
  callable,     // a class or a function that only rebuilds data
  dictionary,   // a class whose objects are dicts
  enumeration,  // a class of constants: called with a value, or asked for a member by name
  member_of,    // getattr, taken for members of enumerations alone: some Pythons write them so
};

PickleName pickle_name(std::string_view module, std::string_view name);

}  // namespace phx
