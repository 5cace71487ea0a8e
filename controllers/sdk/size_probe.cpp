// size_probe: measures the compiled size of the SDK's three layers. The build driver builds and measures it; it never
// runs.
//
// It is a controller that uses the whole controller interface with the host functions, a byte stack recognizer and a
// functional recognizer. Each recognizer is walked, cached and forced.
#include "aici/sdk.hpp"

namespace {

struct Digits {
  using State = std::uint32_t;
  State initial() const { return 0; }
  State append(State, std::uint8_t) const { return 1; }
  bool byte_allowed(State, std::uint8_t byte) const { return byte >= '0' && byte <= '9'; }
  bool special_allowed(State state, aici::SpecialToken) const { return state == 1; }
  aici::Signature loop_signature(State state) {
    return aici::find_loop_signature(*this, state, aici::vocabulary().classes());
  }
};

using Stack = aici::StackRecognizer<Digits>;

class Probe : public aici::Controller {
 public:
  explicit Probe(std::string_view) : functional_(Digits{}), stack_(Stack(Digits{})) {}

  void init_prompt(std::span<const aici::TokenId> prompt) {
    for (aici::TokenId token : prompt) aici::log(aici::vocabulary().token(token));
  }
  aici::PreResult pre_process() {
    const auto variable = aici::get_variable("probe");
    if (!variable)
      aici::set_variable("probe", "0");
    else if (!aici::set_variable_if("probe", "1", variable->version))
      aici::append_variable("probe", "2");
    if (!aici::capability(aici::Capability::fork)) return aici::PreResult::suspend();
    return aici::PreResult::fork(2);
  }
  aici::MidResult mid_process(std::span<const aici::SeqId> fork_group) {
    if (fork_group.size() > 1) {
      stack_.append(aici::step().tokens());
      return stack_.next();
    }
    functional_.append(aici::step().tokens());
    return functional_.next();
  }
  aici::PostResult post_process(std::span<const aici::TokenId> tokens) {
    return tokens.empty() ? aici::PostResult::stop() : aici::PostResult::go_on();
  }

 private:
  aici::Constraint<Digits> functional_;
  aici::Constraint<Stack> stack_;
};

}  // namespace

AICI_REGISTER(Probe, init_prompt, pre_process, post_process);
