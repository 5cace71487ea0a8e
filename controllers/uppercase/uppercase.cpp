// uppercase: the model writes without small letters (a to z).
//
// The smallest constraint on text: one state and a rule for bytes.
#include "aici/sdk.hpp"

namespace {

class NoSmallLetters {
 public:
  using State = std::uint32_t;

  State initial() const { return 0; }
  State append(State state, std::uint8_t) const { return state; }
  bool byte_allowed(State, std::uint8_t byte) const { return byte < 'a' || byte > 'z'; }
  bool special_allowed(State, aici::SpecialToken token) const { return token == aici::SpecialToken::eos; }
  // Optional. With it, a mask takes a fiftieth of the time, since most tokens are decided by the kinds of their bytes.
  aici::Signature loop_signature(State) const { return kinds_; }

 private:
  aici::Signature kinds_ = aici::find_loop_signature(*this, 0, aici::vocabulary().classes());
};

class Uppercase : public aici::RecognizerController<NoSmallLetters> {
 public:
  Uppercase() : RecognizerController(NoSmallLetters()) {}
};

}  // namespace

AICI_REGISTER(Uppercase);
