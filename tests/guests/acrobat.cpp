// acrobat: uses every verb at random, seeded by its argument, to compare two engines.
//
// Its actions depend on its argument, on the number of calls, and on its place in its forks. They depend on nothing
// that engines number or time differently.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "aici/sdk.hpp"

namespace {

constexpr const char* kTexts[] = {" and then", ", of course,", " blue", "\nOnce more:", " 42", ". The", " x"};
constexpr unsigned kMaxTurns = 30;

class Acrobat : public aici::Controller {
 public:
  explicit Acrobat(std::string_view argument)
      : state_(std::strtoull(std::string(argument).c_str(), nullptr, 10) * 0x9e3779b97f4a7c15u + 1) {}

  void init_prompt(std::span<const aici::TokenId> prompt) { length_ = static_cast<unsigned>(prompt.size()); }

  aici::PreResult pre_process() {
    if (pause_ > 0) return pause_--, aici::PreResult::suspend();
    const unsigned choice = draw(24);
    if (choice == 0) return pause_ = draw(4), aici::PreResult::suspend();
    if (choice == 1 && forks_ > 0) {
      forks_--;
      return aici::PreResult::fork(2 + draw(2));
    }
    if (choice == 2 && turns_ > 8) return aici::PreResult::stop();
    return aici::PreResult::go_on();
  }

  aici::MidResult mid_process(std::span<const aici::SeqId> group) {
    const aici::Step& step = aici::step();
    length_ += static_cast<unsigned>(step.tokens().size()) - step.backtrack();
    const auto place = std::find(group.begin(), group.end(), aici::self_seq_id()) - group.begin();
    if (group.size() > 1) {
      state_ += 0x9e3779b97f4a7c15u * static_cast<std::uint64_t>(place + 1);
      std::printf("place %d of %zu\n", static_cast<int>(place), group.size());
    }
    if (++turns_ > kMaxTurns) return aici::MidResult::stop();
    switch (draw(8)) {
      case 0:
        return aici::MidResult::splice(0, aici::tokenize(text()));
      case 1:
        return aici::MidResult::splice(std::min(draw(6), length_), aici::tokenize(text()));
      case 2:
        return aici::MidResult::splice(std::min(1 + draw(3), length_ - 1), {});
      case 3:
        return aici::MidResult::force(aici::tokenize(text())[0]);
      case 4: {
        aici::TokenSet set;
        const char letter = static_cast<char>('a' + draw(26));
        for (aici::TokenId token = 0; token < aici::vocabulary().size(); token++) {
          const std::string_view bytes = aici::vocabulary().token(token);
          if (bytes.size() > 1 && bytes[0] == ' ' && bytes[1] == letter) set.allow(token);
        }
        return aici::MidResult::sample(std::move(set));
      }
      default:
        return aici::MidResult::sample_any();
    }
  }

 private:
  unsigned draw(unsigned bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<unsigned>(state_ >> 33) % bound;
  }
  const char* text() { return kTexts[draw(sizeof kTexts / sizeof *kTexts)]; }

  std::uint64_t state_;
  unsigned length_ = 0, turns_ = 0, pause_ = 0, forks_ = 2;
};

}  // namespace

AICI_REGISTER(Acrobat, init_prompt, pre_process);
