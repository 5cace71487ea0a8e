// The regular-expression controller with a part on the critical path: it appends tokens in post_process, and has a
// pre_process in every step. The argument is the expression.
#include <span>
#include <string_view>

#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"

namespace {

using aici::regex::Regex;

class RegexOnPath : public aici::Controller {
 public:
  explicit RegexOnPath(std::string_view pattern) : constraint_(aici::regex::compile_or_fail(pattern)) {}

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
