// The deterministic lexer of an LR(1) grammar, and the parser that reads its tokens.
#include "aici/detail/lr/parser.hpp"

#include <algorithm>
#include <bit>
#include <unordered_set>
#include <utility>

#include "aici/text.hpp"

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

namespace aici::lr {

using lexer::Lexer;
using lexer::kNoTerminal;

Stacks::Stacks(const Tables* tables, lexer::TerminalSets* sets, lexer::Terminal ignored)
    : tables_(tables), sets_(sets), ignored_(ignored) {
  nodes_.push_back({kNone, 0});
  push(kNone, 1);
}

Stacks::Stack Stacks::push(Stack below, std::uint32_t state) {
  Hasher hash;
  hash.add(below), hash.add(state);
  const auto same = [&](std::uint32_t i) { return nodes_[i].below == below && nodes_[i].state == state; };
  const std::uint32_t known = ids_.find(hash.bits(), same);
  if (known != HashIndex::kNone) return known;
  const auto stack = static_cast<Stack>(nodes_.size());
  nodes_.push_back({below, static_cast<std::uint16_t>(state)});
  ids_.insert(hash.bits(), stack);
  return stack;
}

Stacks::Stack Stacks::advance(Stack stack, Terminal terminal) {
  if (terminal == ignored_) return stack;
  // tokens that end the same lexeme are adjacent in the trie
  if (last_.from == stack && last_.terminal == terminal) return last_.to;
  Hasher hash;
  hash.add(stack), hash.add(terminal);
  const auto same = [&](std::uint32_t i) { return steps_[i].from == stack && steps_[i].terminal == terminal; };
  const std::uint32_t known = step_ids_.find(hash.bits(), same);
  if (known != HashIndex::kNone) return (last_ = steps_[known]).to;
  const Stack to = take(stack, terminal);
  step_ids_.insert(hash.bits(), static_cast<std::uint32_t>(steps_.size()));
  steps_.push_back(last_ = {stack, terminal, to});
  return to;
}

Stacks::Stack Stacks::take(Stack stack, Terminal terminal) {
  if (!possible(stack, terminal)) return kNone;
  for (;;) {
    const Action action = tables_->action(nodes_[stack].state, terminal);
    if (action > 0) return push(stack, static_cast<std::uint32_t>(action));
    const auto production = static_cast<std::uint32_t>(-action);
    for (std::uint32_t i = tables_->length[production]; i != 0; i--) stack = nodes_[stack].below;
    stack = push(stack, tables_->go(nodes_[stack].state, tables_->left[production]));
  }
}

/// Returns whether the terminal can be read. Merged states may reduce at a terminal that is not possible below, so this
/// simulates the reductions; `scratch_` has the states that they push.
bool Stacks::possible(Stack stack, Terminal terminal) {
  std::uint32_t top = nodes_[stack].state;
  scratch_.clear();
  // A conflict with a bad resolution may reduce forever. Any other reduction shortens the stack, or is one of the few
  // that push something empty.
  for (std::size_t left = 2 * nodes_.size() + 1000; left != 0; left--) {
    const Action action = tables_->action(top, terminal);
    if (action > 0 || action == kAccept) return true;
    if (action == 0) return false;
    const auto production = static_cast<std::uint32_t>(-action);
    std::uint32_t count = tables_->length[production];
    for (; count != 0 && !scratch_.empty(); count--) scratch_.pop_back();
    for (; count != 0; count--) stack = nodes_[stack].below;
    const std::uint32_t below = scratch_.empty() ? nodes_[stack].state : scratch_.back();
    top = tables_->go(below, tables_->left[production]);
    scratch_.push_back(static_cast<std::uint16_t>(top));
  }
  return false;
}

std::uint32_t Stacks::find_viable(Stack stack) {
  std::vector<std::uint32_t> set = sets_->empty();
  for (Terminal t = 1; t < tables_->num_terminals; t++)
    if (t == ignored_ || possible(stack, t)) lexer::add(set, t);
  return nodes_[stack].viable = sets_->intern(set);
}

Stacks::Stack Stacks::keep_only(Stack stack) {
  std::vector<std::uint16_t> states;
  for (; stack != kInitial; stack = nodes_[stack].below) states.push_back(nodes_[stack].state);
  nodes_.resize(1);
  ids_.clear(), steps_.clear(), step_ids_.clear(), last_ = {};
  stack = push(kNone, 1);
  for (std::size_t i = states.size(); i != 0; i--) stack = push(stack, states[i - 1]);
  return stack;
}

namespace {

/// Maximum number of different loops. Grammars have a few dozen.
constexpr std::size_t kMaxLoops = 1024;
/// Maximum number of lists of readings, and of readings in a list.
constexpr std::size_t kMaxSeveral = 4096, kMaxReadings = 16;

}  // namespace

Parser::Parser(Tables tables, Lexer lexer, lexer::Terminal ignored)
    : own_(std::make_unique<Own>(std::move(tables), std::move(lexer), ignored)) {}

Parser::Own::Own(Tables tables, Lexer lexer, lexer::Terminal ignored)
    : tables_(std::move(tables)),
      lexer_(std::move(lexer)),
      stacks_(&tables_, &lexer_.sets(), ignored),
      ignored_(ignored) {}

Parser::Own::Outlook& Parser::Own::find_outlook(std::uint32_t viable, Lexer::State lexer) {
  if ((lexer & Lexer::kOvershot) != 0) return overshot_;
  // Where ignored text can follow, anything can: blanks end the lexeme, and the next lexeme begins after them.
  const std::uint32_t reachable = lexer_.reachable(lexer), separable = lexer_.separable(lexer);
  if (viable >= outlooks_.size()) outlooks_.resize(viable + 1);
  if (lexer >= outlooks_[viable].size()) outlooks_[viable].resize(lexer_.num_states());
  const lexer::TerminalSets& sets = lexer_.sets();
  Outlook& found = outlooks_[viable][lexer];
  found.known = !sets.meet(reachable, viable)  ? Known::kDead
                : sets.meet(separable, viable) ? Known::kAlive
                                               : Known::kDependsOnStack;
  found.read = lexer_.guarded(lexer) ? Known::kSeveral : found.known;
  return found;
}

bool Parser::Own::alive(Stacks::Stack stack, Lexer::State lexer) {
  lexer = lexer_.without_guard(lexer);
  const Known known = at_once(stack, lexer);
  return known == Known::kDependsOnStack ? search(pack(stack, lexer)) : known == Known::kAlive;
}

const std::optional<std::vector<Lexer::Ending>>& Parser::Own::endings(Lexer::State lexer) {
  auto known = endings_.find(lexer);
  if (known == endings_.end()) known = endings_.emplace(lexer, lexer_.endings(lexer)).first;
  return known->second;
}

/// Returns whether a text can be completed from this state. Two adjacent lexemes without blanks between them may be
/// read as one, so a text that the parser allows may be impossible. This searches for a complete text, lexeme by
/// lexeme. If that is too far to search, it assumes that there is one.
bool Parser::Own::search(State first) {
  constexpr std::size_t kMaxSeen = 256;  // about 2 ms
  struct Seen {
    State state;
    std::size_t from;
  };
  if (const auto found = has_end_.find(first); found != has_end_.end()) return found->second;
  std::vector<Seen> seen{{first, 0}};
  std::unordered_set<State> known{first};
  const auto success = [&](std::size_t at) {
    for (; at != 0; at = seen[at].from) has_end_[seen[at].state] = true;
    return has_end_[first] = true;
  };
  for (std::size_t at = 0; at < seen.size(); at++) {
    const auto& all = endings(seen[at].state & kLexerMask);
    if (!all) return success(at);
    for (const Lexer::Ending& ending : *all) {
      const Stacks::Stack stack = stacks_.advance(seen[at].state >> kLexerBits, ending.terminal);
      if (stack == Stacks::kNone) continue;
      if (stacks_.accepting(stack)) return success(at);
      for (const Lexer::State lexer : ending.next) {
        const Known here = at_once(stack, lexer);
        if (here == Known::kDead) continue;
        const State next = pack(stack, lexer);
        const auto found = has_end_.find(next);
        if (here == Known::kAlive || (found != has_end_.end() && found->second)) return success(at);
        if (stack >= kMaxStacks - 1 || seen.size() == kMaxSeen) return success(at);
        if (found == has_end_.end() && known.insert(next).second) seen.push_back({next, at});
      }
    }
  }
  for (const Seen& none : seen) has_end_[none.state] = false;
  return false;
}

/// Returns the stack if the lexeme ends here; kNone if it is not complete or not allowed.
Stacks::Stack Parser::Own::after_lexeme(State state) {
  const lexer::Terminal terminal = lexer_.accepted(state & kLexerMask);
  return terminal == kNoTerminal ? Stacks::kNone : stacks_.advance(state >> kLexerBits, terminal);
}

Parser::State Parser::Own::append(State state, std::uint8_t byte) {
  if (state == 0) return 0;
  Stacks::Stack stack = state >> kLexerBits;
  Lexer::State next = lexer_.step(state & kLexerMask, byte);
  if (next == Lexer::kDead) {
    if (is_several(state) || lexer_.guarded(state & kLexerMask)) return append_several(state, byte);
    stack = after_lexeme(state);
    if (stack == Stacks::kNone) return 0;
    if (stack >= kMaxStacks) {
      full_ = true;
      return 0;
    }
    next = lexer_.append(Lexer::kInitial, byte);
    if (next == Lexer::kDead) return 0;
  }
  const Known known = outlook(stacks_.viable(stack), next).read;
  if (known == Known::kAlive) return pack(stack, next);
  if (known == Known::kDead) return 0;
  if (known == Known::kSeveral) return append_several(state, byte);
  return search(pack(stack, next)) ? pack(stack, next) : 0;
}

/// Adds the states after the byte. Where the lexeme was complete before it and is not complete with it, there are two:
/// one in which it goes on, and one in which it has ended, guarded by the other one.
void Parser::Own::read(State state, std::uint8_t byte, std::vector<State>& readings) {
  const Lexer::State before = state & kLexerMask, next = lexer_.append(before, byte);
  const auto add = [&](Stacks::Stack stack, Lexer::State lexer) {
    if (lexer != Lexer::kDead && std::ranges::find(readings, pack(stack, lexer)) == readings.end())
      readings.push_back(pack(stack, lexer));
  };
  if (next != Lexer::kDead && alive(state >> kLexerBits, next)) add(state >> kLexerBits, next);
  const Stacks::Stack after = lexer_.accepted(next) == kNoTerminal ? after_lexeme(state) : Stacks::kNone;
  full_ = full_ || after >= kMaxStacks;
  if (after == Stacks::kNone || full_) return;
  // most bytes begin nothing there, and a guard costs a state
  const Lexer::State first = lexer_.append(Lexer::kInitial, byte);
  if (first != Lexer::kDead && alive(after, first)) add(after, lexer_.append(lexer_.follow(before), byte));
}

/// Reads a byte where there are several readings, or may be. If all are guarded, their guards have to permit the end of
/// a text.
Parser::State Parser::Own::append_several(State state, std::uint8_t byte) {
  std::vector<State> found;
  const auto before = readings(state);
  for (const State one : std::vector<State>(before.begin(), before.end())) read(one, byte, found);
  if (std::ranges::all_of(found, [&](State it) { return lexer_.guarded(it & kLexerMask); }))
    std::erase_if(found, [&](State it) { return !search(it); });
  if (found.size() <= 1) return found.empty() ? 0 : found.front();
  const auto known = static_cast<std::size_t>(std::ranges::find(several_, found) - several_.begin());
  if (known == several_.size()) {
    if (known >= kMaxSeveral || found.size() > kMaxReadings) {
      full_ = true;
      return 0;
    }
    several_.push_back(std::move(found));
  }
  return pack(static_cast<Stacks::Stack>(known), Lexer::kUnused);
}

bool Parser::Own::complete(State state) {
  if (state == 0) return false;
  if (is_several(state)) return std::ranges::any_of(readings(state), [&](State one) { return complete(one); });
  if ((state & kLexerMask) == Lexer::kInitial) return stacks_.accepting(state >> kLexerBits);
  const Stacks::Stack stack = after_lexeme(state);
  return stack != Stacks::kNone && stacks_.accepting(stack);
}

std::uint16_t Parser::Own::find_loop(std::uint32_t viable, Lexer::State lexer) {
  Loop found{0, kUnlimited};
  found.signature = lexer_.loop_signature(lexer, viable, &found.length);
  const auto known = std::find(loops_.begin() + 1, loops_.end(), found);
  const auto number = static_cast<std::uint16_t>(known - loops_.begin());
  if (known != loops_.end()) return number;
  if (loops_.size() > kMaxLoops) return 1;  // the loop that holds for no text
  loops_.push_back(found);
  return number;
}

const Parser::Loop& Parser::Own::loop(std::uint32_t viable, Lexer::State lexer) {
  Outlook& here = outlook(viable, lexer);
  if (here.loop == 0) here.loop = find_loop(viable, lexer);
  return loops_[here.loop];
}

Parser::State Parser::Own::restart(State state, std::uint8_t byte) {
  if (state == 0 || is_several(state) || lexer_.guarded(state & kLexerMask)) return 0;
  if (lexer_.append(state & kLexerMask, byte) != Lexer::kDead) return 0;
  const Stacks::Stack stack = after_lexeme(state);
  return stack == Stacks::kNone || stack >= kMaxStacks ? 0 : pack(stack, Lexer::kInitial);
}

std::uint32_t Parser::Own::append_inside(std::uint32_t state, std::uint8_t byte) {
  if (state == 0) return 0;
  const std::uint32_t viable = state >> kLexerBits;
  const Lexer::State lexer = state & kLexerMask;
  Lexer::State next = lexer_.step(lexer, byte);
  if (next == Lexer::kDead) {
    const lexer::Terminal terminal = lexer_.accepted(lexer);
    if (terminal == kNoTerminal || !lexer_.sets().has(viable, terminal)) return 0;
    if (terminal != ignored_ || lexer_.guarded(lexer)) return Inner::kLeaves;
    next = lexer_.append(Lexer::kInitial, byte);
    if (next == Lexer::kDead) return 0;
  }
  const Known known = outlook(viable, next).read;
  if (known == Known::kAlive) return viable << kLexerBits | next;
  return known == Known::kDead ? 0 : Inner::kLeaves;
}

bool Parser::Own::compact(State* state) {
  constexpr std::size_t kKept = 1 << 14;
  if (*state == 0 || is_several(*state) || (stacks_.size() < kKept && several_.size() < kMaxSeveral / 4)) return false;
  has_end_.clear(), several_.clear();
  // before the first byte, everything that is missing can be built again
  if (*state == pack(Stacks::kInitial, Lexer::kInitial)) full_ = false;
  *state = pack(stacks_.keep_only(*state >> kLexerBits), *state & kLexerMask);
  return true;
}

const char* Parser::Own::failure() const {
  return full_ ? "the parser of the grammar has too many stacks for one mask" : lexer_.failure();
}

}  // namespace aici::lr
