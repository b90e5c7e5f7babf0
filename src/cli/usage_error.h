// What a user asked for cannot be, as turns out after the arguments were read: exit code 2.
#pragma once

#include "phalanx/base/error.h"

namespace phx {

class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace phx
