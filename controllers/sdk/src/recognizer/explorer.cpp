#include "aici/detail/explorer.hpp"

#include <algorithm>

namespace aici::detail {

namespace {
constexpr ByteRange kFirst[] = {{0, 0x7F, 0}, {0xC2, 0xDF, 1}, {0xE0, 0xEF, 2}, {0xF0, 0xF4, 3}};
constexpr ByteRange kLater[] = {{0x80, 0xBF, 0}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2}};
}  // namespace

std::span<const ByteRange> Frontier::bytes(std::uint8_t missing) {
  if (missing == 0) return kFirst;
  return {&kLater[missing - 1], 1};
}

bool Frontier::add(std::uint32_t number, std::uint8_t missing, unsigned cost) {
  if (seen_.size() == kMax) return false;
  Hasher hash;
  hash.add(number);
  const auto same = [&](std::uint32_t place) { return seen_[place].number == number; };
  if (index_.find(hash.bits(), same) != HashIndex::kNone) return false;
  const auto place = static_cast<std::uint32_t>(seen_.size());
  index_.insert(hash.bits(), place);
  std::uint32_t& first = first_[std::min(cost, kMaxCost)];
  seen_.push_back({number, first, missing});
  first = place + 1;
  return true;
}

std::uint32_t Frontier::next() {
  for (cost_ = 0; cost_ < kMaxCost && first_[cost_] == 0; cost_++) {
  }
  const std::uint32_t place = first_[cost_] - 1;
  if (place != kNone) first_[cost_] = seen_[place].after;
  return place;
}

}  // namespace aici::detail
