// NAME: the model writes without the letters of the argument ("e", if there is none).
//
// Try: aici run NAME.wasm --prompt "Tell me a story" --arg aeiou
#include <cctype>
#include <cstdio>
#include <span>
#include <string_view>

#include "aici/controller.hpp"

class Lipogram : public aici::Controller {
 public:
  // Once per argument, before there is a prompt. A fork copies the object, so every sequence has its own.
  explicit Lipogram(std::string_view letters) {
    if (letters.empty()) letters = "e";
    const aici::Vocabulary& words = aici::vocabulary();
    allowed_.allow_text();
    for (aici::TokenId token = 0; token < words.size(); token++)
      if (has_one_of(words.token(token), letters)) allowed_.forbid(token);
    if (!allowed_.has_text()) aici::fail("no token is left without these letters");
    allowed_.allow(words.eos());  // the text may end anywhere
    std::printf("%u of %u tokens are allowed\n", allowed_.count(), words.size());
  }

  // Once per token, while the model computes the logits for the next one.
  aici::MidResult mid_process(std::span<const aici::SeqId>) { return aici::MidResult::sample(allowed_); }

 private:
  static bool has_one_of(std::string_view text, std::string_view letters) {
    for (char c : text)
      for (char letter : letters)
        if (std::tolower(static_cast<unsigned char>(c)) == std::tolower(static_cast<unsigned char>(letter))) return true;
    return false;
  }

  aici::TokenSet allowed_;
};

AICI_REGISTER(Lipogram);
