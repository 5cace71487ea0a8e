#include "aici/detail/regex/codepoint_set.hpp"

#include <algorithm>

namespace aici::regex {

void CodepointSet::add(std::uint32_t low, std::uint32_t high) {
  high = std::min(high, kMaxCodepoint);
  if (low < 0xD800) add_scalars(low, std::min(high, 0xD7FFu));
  if (high > 0xDFFF) add_scalars(std::max(low, 0xE000u), high);
}

void CodepointSet::add_scalars(std::uint32_t low, std::uint32_t high) {
  if (low > high) return;
  if (ranges_.empty() || ranges_.back().high + 1 < low) {
    ranges_.push_back({low, high});
    return;
  }
  if (ranges_.back().low <= low) {
    ranges_.back().high = std::max(ranges_.back().high, high);
    return;
  }
  // The first range that touches low..high, and the first range after it that does not.
  auto first = std::partition_point(ranges_.begin(), ranges_.end(), [=](auto& r) { return r.high + 1 < low; });
  auto last = std::partition_point(first, ranges_.end(), [=](auto& r) { return r.low <= high + 1; });
  if (first == last) {
    ranges_.insert(first, {low, high});
    return;
  }
  first->low = std::min(first->low, low);
  first->high = std::max((last - 1)->high, high);
  ranges_.erase(first + 1, last);
}

void CodepointSet::add(const CodepointSet& other) {
  if (other.empty()) return;
  if (empty() || ranges_.back().high < other.ranges_.front().low) {
    for (auto& r : other.ranges_) add_scalars(r.low, r.high);
    return;
  }
  CodepointSet merged;
  merged.ranges_.reserve(ranges_.size() + other.ranges_.size());
  auto a = ranges_.cbegin(), b = other.ranges_.cbegin();
  while (a != ranges_.end() || b != other.ranges_.end()) {
    const bool take_a = b == other.ranges_.end() || (a != ranges_.end() && a->low < b->low);
    const CodepointRange r = take_a ? *a++ : *b++;
    if (!merged.ranges_.empty() && merged.ranges_.back().high + 1 >= r.low)
      merged.ranges_.back().high = std::max(merged.ranges_.back().high, r.high);
    else
      merged.ranges_.push_back(r);
  }
  ranges_ = std::move(merged.ranges_);
}

CodepointSet CodepointSet::complement() const {
  CodepointSet out;
  std::uint32_t next = 0;
  for (auto& r : ranges_) {
    if (r.low > next) out.add(next, r.low - 1);
    next = r.high + 1;
  }
  if (next <= kMaxCodepoint) out.add(next, kMaxCodepoint);
  return out;
}

CodepointSet CodepointSet::operator&(const CodepointSet& other) const {
  CodepointSet out;
  auto a = ranges_.cbegin(), b = other.ranges_.cbegin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const std::uint32_t low = std::max(a->low, b->low), high = std::min(a->high, b->high);
    if (low <= high) out.ranges_.push_back({low, high});
    if (a->high < b->high)
      ++a;
    else
      ++b;
  }
  return out;
}

CodepointSet CodepointSet::operator^(const CodepointSet& other) const {
  CodepointSet out = *this - other;
  out.add(other - *this);
  return out;
}

bool CodepointSet::contains(std::uint32_t codepoint) const { return intersects(codepoint, codepoint); }

bool CodepointSet::intersects(std::uint32_t low, std::uint32_t high) const {
  auto r = std::lower_bound(ranges_.begin(), ranges_.end(), low,
                            [](const CodepointRange& range, std::uint32_t c) { return range.high < c; });
  return r != ranges_.end() && r->low <= high;
}

}  // namespace aici::regex
