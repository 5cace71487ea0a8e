#include "aici/detail/cfg/scanner.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace aici::cfg {

Scanner::Scanner(Terminals* terminals) : terminals_(terminals) {
  // Reserved memory that is not written costs nothing; a table that moves is written again, page by page. Blocks this
  // large leave the heap's first chunk to others: while it lasts, guests of all grammars have memories of one size, so
  // that a spare one can take any other's place.
  table_.reserve(kUsual << 8), rows_.reserve(2 * kUsual), parts_.reserve(kUsual);
  rows_.push_back({0, 0, 0, 0, false, false});
  table_.assign(256, kDead);
  notes_.reserve(kUsual);
  notes_.push_back(0);
}

Scanner::State Scanner::intern(bool fresh, std::span<const Part> parts, std::span<const Terminal> accepted) {
  Hasher hash;
  hash.add(fresh);
  for (const Part& part : parts) hash.add(part.terminal), hash.add(part.state);
  for (const Terminal terminal : accepted) hash.add(~terminal);
  const auto same = [&](std::uint32_t i) {
    const Row& row = rows_[i];
    return row.fresh == fresh && std::ranges::equal(std::span(parts_).subspan(row.first, row.count), parts) &&
           std::ranges::equal(this->accepted(i), accepted);
  };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  if (rows_.size() >= kMost) {
    full_ = true;
    return kDead;
  }
  const auto state = static_cast<State>(rows_.size());
  const bool longest = !accepted.empty() ? terminals_->longest(accepted.front())
                                         : !parts.empty() && terminals_->longest(parts.front().terminal);
  rows_.push_back({static_cast<std::uint32_t>(parts_.size()), static_cast<std::uint32_t>(parts.size()),
                   static_cast<std::uint32_t>(accepted_.size()), static_cast<std::uint32_t>(accepted.size()), fresh,
                   longest});
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  accepted_.insert(accepted_.end(), accepted.begin(), accepted.end());
  table_.insert(table_.end(), 256, kUnknown);
  notes_.push_back(0);
  ids_.insert(hash.bits(), state);
  return state;
}

Scanner::State Scanner::start(std::span<const Terminal> terminals) {
  next_.clear();
  for (const Terminal terminal : terminals) next_.push_back({terminal, terminals_->initial(terminal)});
  return intern(true, next_, {});
}

/// Fills in a row as far as it is easy: most bytes cannot follow within a name or a number. Where known names differ from
/// an unknown one, its row has the same states for all other bytes.
void Scanner::narrow(State state) {
  ByteSet next, differ;
  for (const Part& part : std::span(parts_).subspan(rows_[state].first, rows_[state].count))
    terminals_->add_next_bytes(part.terminal, part.state, next);
  const State similar = without_names(state, differ);
  std::uint16_t* const row = table_.data() + (state << 8);
  const std::uint16_t* const known = table_.data() + (similar << 8);
  if (similar == kDead && next.is_most()) {
    (~next).for_each([&](std::uint8_t b) { row[b] = kDead; });
  } else {
    std::fill_n(row, 256, std::uint16_t{kDead});
    next.for_each([&](std::uint8_t b) { row[b] = similar != kDead && !differ.has(b) ? known[b] : kUnknown; });
  }
  rows_[state].narrow = true;
  rows_[state].next = next;
}

Scanner::State Scanner::append_slowly(State state, std::uint8_t byte) {
  if (!next_bytes(state).has(byte)) return kDead;
  next_.clear(), next_accepted_.clear();
  const Row from = rows_[state];
  for (std::uint32_t i = 0; i < from.count; i++) {
    const Part part = parts_[from.first + i];
    const Terminals::State next = terminals_->append(part.terminal, part.state, byte);
    if (next == Terminals::kDead) continue;
    if (terminals_->accepting(part.terminal, next)) next_accepted_.push_back(part.terminal);
    if (!terminals_->ended(part.terminal, next)) next_.push_back({part.terminal, next});
  }
  const auto early = [&](Terminal terminal) { return terminals_->early(terminal); };
  if (from.longest && std::ranges::any_of(next_accepted_, early)) {
    // the lexeme ends here for all terminals
    std::erase_if(next_accepted_, [&](Terminal terminal) { return !early(terminal); });
    next_.clear();
  }
  State next = kDead;
  if (!next_.empty() || !next_accepted_.empty()) next = intern(false, next_, next_accepted_);
  table_[state << 8 | byte] = static_cast<std::uint16_t>(next);
  return next;
}

bool Scanner::reads(State state, Terminal terminal) const {
  // both are in the order of the terminals
  const auto parts = std::span(parts_).subspan(rows_[state].first, rows_[state].count);
  return std::ranges::binary_search(accepted(state), terminal) ||
         std::ranges::binary_search(parts, terminal, {}, &Part::terminal);
}

float Scanner::temperature(State state) const {
  float highest = 0;
  for (const Part& part : std::span(parts_).subspan(rows_[state].first, rows_[state].count)) {
    const float one = terminals_->temperature(part.terminal);
    if (one != 0 && (highest == 0 || one > highest)) highest = one;
  }
  return highest;
}

Scanner::State Scanner::silent(State state) {
  if (!accepting(state)) return state;
  const Row& row = rows_[state];
  next_.assign(parts_.begin() + row.first, parts_.begin() + row.first + row.count);
  return intern(false, next_, {});
}

Scanner::State Scanner::without_names(State state, ByteSet& differ) {
  const Row row = rows_[state];
  if (row.longest || accepting(state)) return kDead;
  next_.clear();
  bool unknown = false;
  for (std::uint32_t i = 0; i < row.count; i++) {
    const Part part = parts_[row.first + i];
    const Terminals::State next = terminals_->without_names(part.terminal, part.state, differ);
    if (next == Terminals::kDead) continue;
    unknown = unknown || next != part.state;
    next_.push_back({part.terminal, next});
  }
  return unknown ? intern(false, next_, {}) : kDead;
}

Scanner::State Scanner::twin(State state, std::uint32_t* length) {
  constexpr std::uint32_t kLeastAtStart = 16, kLeast = 2;
  const Row row = rows_[state];
  if (row.count != 1 || row.longest || accepting(state)) return state;
  const Part part = parts_[row.first];
  const Terminals::Place twin = terminals_->twin({part.terminal, part.state}, length);
  // few tokens begin a terminal, or have one character: a walk finds those faster
  if (twin.terminal == part.terminal || *length < (row.fresh ? kLeastAtStart : kLeast)) return state;
  const Part made{twin.terminal, twin.state};
  return intern(row.fresh, {&made, 1}, {});
}

void Scanner::find_loop(State state) {
  Row& row = rows_[state];
  row.has_loop = true;
  const auto parts = std::span(parts_).subspan(row.first, row.count);
  // a terminal that ends early may end the others
  if (row.longest && std::ranges::any_of(parts, [&](const Part& it) { return terminals_->early(it.terminal); })) return;
  for (std::uint32_t i = 0; i < row.count; i++) {
    const Part part = parts_[row.first + i];
    std::uint32_t length = kUnlimited;
    const Signature found = terminals_->loop_signature(part.terminal, part.state, &length);
    if (std::popcount(found) > std::popcount(row.loop)) row.loop = found, row.loop_length = length;
    const Signature multibyte = terminals_->multibyte_signature(part.terminal, part.state);
    if (std::popcount(multibyte) > std::popcount(row.multibyte)) row.multibyte = multibyte;
  }
}

void Scanner::keep_only(std::span<State> kept) {
  Scanner fresh(terminals_);
  for (State& state : kept) {
    if (state == kDead) continue;
    const Row& row = rows_[state];
    state = fresh.intern(row.fresh, std::span(parts_).subspan(row.first, row.count), accepted(state));
  }
  *this = std::move(fresh);
}

}  // namespace aici::cfg
