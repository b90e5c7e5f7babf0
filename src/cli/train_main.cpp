#include "cli/train_main.h"

#include "base/error.h"

namespace phx {

int train_main(const PretrainOptions&) {
  throw_error(
      "train_main: the training loop is not in this build; --check-args checks the options");
}

}  // namespace phx
