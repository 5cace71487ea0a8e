#include "aici/detail/explorer.hpp"

namespace aici::detail {

namespace {
constexpr ByteRange kFirst[] = {{0, 0x7F, 0}, {0xC2, 0xDF, 1}, {0xE0, 0xEF, 2}, {0xF0, 0xF4, 3}};
constexpr ByteRange kLater[] = {{0x80, 0xBF, 0}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2}};
}  // namespace

std::span<const ByteRange> Frontier::bytes(std::uint8_t missing) {
  if (missing == 0) return kFirst;
  return {&kLater[missing - 1], 1};
}

bool Frontier::add(std::uint32_t number, std::uint8_t missing) {
  if (numbers_.size() == kMost) return false;
  Hasher hash;
  hash.add(number);
  const auto same = [&](std::uint32_t place) { return numbers_[place] == number; };
  if (index_.find(hash.bits(), same) != HashIndex::kNone) return false;
  index_.insert(hash.bits(), static_cast<std::uint32_t>(numbers_.size()));
  numbers_.push_back(number);
  missing_.push_back(missing);
  return true;
}

std::uint32_t Frontier::next() {
  while (whole_ < numbers_.size() && missing_[whole_] != 0) whole_++;
  if (whole_ < numbers_.size()) return whole_++;
  while (part_ < numbers_.size() && missing_[part_] == 0) part_++;
  return part_ < numbers_.size() ? part_++ : kNone;
}

}  // namespace aici::detail
