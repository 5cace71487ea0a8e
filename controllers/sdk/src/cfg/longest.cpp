#include <algorithm>
#include <unordered_set>

#include "aici/cfg/parser.hpp"

namespace aici::cfg {

/// Returns the column after the lexeme if it ends here; 0 if it is not complete.
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
  if (next == Scanner::kDead) {
    const Column column = after_lexeme(from);
    return column != 0 ? append(begin(column), byte) : 0;
  }
  const Reading reading = pack(column_of(from), next);
  return is_plain(next) || can_end(reading) ? reading : 0;
}

/// Replaces readings of lexemes that end before this byte by readings of what follows. Everything that begins at this
/// place, in all readings, is joined in one column, so that no lexeme of it continues where another one ends.
void Engine::end_lexemes(std::vector<Reading>& readings, std::uint8_t byte) {
  const std::size_t ended = std::erase_if(readings, [&](Reading reading) {
    if (in_array(reading)) return false;
    const Scanner::State scanner = scanner_of(reading);
    if (!scanner_.longest(scanner) || !scanner_.accepting(scanner)) return false;
    if (scanner_.append(scanner, byte) != Scanner::kDead) return false;
    columns_->add(column_of(reading), scanner_.accepted(scanner));
    return true;
  });
  if (ended == 0) return;
  std::erase_if(readings, [&](Reading reading) {
    if (in_array(reading) || !scanner_.fresh(scanner_of(reading))) return false;
    columns_->add(column_of(reading));
    return true;
  });
  begin_joined(readings);
}

Engine::Starts Engine::starts(Column column) {
  Starts found;
  const State state = begin(column);
  for (const Reading reading : readings(state)) (is_longest(reading) ? found.lexemes : found.calls) = scanner_of(reading);
  return found;
}

/// Returns whether ignored text can follow a lexeme that continues from here. If so, everything can follow that the
/// column after the lexeme allows.
bool Engine::is_separable(Scanner::State first) {
  constexpr std::size_t kMostSeen = 256;
  if (first == Scanner::kDead || grammar_.ignored().empty()) return false;
  std::vector<Terminal> ignored = grammar_.ignored();
  std::ranges::sort(ignored);
  const Scanner::State blank = scanner_.start(ignored);
  std::vector<Scanner::State> seen{first};
  for (std::size_t at = 0; at < seen.size(); at++) {
    if (seen.size() > kMostSeen) return true;  // too far to search: assume yes
    if (plain(seen[at]) == Plain::kYes) return true;
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

/// Returns whether a text can be completed from this reading. Two adjacent lexemes may be read as one, so a text
/// that the column allows may be impossible. This searches for a complete text.
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
    return seen.size() > kMostSeen;  // too far to search: assume yes
  };
  for (std::size_t at = 0; at < seen.size(); at++) {
    const Column column = column_of(seen[at]), after = after_lexeme(seen[at]);
    if (after != 0 && columns_->accepting(after)) return can_end_[first] = true;
    const auto [calls, lexemes] = after != 0 ? starts(after) : Starts{};
    bool called = false;
    for (unsigned byte = 0; byte < 256; byte++) {
      const auto b = static_cast<std::uint8_t>(byte);
      const Scanner::State next = scanner_.append(scanner_of(seen[at]), b);
      const bool found = next != Scanner::kDead ? visit(column, next) : visit(after, scanner_.append(lexemes, b));
      if (found) return can_end_[first] = true;
      called = called || (next == Scanner::kDead && scanner_.append(calls, b) != Scanner::kDead);
    }
    // a called rule whose lexemes may be anywhere ends, and then what follows the call begins
    for (Column behind = called ? columns_->after_calls(after) : 0; behind != 0; behind = columns_->after_calls(behind)) {
      if (columns_->accepting(behind) || seen.size() > kMostSeen) return can_end_[first] = true;
      const Reading start = pack(behind, starts(behind).lexemes);
      if (!known.insert(start).second) break;
      seen.push_back(start);
    }
  }
  for (const Reading none : seen) can_end_[none] = false;
  return false;
}

}  // namespace aici::cfg
