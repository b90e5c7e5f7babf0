// Hands the weights of a run to another program under Hugging Face's names, one tensor after the
// other, without writing a folder. Here the other program is this one: it prints what comes.
//   stream_weights FOLDER
#include <exception>
#include <iostream>

#include "phalanx/checkpoint/read_tensors.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/convert/hf_stream.h"

namespace {

void take(const std::string& name, const phx::HfTensor& tensor) {
  const std::vector<double> values = phx::values_of(tensor.info.dtype, tensor.bytes);
  std::cout << name << " " << phx::describe(tensor.info) << ": " << values.at(0) << " ..\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: stream_weights FOLDER\n";
    return 2;
  }
  const auto checkpoint = phx::open_checkpoint(argv[1]);
  const auto options = phx::PretrainOptions::from_json(checkpoint->info("options"));
  const phx::Family& family =
      phx::for_each_hf_tensor(checkpoint, {.model = options.model, .dtype = phx::DType::f32}, take);
  std::cout << "a " << family.name << " model after iteration " << checkpoint->iteration() << "\n";
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
