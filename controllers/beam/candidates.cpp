#include "candidates.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "aici/host.hpp"

namespace {

/// A variable for each round: a slow branch may still read one while others write the next.
std::string variable(std::uint32_t round) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, round).ptr;
  return "beam " + std::string(digits, end);
}

}  // namespace

void announce_candidates(std::uint32_t round, const std::vector<Candidate>& candidates) {
  aici::append_variable(variable(round), {reinterpret_cast<const char*>(candidates.data()),
                                          candidates.size() * sizeof(Candidate)});
}

std::vector<Candidate> candidates(std::uint32_t round) {
  const auto found = aici::get_variable(variable(round));
  if (!found) return {};
  std::vector<Candidate> all(found->value.size() / sizeof(Candidate));
  std::memcpy(all.data(), found->value.data(), all.size() * sizeof(Candidate));
  return all;
}

std::uint32_t branches_of(const std::vector<Candidate>& candidates) {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i < candidates.size(); i++)  // candidates of a branch are adjacent
    count += i == 0 || candidates[i].branch != candidates[i - 1].branch;
  return count;
}

void keep_best(std::vector<Candidate>* candidates, std::uint32_t count) {
  for (std::size_t i = 0; i < candidates->size() && i < count; i++) {
    const auto best =
        std::max_element(candidates->begin() + static_cast<std::ptrdiff_t>(i), candidates->end(),
                         [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
    std::rotate(candidates->begin() + static_cast<std::ptrdiff_t>(i), best, best + 1);
  }
  if (candidates->size() > count) candidates->resize(count);
}
