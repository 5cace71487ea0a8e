// failure.hpp - failures of the core as values: what the interpreter raises where the script asked for it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "script.h"

namespace script {

/// Calls `body()`; the message if it failed by aici::fail, else null. What `body` owns then leaks: a script that is
/// told of an error seldom goes on for long.
template <class Body>
script_error attempt(Body&& body) {
  struct Call {
    static void run(void* data) { (*static_cast<std::remove_reference_t<Body>*>(data))(); }
  };
  return script_try(Call::run, &body) ? script_failure() : nullptr;
}

/// Keeps a message until the next failure.
script_error failure(std::string message);

}  // namespace script
