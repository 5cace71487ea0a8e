// The regular-expression controller for measuring warm masks: when tokens are taken back it starts its text over
// and keeps what it has learned, its states and masks. The argument is the expression, or `until:` and a text.
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"

namespace {

using aici::regex::Regex;

/// A regex of which every byte, while `restart` is set, leads to the first state.
class Again : public Regex {
 public:
  explicit Again(Regex regex) : Regex(std::move(regex)) {}

  State append(State state, std::uint8_t byte) const { return restart ? initial() : Regex::append(state, byte); }

  bool restart = false;
};

Again compile(std::string_view argument) {
  constexpr std::string_view kUntil = "until:";
  if (!argument.starts_with(kUntil)) return Again(aici::regex::compile_or_fail(argument));
  const std::string stop(argument.substr(kUntil.size()));
  return Again(aici::regex::until_or_fail({&stop, 1}));
}

class RegexAgain : public aici::Controller {
 public:
  explicit RegexAgain(std::string_view argument) : constraint_(compile(argument)) {}

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    if (aici::step().backtrack() != 0) {
      constraint_.recognizer().restart = true;
      constraint_.append({aici::vocabulary().order(), 1});
      constraint_.recognizer().restart = false;
    }
    constraint_.append(aici::step().tokens());
    return constraint_.next();
  }

 private:
  aici::Constraint<Again> constraint_;
};

}  // namespace

AICI_REGISTER(RegexAgain);
