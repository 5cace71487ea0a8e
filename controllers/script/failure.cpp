#include "failure.hpp"

#include "aici/host.hpp"
#include "catch.h"

namespace script {
namespace {

[[clang::no_destroy]] std::string last;

void note(std::string_view text) {
  last = text;
  script_throw();
}

}  // namespace

script_error failure(std::string message) {
  last = std::move(message);
  return last.c_str();
}

}  // namespace script

bool script_try(void (*body)(void*), void* data) {
  const aici::FailHandler outer = aici::catch_failures(script::note);
  const bool failed = script_catch(body, data);
  aici::catch_failures(outer);
  return failed;
}

script_error script_failure(void) { return script::last.c_str(); }
