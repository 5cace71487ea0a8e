#include "prediction.hpp"

#include <algorithm>

namespace script {

void Prediction::append(aici::TokenId token) {
  if (follows_ && at_ < text_.size() && text_[at_] == token) {
    at_++;
    followed_++;
  } else {
    const aici::TokenId pair[] = {last_, token};
    const auto begin = text_.begin(), from = begin + static_cast<std::ptrdiff_t>(at_);
    auto found = std::search(from, text_.end(), pair, pair + 2);
    if (found == text_.end()) found = std::search(begin, text_.end(), pair, pair + 2);
    follows_ = found != text_.end();
    followed_ = 0;
    if (follows_) at_ = static_cast<std::size_t>(found - begin) + 2;
  }
  last_ = token;
}

std::span<const aici::TokenId> Prediction::next(std::size_t most) const {
  constexpr std::size_t kFirst = 3;
  if (!follows_) return {};
  return std::span(text_).subspan(at_, std::min({most, kFirst + 2 * followed_, text_.size() - at_}));
}

}  // namespace script
