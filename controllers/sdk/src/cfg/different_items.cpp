// Arrays whose items must differ. A position is alive if some text completes its item so that it differs from those
// before; the grammar promises that the array can then be completed.
#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "aici/cfg/parser.hpp"

namespace aici::cfg {
namespace {

/// Maximum number of positions to look at in a search for a completed item. A position whose search is longer counts
/// as alive, so a text may reach a dead end there. In arrays inside others there are fewer, since each step of the outer
/// search may need an inner one.
constexpr std::uint32_t kMaxSteps = 2000, kMinSteps = 16;
/// Number of positions before a position where its state is looked for.
constexpr std::size_t kLookBack = 64;

/// Returns all bytes, first those that complete most texts.
constexpr std::array<std::uint8_t, 256> bytes_to_try() {
  constexpr std::string_view kFirst = "\"]},: 1234567890.-tfnaze";
  std::array<std::uint8_t, 256> order{};
  std::array<bool, 256> used{};
  std::size_t size = 0;
  const auto add = [&](unsigned byte) {
    if (!used[byte]) order[size++] = static_cast<std::uint8_t>(byte);
    used[byte] = true;
  };
  for (const char c : kFirst) add(static_cast<std::uint8_t>(c));
  for (unsigned i = 0; i < 256; i++) add(0x20 + i < 256 ? 0x20 + i : i - 0xE0);
  return order;
}
constexpr std::array<std::uint8_t, 256> kOrder = bytes_to_try();

/// Returns whether a position is behind a blank outside of strings, which changes no value.
bool is_blank(const Arrays::Position& at) {
  const bool blank = at.byte == ' ' || at.byte == '\n' || at.byte == '\t' || at.byte == '\r';
  return blank && !at.quoted && at.before != Arrays::kNone;
}

}  // namespace

/// Returns the state of a position: after the end of the array, that of the parser.
Engine::State Engine::after(Arrays::Id position) const {
  return arrays_.at(position).left ? arrays_.at(position).state : kInArray | position;
}

Engine::State Engine::append_in_array(Reading from, std::uint8_t byte) {
  const Arrays::Id next = step(position_of(from), byte);
  return next != Arrays::kNone && lives(next) ? after(next) : 0;
}

/// Returns the position after the byte; kNone if the grammar does not allow it.
Arrays::Id Engine::step(Arrays::Id from, std::uint8_t byte) {
  if (const Arrays::Id known = arrays_.known(from, byte); known != Arrays::kNone) return known;
  array_level_++;
  const State next = append(arrays_.at(from).state, byte);
  array_level_--;
  if (next == 0) return Arrays::kNone;
  if (arrays_.size() >= kMaxPositions) {
    full_ = true;
    return Arrays::kNone;
  }
  return arrays_.add(from, byte, next);
}

/// Returns whether a position is alive, as far as this is known without a search.
bool Engine::lives_for_sure(Arrays::Id position) {
  const Arrays::Position& at = arrays_.at(position);
  if (at.life != Arrays::Life::kUnknown) return at.life == Arrays::Life::kAlive;
  // the first item cannot be equal to another, and a text without limit can become longer than those of all others
  return at.items == Arrays::kNone || loop_in_array(position).signature != 0;
}

/// Searches for a text that completes the item: a walk in depth that avoids going in circles.
bool Engine::lives(Arrays::Id first) {
  using Life = Arrays::Life;
  if (lives_for_sure(first)) return true;
  if (arrays_.at(first).life == Life::kDead) return false;
  struct Level {
    Arrays::Id position;
    unsigned tried = 0;
    /// Whether the search left out a position for one that has not been decided.
    bool open = false;
  };
  std::vector<Level> path{{first}};
  std::vector<Arrays::Id> blanks;
  // positions with the same state that differ only in blanks have the same fate: returns one that is known already
  const auto twin = [&](Arrays::Id position) {
    if (!is_blank(arrays_.at(position))) return Arrays::kNone;
    const auto before_blanks = [&](Arrays::Id id) {
      while (is_blank(arrays_.at(id))) id = arrays_.at(id).before;
      return id;
    };
    const Arrays::Id before = before_blanks(position);
    const State state = arrays_.at(position).state;
    if (arrays_.at(before).state == state) return before;
    for (const Arrays::Id other : blanks)
      if (arrays_.at(other).state == state && before_blanks(other) == before) return other;
    blanks.push_back(position);
    return Arrays::kNone;
  };
  twin(first);
  // on a circle, each round gives another text
  const std::size_t most_rounds = arrays_.count(first) + 1;
  const auto goes_round = [&](State state) {
    const std::size_t size = std::min(path.size(), std::max(kLookBack, 2 * most_rounds));
    return static_cast<std::size_t>(std::count_if(path.end() - static_cast<std::ptrdiff_t>(size), path.end(), [&](const Level& level) {
             return arrays_.at(level.position).state == state;
           })) > most_rounds;
  };
  const std::uint32_t most_steps = std::max(kMaxSteps >> std::min(4 * array_level_, 16u), kMinSteps);
  for (std::uint32_t steps = 0; !path.empty();) {
    const Arrays::Id from = path.back().position;
    if (path.back().tried == kOrder.size()) {
      const bool open = path.back().open;
      path.pop_back();
      if (open && !path.empty())
        path.back().open = true;
      else
        arrays_.at(from).life = Life::kDead;
      continue;
    }
    const Arrays::Id next = step(from, kOrder[path.back().tried++]);
    if (next == Arrays::kNone || arrays_.at(next).life == Life::kDead) continue;
    const Arrays::Id like = twin(next);
    if (like != Arrays::kNone && arrays_.at(like).life != Life::kAlive) {
      path.back().open |= arrays_.at(like).life == Life::kUnknown;
      continue;
    }
    if (like != Arrays::kNone || arrays_.item_ended(next) || lives_for_sure(next)) {
      for (const Level& level : path) arrays_.at(level.position).life = Life::kAlive;
      return true;
    }
    if (++steps > most_steps) {
      arrays_.at(first).life = Life::kAlive;
      return true;
    }
    if (!goes_round(arrays_.at(next).state)) path.push_back({next});
  }
  return false;
}

/// Only in strings, and only if the loop has no limit: then any text in it leads to a position that is alive.
Engine::Loop Engine::loop_in_array(Arrays::Id position) {
  constexpr Loop kNone{0, kUnlimited};
  const Arrays::Position at = arrays_.at(position);
  if (!at.quoted || at.escaped || at.left) return kNone;
  const Loop found = loop(at.state);
  return found.length == kUnlimited ? found : kNone;
}

}  // namespace aici::cfg
