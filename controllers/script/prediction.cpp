#include "prediction.hpp"

#include <algorithm>

namespace script {

void Prediction::append(aici::TokenId token) {
  if (at_ < text_.size() && text_[at_] == token) {
    left_ = ++at_;
    followed_++;
  } else {
    const aici::TokenId pair[] = {last_, token};
    const auto begin = text_.begin(), from = begin + static_cast<std::ptrdiff_t>(left_);
    auto found = std::search(from, text_.end(), pair, pair + 2);
    if (found == text_.end()) found = std::search(begin, text_.end(), pair, pair + 2);
    at_ = text_.size();
    followed_ = 0;
    if (found != text_.end()) left_ = at_ = static_cast<std::size_t>(found - begin) + 2;
  }
  last_ = token;
}

std::span<const aici::TokenId> Prediction::next(std::size_t most) const {
  constexpr std::size_t kFirst = 3;
  return std::span(text_).subspan(at_, std::min({most, kFirst + 2 * followed_, text_.size() - at_}));
}

}  // namespace script
