// Lexemes that end where no other byte continues them, as in a lexer.
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
  if (scanner_.guarded(scanner_of(from)) || scanner_.overshot(next)) {
    std::vector<Reading> readings;
    read_lexeme(from, byte, readings);
    return settle(readings);
  }
  if (next == Scanner::kDead) {
    const Column column = after_lexeme(from);
    return column != 0 ? append(begin(column), byte) : 0;
  }
  const Reading reading = pack(column_of(from), next);
  return goes_on_from(reading) ? reading : 0;
}

/// Adds the readings after the byte. Where the lexeme was complete before it and is not complete with it, there are two:
/// one in which it goes on, and one in which it has ended, guarded by the other one.
void Engine::read_lexeme(Reading from, std::uint8_t byte, std::vector<Reading>& readings) {
  const Scanner::State before = scanner_of(from), next = scanner_.append(before, byte);
  if (next != Scanner::kDead && goes_on_from(pack(column_of(from), next))) readings.push_back(pack(column_of(from), next));
  const Column column = scanner_.accepting(next) ? 0 : after_lexeme(from);
  if (column == 0) return;
  const State start = begin(column);
  const auto begun = this->readings(start);
  for (const Reading fresh : std::vector<Reading>(begun.begin(), begun.end())) {
    // most bytes begin nothing there, and a guard costs a state
    Scanner::State first = fresh != 0 ? scanner_.append(scanner_of(fresh), byte) : Scanner::kDead;
    if (first == Scanner::kDead || (is_longest(fresh) && !goes_on_from(pack(column, first)))) continue;
    const Reading guarded = pack(column, scanner_.follow(scanner_of(fresh), before));
    first = scanner_.append(scanner_of(guarded), byte);
    if (first == Scanner::kDead) continue;
    const State one = is_longest(fresh) ? pack(column, first) : append_one(guarded, byte, first);
    const auto found = this->readings(one);
    if (one != 0) readings.insert(readings.end(), found.begin(), found.end());
  }
}

/// Returns whether a text can be completed from this reading if its guard permits.
bool Engine::goes_on_from(Reading reading) {
  const Scanner::State scanner = scanner_.without_guard(scanner_of(reading));
  return ends_surely(scanner) || can_end(pack(column_of(reading), scanner));
}

/// Returns the state of these readings. If all of them are guarded, their guards have to permit the end of a text.
Engine::State Engine::settle(std::vector<Reading>& readings) {
  if (scanner_.any_guarded() && std::ranges::all_of(readings, [&](Reading it) { return is_guarded(it); }))
    std::erase_if(readings, [&](Reading it) { return is_longest(it) && !can_end(it); });
  return state_of(readings);
}

/// Returns whether a text of the rules can be completed from this state of a lexeme, in all columns.
bool Engine::ends_surely(Scanner::State scanner) {
  return scanner_.overshot(scanner) ? has_exit(scanner) : is_plain(scanner);
}

bool Engine::has_exit(Scanner::State scanner) {
  return separable_ && !scanner_.guarded(scanner) && exit_of(scanner) != Scanner::kDead;
}

/// Replaces readings of lexemes that end before this byte by readings of what follows. Everything that begins at this
/// place, in all readings, is joined in one column, so that no lexeme of it continues where another one ends.
void Engine::end_lexemes(std::vector<Reading>& readings, std::uint8_t byte) {
  const std::size_t ended = std::erase_if(readings, [&](Reading reading) {
    if (in_array(reading) || is_guarded(reading)) return false;
    const Scanner::State scanner = scanner_of(reading);
    if (!scanner_.longest(scanner) || !scanner_.accepting(scanner)) return false;
    if (scanner_.append(scanner, byte) != Scanner::kDead) return false;
    columns_->add(column_of(reading), scanner_.accepted(scanner));
    return true;
  });
  if (ended == 0) return;
  std::erase_if(readings, [&](Reading reading) {
    if (in_array(reading) || is_guarded(reading) || !scanner_.fresh(scanner_of(reading))) return false;
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

namespace {

/// Maximum number of states of the scanner in one search for the end of a lexeme.
constexpr std::size_t kMaxStates = 256;
/// Maximum memory of the scanner of all terminals, which limits the time as well; larger grammars take the slow way.
constexpr std::size_t kMaxOfAll = 2u << 20;
/// Number of states of such searches for all terminals together, and what each terminal has at least.
constexpr std::size_t kMaxTogether = 1u << 14, kMinStates = 16;
/// Maximum number of terminals that ignored text need not separate.
constexpr std::size_t kMaxExceptions = 8;

}  // namespace

/// Returns whether a text of the terminal in which no lexeme ends early, and after which `blank` ends the lexeme, begins
/// with a byte that ends the lexeme after the blank. If so, adds that byte to `firsts`.
bool Engine::find_separable(Scanner& all, Scanner::State start, std::uint8_t blank, Terminal terminal, ByteSet& firsts) {
  struct Visit {
    Scanner::State state;
    std::uint8_t first;
  };
  const Scanner::State after = all.append(start, blank);
  const std::size_t most = std::clamp(kMaxTogether / grammar_.terminals().size(), kMinStates, kMaxStates);
  std::vector<Visit> seen{{start, 0}};
  std::unordered_set<Scanner::State> known;
  for (std::size_t at = 0; at < seen.size() && seen.size() <= most; at++) {
    const Visit here = seen[at];
    for (unsigned i = 0; i < 256; i++) {
      const auto byte = static_cast<std::uint8_t>(i);
      if (at == 0 && all.append(after, byte) != Scanner::kDead) continue;
      const Scanner::State next = all.append(here.state, byte);
      if (next == Scanner::kDead || !all.reads(next, terminal) || !known.insert(next).second) continue;
      const std::uint8_t first = at == 0 ? byte : here.first;
      const auto accepted = all.accepted(next);
      if (std::ranges::find(accepted, terminal) != accepted.end() && all.append(next, blank) == Scanner::kDead) {
        firsts.add(first);
        return true;
      }
      seen.push_back({next, first});
    }
  }
  return false;
}

/// Returns whether a byte of ignored text separates all terminals of the grammar: each has a text that the byte ends,
/// and that can follow the byte, even if all terminals compete. Then a text of the rules can be completed wherever a
/// lexeme ends before that byte. A few terminals may be exceptions if the rules can always do without them, such as a
/// comment that is only allowed at the start. Adds the first bytes of these texts to `firsts`.
bool Engine::separates(Scanner& all, Scanner::State start, std::uint8_t blank, ByteSet& firsts) {
  std::vector<Terminal> exceptions;
  for (Terminal terminal = 0; terminal < grammar_.terminals().size(); terminal++) {
    if (!grammar_.terminals().longest(terminal) || is_ignored(terminal)) continue;
    if (all.bytes() > kMaxOfAll) return false;
    if (find_separable(all, start, blank, terminal, firsts)) continue;
    exceptions.push_back(terminal);
    if (exceptions.size() > kMaxExceptions) return false;
  }
  return exceptions.empty() || grammar_.completes_without(start_, exceptions);
}

bool Engine::is_ignored(Terminal terminal) const {
  return std::ranges::find(grammar_.ignored(), terminal) != grammar_.ignored().end();
}

/// Finds a byte of ignored text, if possible one that separates all terminals.
void Engine::find_blank() {
  std::vector<Terminal> terminals;
  for (Terminal terminal = 0; terminal < grammar_.terminals().size(); terminal++)
    if (grammar_.terminals().longest(terminal)) terminals.push_back(terminal);
  Scanner all(&grammar_.terminals());
  const Scanner::State start = all.start(terminals);
  const auto is_blank = [&](std::uint8_t byte) {
    return std::ranges::any_of(all.accepted(all.append(start, byte)), [&](Terminal it) { return is_ignored(it); });
  };
  for (unsigned i = 0; i < 256 && !separable_; i++) {
    const auto byte = static_cast<std::uint8_t>((i + ' ') % 256);
    if (!is_blank(byte)) continue;
    blank_ = byte, firsts_ = {};
    separable_ = separates(all, start, byte, firsts_);
  }
  if (blank_) blanks_.push_back(*blank_);
  // the end of a line also ends lexemes that extend over blanks, such as comments
  ByteSet firsts;
  if (separable_ && *blank_ != '\n' && is_blank('\n') && separates(all, start, '\n', firsts)) blanks_.push_back('\n');
}

/// Returns the next state of the scanner in which a lexeme is complete and ends before the blank, or before whatever
/// may follow; kDead if there is none nearby.
Scanner::State Engine::exit_of(Scanner::State first) {
  if (first == Scanner::kDead || !blank_) return Scanner::kDead;
  if (const auto known = exits_.find(first); known != exits_.end()) return known->second;
  const auto ends = [&](Scanner::State state) {
    const auto ends_before = [&](std::uint8_t byte) { return scanner_.append(state, byte) == Scanner::kDead; };
    if (!scanner_.accepting(state)) return false;
    if (std::ranges::any_of(blanks_, ends_before)) return true;
    bool all = separable_;
    firsts_.for_each([&](std::uint8_t byte) { all = all && ends_before(byte); });
    return all;
  };
  std::vector<Scanner::State> seen{first};
  for (std::size_t at = 0; at < seen.size() && seen.size() <= kMaxStates; at++) {
    const Scanner::State state = seen[at];
    if (const auto known = exits_.find(state); known != exits_.end()) {
      if (known->second != Scanner::kDead) return exits_[first] = known->second;
      continue;
    }
    if (ends(state)) return exits_[first] = state;
    for (unsigned i = 0; i < 256; i++) {
      const Scanner::State next = scanner_.append(state, static_cast<std::uint8_t>(i));
      if (next != Scanner::kDead && std::ranges::find(seen, next) == seen.end()) seen.push_back(next);
    }
  }
  if (seen.size() <= kMaxStates)
    for (const Scanner::State state : seen) exits_[state] = Scanner::kDead;
  return exits_[first] = Scanner::kDead;
}

/// Returns whether a text can be completed from this reading. Two adjacent lexemes may be read as one, and a lexeme may
/// compete with another that never ends, so a text that the column allows may be impossible. This searches for a
/// complete text.
bool Engine::can_end(Reading first) {
  if (const auto known = can_end_.find(first); known != can_end_.end()) return known->second;
  const Scanner::State exit = is_guarded(first) ? Scanner::kDead : exit_of(scanner_of(first));
  if (exit != Scanner::kDead) {
    // the search from the blank that follows serves all lexemes before it
    const Column after = after_lexeme(pack(column_of(first), exit));
    const Scanner::State blank = after != 0 ? scanner_.append(starts(after).lexemes, *blank_) : Scanner::kDead;
    const Reading spaced = pack(after, blank);
    if (blank != Scanner::kDead && spaced != first && search_end(spaced)) return can_end_[first] = true;
  }
  return search_end(first);
}

bool Engine::search_end(Reading first) {
  constexpr std::size_t kMaxSeen = 512, kMaxBytes = 4u << 20;
  struct Visit {
    Reading reading;
    std::size_t before;
  };
  if (const auto known = can_end_.find(first); known != can_end_.end()) return known->second;
  std::vector<Visit> seen{{first, 0}};
  std::unordered_set<Reading> known{first};
  std::size_t at = 0;
  // if that is too far to search, the answer is yes; an ambiguous text has large columns
  const auto is_far = [&, most = columns_->bytes() + kMaxBytes] {
    return seen.size() > kMaxSeen || columns_->bytes() > most || scanner_.crowded();
  };
  const auto visit = [&](Column column, Scanner::State next) {
    if (next == Scanner::kDead) return false;
    const Reading reading = pack(column, next);
    if (ends_surely(next)) return true;
    if (const auto found = can_end_.find(reading); found != can_end_.end()) return found->second;
    if (known.insert(reading).second) seen.push_back({reading, at});
    return is_far();
  };
  const auto found_end = [&] {
    for (std::size_t i = at; i != 0; i = seen[i].before) can_end_[seen[i].reading] = true;
    return can_end_[first] = true;
  };
  for (; at < seen.size(); at++) {
    const Reading reading = seen[at].reading;
    const Column column = column_of(reading), after = after_lexeme(reading);
    if (after != 0 && columns_->accepting(after)) return found_end();
    const auto [calls, lexemes] = after != 0 ? starts(after) : Starts{};
    // after a lexeme that might have gone on; not known yet
    Scanner::State guarded = Scanner::kDead;
    bool called = false;
    for (unsigned byte = 0; byte < 256; byte++) {
      const auto b = static_cast<std::uint8_t>(byte);
      const Scanner::State next = scanner_.append(scanner_of(reading), b);
      bool found = next != Scanner::kDead && visit(column, next);
      if (next == Scanner::kDead && !is_guarded(reading)) {
        found = visit(after, scanner_.append(lexemes, b));
      } else if (!found && lexemes != Scanner::kDead && !scanner_.accepting(next)) {
        if (guarded == Scanner::kDead) guarded = scanner_.follow(lexemes, scanner_of(reading));
        found = visit(after, scanner_.append(guarded, b));
      }
      if (found) return found_end();
      called = called || (!scanner_.accepting(next) && scanner_.append(calls, b) != Scanner::kDead);
    }
    // a called rule whose lexemes may be anywhere ends, and then what follows the call begins
    for (Column following = called ? columns_->after_calls(after) : 0; following != 0; following = columns_->after_calls(following)) {
      if (columns_->accepting(following) || is_far()) return found_end();
      const Reading start = pack(following, starts(following).lexemes);
      if (!known.insert(start).second) break;
      seen.push_back({start, at});
    }
  }
  for (const Visit& none : seen) can_end_[none.reading] = false;
  return false;
}

/// Returns whether a text can be completed after any bytes of these kinds that continue the lexeme. Of column 0:
/// whatever the column is.
bool Engine::loop_lives(Reading first, Signature signature) {
  if (const auto known = loops_.find(first); known != loops_.end()) return known->second == signature;
  const Column column = column_of(first);
  std::vector<Scanner::State> seen{scanner_of(first)};
  for (std::size_t at = 0; at < seen.size(); at++)
    for (unsigned i = 0; i < 256; i++) {
      const auto byte = static_cast<std::uint8_t>(i);
      if ((grammar_.terminals().kinds(byte) & signature) == 0) continue;
      const Scanner::State next = scanner_.append(seen[at], byte);
      if (next == Scanner::kDead || std::ranges::find(seen, next) != seen.end()) continue;
      if (seen.size() > kMaxStates || !(ends_surely(next) || (column != 0 && can_end(pack(column, next))))) {
        loops_[first] = 0;
        return false;
      }
      seen.push_back(next);
    }
  for (const Scanner::State state : seen) {
    std::uint32_t length = kUnlimited;
    if (scanner_.loop_signature(state, &length) == signature) loops_[pack(column, state)] = signature;
  }
  return true;
}

}  // namespace aici::cfg
