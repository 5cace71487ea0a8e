// The regular-expression controller for measuring warm masks: after a backtrack it starts its text over and keeps its
// cached states and masks. The argument is the expression, or `until:` and a text.
#include <span>
#include <string>
#include <string_view>

#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"

namespace {

aici::regex::Regex compile(std::string_view argument) {
  constexpr std::string_view kUntil = "until:";
  if (!argument.starts_with(kUntil)) return aici::regex::compile_or_fail(argument);
  const std::string stop(argument.substr(kUntil.size()));
  return aici::regex::until_or_fail({&stop, 1});
}

class RegexAgain : public aici::Controller {
 public:
  explicit RegexAgain(std::string_view argument) : constraint_(compile(argument)) {}

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    if (aici::step().backtrack() != 0) constraint_.restart();
    constraint_.append(aici::step().tokens());
    return constraint_.next();
  }

 private:
  aici::Constraint<aici::regex::Regex> constraint_;
};

}  // namespace

AICI_REGISTER(RegexAgain);
