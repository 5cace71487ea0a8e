#include "aici/detail/spelling.hpp"

#include <algorithm>
#include <utility>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

Spelling::Spelling(std::span<const std::string> texts) {
  const auto too_long = [](const std::string& text) { return text.size() > kMax; };
  if (std::any_of(texts.begin(), texts.end(), too_long)) return;
  for (const std::string& text : texts) {
    const std::vector<TokenId> tokens = tokenize(text);
    if (tokens.empty() && !text.empty()) fail("the vocabulary has no tokens that spell \"" + text + "\"");
    const auto begin = static_cast<std::uint32_t>(tokens_.size());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    texts_.push_back({begin, static_cast<std::uint32_t>(tokens_.size())});
  }
  restart();
}

void Spelling::restart() {
  num_left_ = texts_.size();
  length_ = 0;
}

void Spelling::append(TokenId token) {
  for (std::size_t i = 0; i < num_left_;)
    if (rest(i).empty() || rest(i).front() != token)
      std::swap(texts_[i], texts_[--num_left_]);
    else
      i++;
  length_++;
}

Answer Spelling::next(TokenSet& scratch) const {
  const std::span<const TokenId> first = rest(0);
  auto common_end = first.end();
  bool may_end = false, may_go_on = false;
  for (std::size_t i = 0; i < num_left_; i++) {
    const std::span<const TokenId> other = rest(i);
    common_end = std::mismatch(first.begin(), common_end, other.begin(), other.end()).first;
    (other.empty() ? may_end : may_go_on) = true;
  }
  if (common_end != first.begin()) return {Answer::Kind::tokens, {first.begin(), common_end}};
  if (!may_go_on) return {Answer::Kind::stop, {}};
  scratch.clear();
  for (std::size_t i = 0; i < num_left_; i++)
    if (!rest(i).empty()) scratch.allow(rest(i).front());
  if (may_end) scratch.allow(vocabulary().eos());
  return {Answer::Kind::mask, scratch.words()};
}

}  // namespace aici
