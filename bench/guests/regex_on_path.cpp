// The regular-expression controller with a part on the critical path: tokens are appended in post_process, and
// pre_process is asked in every step. The argument is the expression.
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"

namespace {

using aici::regex::Regex;

Regex compile(std::string_view pattern) {
  aici::regex::Error error;
  std::optional<Regex> regex = Regex::compile(pattern, &error);
  if (!regex) aici::fail("the regular expression is refused at " + error.text());
  regex->set_byte_classes(aici::vocabulary().classes());
  return std::move(*regex);
}

class RegexOnPath : public aici::Controller {
 public:
  explicit RegexOnPath(std::string_view pattern) : constraint_(compile(pattern)) {}

  aici::PostResult post_process(std::span<const aici::TokenId> tokens) {
    constraint_.append(tokens);
    return constraint_.ended() ? aici::PostResult::stop() : aici::PostResult::go_on();
  }
  aici::PreResult pre_process() { return aici::PreResult::go_on(); }
  aici::MidResult mid_process(std::span<const aici::SeqId>) { return constraint_.next(); }

 private:
  aici::Constraint<Regex> constraint_;
};

}  // namespace

AICI_REGISTER(RegexOnPath, pre_process, post_process);
