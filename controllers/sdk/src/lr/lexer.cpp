#include "aici/detail/lr/lexer.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "aici/utf8.hpp"

namespace aici::lexer {

std::uint32_t TerminalSets::intern(std::span<const std::uint32_t> set) {
  Hasher hash;
  for (std::uint32_t word : set) hash.add(word);
  const auto same = [&](std::uint32_t i) { return std::ranges::equal((*this)[i], set); };
  std::uint32_t number = ids_.find(hash.bits(), same);
  if (number != HashIndex::kNone) return number;
  number = static_cast<std::uint32_t>(arena_.size() / words_);
  ids_.insert(hash.bits(), number);
  arena_.insert(arena_.end(), set.begin(), set.end());
  return number;
}

bool TerminalSets::meet(std::uint32_t a, std::uint32_t b) const {
  const std::uint32_t *x = arena_.data() + a * words_, *y = arena_.data() + b * words_;
  for (std::size_t i = 0; i < words_; i++)
    if (x[i] & y[i]) return true;
  return false;
}

bool Lexer::add_keyword(std::string_view text, Terminal terminal) {
  well_formed_ = well_formed_ && utf8_length(text) == text.size();
  std::uint32_t node = 1;
  for (char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(trie_.size());
      trie_[node].children.emplace_back(byte, next);
      trie_.emplace_back();
    }
    node = next;
  }
  if (trie_[node].terminal != kNoTerminal) return false;
  trie_[node].terminal = terminal;
  return true;
}

void Lexer::add_pattern(regex::Regex pattern, Terminal terminal) {
  patterns_.push_back({std::move(pattern), terminal});
}

void Lexer::finish(Terminal ignored) {
  rows_.push_back({0, 0, 0});
  table_.assign(256, kDead);
  std::vector<Part> parts;
  for (std::uint32_t i = 0; i < patterns_.size(); i++) parts.push_back({i, patterns_[i].regex.initial()});
  intern(1, parts);
  rows_[kInitial].accepted = kNoTerminal;  // a lexeme has at least one byte, even if a pattern matches the empty text
  rows_.push_back({0, 0, 0});
  table_.insert(table_.end(), 256, kDead);
  for (unsigned byte = 0; byte < 256 && ignored != kNoTerminal; byte++) {
    const State first = append(kInitial, static_cast<std::uint8_t>(byte));
    std::vector<std::uint32_t> alive = sets_.empty(), unused = alive;
    if (rows_[first].node) add_keywords(rows_[first].node, alive, unused);
    add_patterns(rows_[first], alive);
    if (alive[ignored / 32] >> ignored % 32 & 1) ignored_bytes_.push_back(static_cast<std::uint8_t>(byte));
  }
  mark_keywords(1, kInitial);
}

void Lexer::mark_keywords(std::uint32_t node, State state) {
  if (trie_[node].terminal != kNoTerminal) trie_[node].separable = can_be_separated(state);
  for (const auto& [byte, next] : trie_[node].children) mark_keywords(next, append(state, byte));
}

bool Lexer::can_be_separated(State state) {
  return std::ranges::any_of(ignored_bytes_, [&](std::uint8_t byte) {
    if (append(state, byte) != kDead) return false;
    if (!guarded(state)) return true;
    const State after = append(follow(state), byte);
    return after != kDead && !guarded(after);
  });
}

Lexer::State Lexer::follow(State before) {
  std::vector<State> guard = guards_[rows_[before].guard];
  guard.push_back(without_guard(before));
  if (guard.size() > kMaxGuard) return kDead;
  const State state = with_guard(kInitial, intern_guard(std::move(guard)));
  rows_[state].accepted = kNoTerminal;
  return state;
}

std::uint32_t Lexer::intern_guard(std::vector<State> guard) {
  std::ranges::sort(guard);
  guard.erase(std::unique(guard.begin(), guard.end()), guard.end());
  const auto known = std::ranges::find(guards_, guard) - guards_.begin();
  if (static_cast<std::size_t>(known) == guards_.size()) guards_.push_back(std::move(guard));
  full_ = full_ || guards_.size() > kMaxGuards;
  return static_cast<std::uint32_t>(known);
}

Lexer::State Lexer::with_guard(State state, std::uint32_t guard) {
  const Row from = rows_[state];
  if (from.guard == guard) return state;
  const std::vector<Part> parts(parts_.begin() + from.first, parts_.begin() + from.first + from.count);
  return intern(from.node, parts, guard);
}

std::uint32_t Lexer::child(std::uint32_t node, std::uint8_t byte) const {
  for (const auto& [label, next] : trie_[node].children)
    if (label == byte) return next;
  return 0;
}

Lexer::State Lexer::step_slowly(State state, std::uint8_t byte) {
  const Row from = rows_[state];
  std::vector<Part> parts;
  for (std::uint32_t i = 0; i < from.count; i++) {
    const Part part = parts_[from.first + i];
    const auto next = patterns_[part.pattern].regex.append(part.state, byte);
    if (!patterns_[part.pattern].regex.dead(next)) parts.push_back({part.pattern, next});
  }
  const std::uint32_t node = from.node ? child(from.node, byte) : 0;
  bool lives = node != 0 || !parts.empty();
  std::vector<State> guard;
  for (std::size_t i = 0; i < guards_[from.guard].size() && lives; i++) {
    const State longer = append(guards_[from.guard][i], byte);
    lives = rows_[longer].accepted == kNoTerminal;
    if (longer != kDead) guard.push_back(longer);
  }
  const std::uint32_t guarded = guard.empty() ? 0 : intern_guard(std::move(guard));
  State next = lives ? intern(node, parts, guarded) : kDead;
  if (from.accepted != kNoTerminal && next != kDead && rows_[next].accepted == kNoTerminal)
    next |= kOvershot;
  return table_[state << 8 | byte] = next;
}

Lexer::State Lexer::intern(std::uint32_t node, std::span<const Part> parts, std::uint32_t guard) {
  Hasher hash;
  hash.add(node ^ guard << 16);
  for (const Part& part : parts) hash.add(part.pattern), hash.add(part.state);
  const auto same = [&](std::uint32_t i) {
    const Row& row = rows_[i];
    return row.node == node && row.guard == guard &&
           std::ranges::equal(std::span(parts_).subspan(row.first, row.count), parts);
  };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  if (rows_.size() == kMaxStates) {
    full_ = true;
    return kDead;
  }
  const auto state = static_cast<State>(rows_.size());
  Row row{.node = node,
          .first = static_cast<std::uint32_t>(parts_.size()),
          .count = static_cast<std::uint32_t>(parts.size()),
          .guard = guard,
          .accepted = trie_[node].terminal};
  for (const Part& part : parts) {
    if (row.accepted != kNoTerminal) break;
    if (patterns_[part.pattern].regex.accepting(part.state)) row.accepted = patterns_[part.pattern].terminal;
  }
  rows_.push_back(row);
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  table_.insert(table_.end(), 256, kUnknown);
  ids_.insert(hash.bits(), state);
  return state;
}

void Lexer::add_keywords(std::uint32_t node, std::vector<std::uint32_t>& all,
                         std::vector<std::uint32_t>& separable) const {
  if (trie_[node].terminal != kNoTerminal) {
    add(all, trie_[node].terminal);
    if (trie_[node].separable) add(separable, trie_[node].terminal);
  }
  for (const auto& [label, next] : trie_[node].children) add_keywords(next, all, separable);
}

void Lexer::add_patterns(const Row& row, std::vector<std::uint32_t>& set) const {
  for (std::uint32_t i = 0; i < row.count; i++) add(set, patterns_[parts_[row.first + i].pattern].terminal);
}

std::uint32_t Lexer::find_reachable(State state) {
  // A keyword is accepted wherever it is complete. A pattern may lose to another one in all texts that it still
  // matches, so it counts only after it has been seen to win. Most patterns win within a byte or two.
  constexpr std::size_t kMaxSeen = 256;
  std::vector<std::uint32_t> found = sets_.empty(), separable = found, alive = found, unused = found;
  if (rows_[state].node) add_keywords(rows_[state].node, alive, unused);
  // after a guard, a keyword has to be seen, too
  if (!guarded(state)) found = alive, separable = unused;
  add_patterns(rows_[state], alive);
  std::vector<State> seen{state};
  for (std::size_t at = 0; at < seen.size() && separable != alive; at++) {
    if (seen.size() > kMaxSeen) {
      found = alive;  // too far to search: assume that all are reachable
      break;
    }
    if (const Row row = rows_[seen[at]]; row.reachable != kUnknown) {
      const auto known = sets_[row.reachable], apart = sets_[row.separable];
      for (std::size_t i = 0; i < found.size(); i++) found[i] |= known[i], separable[i] |= apart[i];
      continue;
    } else if (row.accepted != kNoTerminal) {
      add(found, row.accepted);
      if (can_be_separated(seen[at])) add(separable, row.accepted);
    }
    for (unsigned byte = 0; byte < 256 && separable != alive; byte++) {
      const State next = append(seen[at], static_cast<std::uint8_t>(byte));
      if (next != kDead && std::ranges::find(seen, next) == seen.end()) seen.push_back(next);
    }
  }
  rows_[state].separable = sets_.intern(separable);
  return rows_[state].reachable = sets_.intern(found);
}

std::vector<Lexer::State> Lexer::next_lexemes(State state) {
  std::vector<State> found;
  for (unsigned byte = 0; byte < 256; byte++) {
    const State next = step(state, static_cast<std::uint8_t>(byte));
    if (next != kDead && (next & kOvershot) == 0) continue;
    const State start = next == kDead && !guarded(state) ? kInitial : follow(state);
    const State first = append(start, static_cast<std::uint8_t>(byte));
    if (first != kDead && std::ranges::find(found, first) == found.end()) found.push_back(first);
  }
  return found;
}

std::optional<std::vector<Lexer::Ending>> Lexer::endings(State state) {
  constexpr std::size_t kMaxSeen = 1024;
  std::vector<Ending> found;
  std::vector<State> seen{state};
  for (std::size_t at = 0; at < seen.size(); at++) {
    if (rows_[seen[at]].accepted != kNoTerminal) {
      Ending ending{rows_[seen[at]].accepted, next_lexemes(seen[at])};
      if (std::ranges::find(found, ending) == found.end()) found.push_back(std::move(ending));
    }
    for (unsigned byte = 0; byte < 256; byte++) {
      const State next = append(seen[at], static_cast<std::uint8_t>(byte));
      if (next != kDead && std::ranges::find(seen, next) == seen.end()) seen.push_back(next);
      if (seen.size() > kMaxSeen) return std::nullopt;
    }
  }
  return found;
}

Signature Lexer::loop_signature(State state, std::uint32_t wanted, std::uint32_t* length) {
  // Any text that keeps a wanted pattern alive is fine, unless an unwanted pattern before it may take the lexeme.
  // Keywords cannot take it, since the text that they are part of continues.
  const Row& row = rows_[state];
  Signature best = 0;
  if (guarded(state)) return best;
  for (std::uint32_t i = 0; i < row.count; i++) {
    const Part part = parts_[row.first + i];
    Pattern& pattern = patterns_[part.pattern];
    if (!sets_.has(wanted, pattern.terminal)) break;
    const Signature found = pattern.regex.loop_signature(part.state);
    const std::uint32_t bytes = pattern.regex.loop_length(part.state);
    // where the pattern must end, the lexeme may turn out to be a keyword
    if (std::popcount(found) <= std::popcount(best) || (bytes != kUnlimited && row.node)) continue;
    best = found;
    *length = bytes;
  }
  return best;
}

const char* Lexer::failure() const {
  if (full_) return "the lexer of the grammar has too many states";
  for (const Pattern& pattern : patterns_)
    if (const char* problem = pattern.regex.failure()) return problem;
  return nullptr;
}

}  // namespace aici::lexer
