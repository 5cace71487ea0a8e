// failure.hpp - failures of the core as values, which the interpreter raises in the script.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "script.h"

namespace script {

/// Calls `body()`. Returns the message if it failed by aici::fail, else null. After a failure, objects that `body` owns
/// leak; a script rarely continues for long after an error.
template <class Body>
script_error attempt(Body&& body) {
  struct Call {
    static void run(void* data) { (*static_cast<std::remove_reference_t<Body>*>(data))(); }
  };
  return script_try(Call::run, &body) ? script_failure() : nullptr;
}

/// Stores a message until the next failure.
script_error failure(std::string message);

}  // namespace script
