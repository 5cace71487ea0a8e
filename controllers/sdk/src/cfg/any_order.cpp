// Parts in any order: what may follow the parts that have been written.
#include <algorithm>
#include <bit>

#include "aici/cfg/grammar.hpp"

namespace aici::cfg {
namespace {

bool has(const AnyOrder::Written& written, std::size_t part) { return written[part / 32] >> (part % 32) & 1; }

std::uint32_t different(const AnyOrder::Written& written) {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i + 1 < written.size(); i++) count += static_cast<std::uint32_t>(std::popcount(written[i]));
  return count;
}

}  // namespace

bool AnyOrder::complete(const Written& written) const {
  for (std::size_t i = 0; i < parts.size(); i++)
    if (parts[i].required && !has(written, i)) return false;
  const std::uint32_t repeated = repeats_count_once ? std::min(written.back(), 1u) : written.back();
  return different(written) + repeated >= least;
}

bool AnyOrder::feasible(const Written& written) const {
  std::uint32_t required = 0, left = 0;
  bool repeat = false;
  for (std::size_t i = 0; i < parts.size(); i++) {
    required += parts[i].required && !has(written, i);
    left += !parts[i].repeats && !has(written, i);
    repeat = repeat || parts[i].repeats;
  }
  const std::uint32_t once = different(written), repeated = written.back();
  const std::uint32_t counted = once + (repeats_count_once ? std::min(repeated, 1u) : repeated);
  if (most != kNoLimit && once + repeated + required > most) return false;
  if (counted >= least) return true;
  const std::uint32_t room = most == kNoLimit ? most : most - once - repeated;
  const std::uint32_t more = !repeat ? 0 : repeats_count_once ? repeated == 0 : kNoLimit - left;
  return least - counted <= std::min(room, left + more);
}

std::pair<std::size_t, std::size_t> AnyOrder::next(const Written& written) const {
  std::size_t first = 0;
  for (std::size_t i = 0; required_in_order && i < parts.size(); i++) {
    if (parts[i].required && !has(written, i)) return {first, i + 1};
    if (parts[i].required) first = i + 1;
  }
  return {0, parts.size()};
}

bool AnyOrder::add(std::size_t part, Written* written) const {
  if (!parts[part].repeats) {
    if (has(*written, part)) return false;
    (*written)[part / 32] |= 1u << (part % 32);
  } else if (most != kNoLimit || written->back() < (repeats_count_once ? std::min(least, 1u) : least)) {
    // otherwise, all further numbers are equivalent
    written->back()++;
  }
  // without an upper bound, each part only helps
  return most == kNoLimit || feasible(*written);
}

}  // namespace aici::cfg
