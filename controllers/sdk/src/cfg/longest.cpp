#include <algorithm>
#include <unordered_set>

#include "aici/cfg/parser.hpp"

namespace aici::cfg {

/// The column after the lexeme if it ends here; 0 if it is not complete.
Column Engine::after_lexeme(Reading reading) {
  if (!scanner_.accepting(scanner_of(reading))) return 0;
  const auto [at, is_new] = ends_.try_emplace(reading, 0);
  if (is_new) {
    columns_->add(column_of(reading), scanner_.accepted(scanner_of(reading)));
    at->second = columns_->join();
  }
  return at->second;
}

Engine::State Engine::append_longest(Reading from, std::uint8_t byte, Scanner::State next) {
  Column column = column_of(from);
  if (next == Scanner::kDead) {
    column = after_lexeme(from);
    if (column == 0) return 0;
    next = scanner_.append(scanner_of(begin(column)), byte);
    if (next == Scanner::kDead) return 0;
  }
  const Reading reading = pack(column, next);
  return is_plain(next) || can_end(reading) ? reading : 0;
}

/// Can what is ignored follow a lexeme that goes on from here? Then anything can that the column behind it allows.
bool Engine::is_separable(Scanner::State first) {
  constexpr std::size_t kMostSeen = 256;
  if (first == Scanner::kDead || grammar_.ignored().empty()) return false;
  std::vector<Terminal> ignored = grammar_.ignored();
  std::ranges::sort(ignored);
  const Scanner::State blank = scanner_.start(ignored);
  std::vector<Scanner::State> seen{first};
  for (std::size_t at = 0; at < seen.size(); at++) {
    if (seen.size() > kMostSeen) return true;  // too far away to be looked for
    if (plain_[seen[at]] == Plain::kYes) return true;
    const bool complete = scanner_.accepting(seen[at]);
    for (unsigned byte = 0; byte < 256; byte++) {
      const Scanner::State next = scanner_.append(seen[at], static_cast<std::uint8_t>(byte));
      if (next != Scanner::kDead) {
        if (std::ranges::find(seen, next) == seen.end()) seen.push_back(next);
      } else if (complete && scanner_.append(blank, static_cast<std::uint8_t>(byte)) != Scanner::kDead) {
        return true;
      }
    }
  }
  return false;
}

/// Two lexemes that nothing stands between may be read as one, so that what the column allows can never come. Looks
/// for a text to the end.
bool Engine::can_end(Reading first) {
  constexpr std::size_t kMostSeen = 256;
  if (const auto known = can_end_.find(first); known != can_end_.end()) return known->second;
  std::vector<Reading> seen{first};
  std::unordered_set<Reading> known{first};
  const auto visit = [&](Column column, Scanner::State next) {
    if (next == Scanner::kDead) return false;
    const Reading reading = pack(column, next);
    if (is_plain(next)) return true;
    if (const auto found = can_end_.find(reading); found != can_end_.end()) return found->second;
    if (known.insert(reading).second) seen.push_back(reading);
    return seen.size() > kMostSeen;  // too far away to be looked for
  };
  for (std::size_t at = 0; at < seen.size(); at++) {
    const Column column = column_of(seen[at]), after = after_lexeme(seen[at]);
    if (after != 0 && columns_->accepting(after)) return can_end_[first] = true;
    const Scanner::State start = after != 0 ? scanner_of(begin(after)) : Scanner::kDead;
    for (unsigned byte = 0; byte < 256; byte++) {
      const auto b = static_cast<std::uint8_t>(byte);
      const Scanner::State next = scanner_.append(scanner_of(seen[at]), b);
      const bool found = next != Scanner::kDead ? visit(column, next) : visit(after, scanner_.append(start, b));
      if (found) return can_end_[first] = true;
    }
  }
  for (const Reading none : seen) can_end_[none] = false;
  return false;
}

}  // namespace aici::cfg
