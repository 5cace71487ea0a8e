#include "aici/spelling.hpp"

#include <algorithm>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

Spelling::Spelling(std::span<const std::string> texts) {
  const auto too_long = [](const std::string& text) { return text.size() > kMost; };
  if (std::any_of(texts.begin(), texts.end(), too_long)) return;
  for (const std::string& text : texts) {
    const std::vector<TokenId> tokens = tokenize(text);
    if (tokens.empty() && !text.empty()) fail("the vocabulary has no tokens that spell \"" + text + "\"");
    const auto begin = static_cast<std::uint32_t>(tokens_.size());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    texts_.push_back({begin, static_cast<std::uint32_t>(tokens_.size())});
  }
}

void Spelling::append(TokenId token) {
  std::erase_if(texts_, [&](Rest& rest) { return rest.empty() || tokens_[rest.begin++] != token; });
}

Answer Spelling::next(TokenSet& scratch) const {
  const TokenId* const first = tokens_.data() + texts_.front().begin;
  const TokenId* common_end = tokens_.data() + texts_.front().end;
  bool may_end = false, may_go_on = false;
  for (const Rest& rest : texts_) {
    common_end = std::mismatch(first, common_end, tokens_.data() + rest.begin, tokens_.data() + rest.end).first;
    (rest.empty() ? may_end : may_go_on) = true;
  }
  if (common_end != first) return {Answer::Kind::tokens, {first, common_end}};
  if (!may_go_on) return {Answer::Kind::stop, {}};
  scratch.clear();
  for (const Rest& rest : texts_)
    if (!rest.empty()) scratch.allow(tokens_[rest.begin]);
  if (may_end) scratch.allow(vocabulary().eos());
  return {Answer::Kind::mask, scratch.words()};
}

}  // namespace aici
