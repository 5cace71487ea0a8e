// The regular-expression controller for measuring warm masks: when tokens are taken back it starts its text over
// and keeps what it has learned, its states and masks. The argument is the expression, or `until:` and a text.
#include <optional>
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
  aici::regex::Error error;
  std::optional<Regex> regex;
  if (argument.starts_with(kUntil)) {
    const std::string stop(argument.substr(kUntil.size()));
    regex = Regex::until({&stop, 1}, &error);
  } else {
    regex = Regex::compile(argument, &error);
  }
  if (!regex) aici::fail("the regular expression is refused at " + error.text());
  regex->set_byte_classes(aici::vocabulary().classes());
  return Again(std::move(*regex));
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
