// Lists the tensors of a checkpoint, or prints the first numbers of one of them:
//   print_checkpoint FOLDER [TENSOR]
#include <algorithm>
#include <exception>
#include <iostream>

#include "phalanx/checkpoint/read_tensors.h"

namespace {

void list(const phx::NativeCheckpoint& checkpoint) {
  std::cout << "iteration " << checkpoint.iteration() << "\n";
  for (const auto& [name, info] : checkpoint.tensors())
    std::cout << name << " " << phx::describe(info) << "\n";
}

void print(const phx::NativeCheckpoint& checkpoint, const std::string& name) {
  const std::vector<double> values = phx::read_values(checkpoint, name);
  std::cout << name << " " << phx::describe(checkpoint.tensors().at(name)) << ":";
  for (size_t i = 0; i < std::min<size_t>(values.size(), 8); ++i) std::cout << " " << values[i];
  std::cout << (values.size() > 8 ? " ..\n" : "\n");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: print_checkpoint FOLDER [TENSOR]\n";
    return 2;
  }
  const auto checkpoint = phx::open_checkpoint(argv[1]);
  if (argc > 2)
    print(*checkpoint, argv[2]);
  else
    list(*checkpoint);
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
