// A recognizer whose automaton is the controller argument, walked in every way that the SDK offers.
//
// Argument: the way (1 byte), a number (1 byte), for each state a byte of flags (1 << SpecialToken) and 256
// bytes of next states. State 0 is dead, state 1 is the start. Way 6 is a constraint whose cache has
// 512 times the number of bytes, way 7 the same in an AnyConstraint.
#include <cstdio>

#include "aici/sdk.hpp"

namespace {

struct Table {
  using State = std::uint32_t;

  const std::uint8_t* rows;  // 257 bytes each

  State initial() const { return 1; }
  State append(State s, std::uint8_t b) const { return rows[s * 257 + 1 + b]; }
  bool byte_allowed(State s, std::uint8_t b) const { return append(s, b) != 0; }
  bool special_allowed(State s, aici::SpecialToken t) const {
    return rows[s * 257] >> static_cast<unsigned>(t) & 1;
  }
};

struct Combined : Table {  // one call per byte
  bool dead(State s) const { return s == 0; }
};

struct Signed : Combined {  // with loop signatures
  aici::Signature loop_signature(State s) {
    if (!known[s]) {
      signatures[s] =
          aici::find_loop_signature(static_cast<Combined&>(*this), s, aici::vocabulary().classes());
      known[s] = true;
    }
    return signatures[s];
  }
  aici::Signature signatures[256] = {};
  bool known[256] = {};
};

// A byte stack without optional functions.
class Plain final : public aici::Recognizer {
 public:
  explicit Plain(Table table) : table_(table), stack_{1} {}
  void push_byte(std::uint8_t b) override { stack_.push_back(table_.append(stack_.back(), b)); }
  void pop_bytes(std::uint32_t n) override { stack_.resize(stack_.size() - n); }
  void collapse() override { stack_ = {stack_.back()}; }
  bool byte_allowed(std::uint8_t b) override { return table_.byte_allowed(stack_.back(), b); }
  bool special_allowed(aici::SpecialToken t) override { return table_.special_allowed(stack_.back(), t); }
  void trie_finished() override {
    if (stack_.size() != 1) aici::fail("the stack is not as before");
  }

 private:
  Table table_;
  std::vector<std::uint32_t> stack_;
};

class Tester : public aici::Controller {
 public:
  explicit Tester(std::string_view arg)
      : kept_(arg),
        table_{reinterpret_cast<const std::uint8_t*>(kept_.data()) + 2},
        signed_{Combined{table_}},
        plain_(table_),
        stack_(signed_),
        constraint_(signed_, {.cache_bytes = static_cast<std::uint8_t>(kept_[1]) * 512u}),
        any_(signed_, {.cache_bytes = static_cast<std::uint8_t>(kept_[1]) * 512u}) {}

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    if (kept_[0] == 6) {
      constraint_.append(aici::step().tokens());
      aici::MidResult result = constraint_.next();
      std::printf("%u\n", static_cast<unsigned>(constraint_.cached_bytes()));
      return result;
    }
    if (kept_[0] == 7) {
      any_.append(aici::step().tokens());
      std::printf("%d%d\n", any_.ended(), any_.may_end());
      return any_.next();
    }
    for (aici::TokenId token : aici::step().tokens())
      for (char byte : aici::vocabulary().token(token)) {
        state_ = table_.append(state_, static_cast<std::uint8_t>(byte));
        plain_.push_byte(static_cast<std::uint8_t>(byte));
        stack_.push_byte(static_cast<std::uint8_t>(byte));
      }
    plain_.collapse();
    stack_.collapse();
    Combined combined{table_};
    switch (kept_[0]) {
      case 0:
        aici::compute_bias(table_, state_, set_);
        break;
      case 1:
        aici::compute_bias(combined, state_, set_);
        break;
      case 2:
        aici::compute_bias(signed_, state_, set_);
        break;
      case 3:
        aici::compute_bias(plain_, set_);
        break;
      case 4:
        aici::compute_bias(static_cast<aici::Recognizer&>(plain_), set_);
        break;
      case 5:
        aici::compute_bias(stack_, set_);
        break;
    }
    std::printf("%08x\n", signed_.loop_signature(state_));
    return aici::MidResult::sample(set_);
  }

 private:
  std::string kept_;
  Table table_;
  Signed signed_;
  Plain plain_;
  aici::StackRecognizer<Signed> stack_;
  aici::Constraint<Signed> constraint_;
  aici::AnyConstraint any_;
  std::uint32_t state_ = 1;
  aici::TokenSet set_;
};

}  // namespace

AICI_REGISTER(Tester);
