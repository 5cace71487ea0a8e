// Arrays whose items must differ: their positions, and whether a position is alive.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "aici/cfg/parser.hpp"
#include "aici/vocabulary.hpp"

namespace aici::cfg {

namespace {

constexpr std::uint32_t kMaxDepth = 64;
/// Position::size after the name of a property.
constexpr std::uint32_t kInValue = 0xffffffff;

constexpr bool is_blank(unsigned byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

/// Mixes words of 64 bits.
struct Mixer {
  std::uint64_t state;

  void add(std::uint64_t word) {
    state = (state ^ word) * 0x9E3779B97F4A7C15ull;
    state ^= state >> 32;
    state *= 0xD6E8FEB86659FD93ull;
    state ^= state >> 29;
  }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<std::uint8_t>(c));
  }
};

/// Reads a JSON value that the grammar has already accepted.
class Hashing {
 public:
  explicit Hashing(std::string_view text) : text_(text) {}

  std::uint64_t value(std::uint32_t depth) {
    skip_blanks();
    Mixer mixer{static_cast<std::uint64_t>(peek() == '-' || (peek() >= '0' && peek() <= '9') ? '0' : peek())};
    if (peek() == '{') {
      for (const auto& [name, value] : members(depth)) mixer.add(name), mixer.add(value);
    } else if (peek() == '[') {
      at_++;
      for (skip_blanks(); at_ < text_.size() && peek() != ']'; skip_separator(',')) mixer.add(inner(depth));
      at_++;
    } else if (peek() == '"') {
      mixer.add(string());
    } else {
      const std::size_t first = at_;
      while (at_ < text_.size() && std::string_view(",]} \n\t\r").find(peek()) == std::string_view::npos) at_++;
      const std::string scalar(text_.substr(first, at_ - first));
      if (mixer.state == '0')  // -0.0 + 0.0 is 0.0
        mixer.add(std::bit_cast<std::uint64_t>(std::strtod(scalar.c_str(), nullptr) + 0.0));
    }
    return mixer.state;
  }

 private:
  using Member = std::pair<std::uint64_t, std::uint64_t>;

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (is_blank(static_cast<std::uint8_t>(peek()))) at_++;
  }
  void skip_separator(char separator) {
    skip_blanks();
    if (peek() == separator) at_++;
    skip_blanks();
  }
  std::string_view string() {
    const std::size_t first = at_++;
    while (at_ < text_.size() && peek() != '"') at_ += peek() == '\\' ? 2 : 1;
    at_++;
    return text_.substr(first, at_ - first);
  }
  /// Returns the hash of a value inside another one.
  std::uint64_t inner(std::uint32_t depth) {
    if (depth < kMaxDepth) return value(depth + 1);
    for (std::uint32_t open = 0; at_ < text_.size();) {
      if (open == 0 && (peek() == ',' || peek() == ']' || peek() == '}')) break;
      if (peek() == '"') {
        string();
        continue;
      }
      open += peek() == '[' || peek() == '{';
      open -= peek() == ']' || peek() == '}';
      at_++;
    }
    return 0;
  }
  /// Returns the members of an object by the hashes of their names. If a name occurs twice, its last value counts.
  std::vector<Member> members(std::uint32_t depth) {
    std::vector<Member> all;
    at_++;
    for (skip_blanks(); at_ < text_.size() && peek() != '}'; skip_separator(',')) {
      Mixer name{0};
      name.add(string());
      skip_separator(':');
      all.emplace_back(name.state, inner(depth));
    }
    at_++;
    std::ranges::reverse(all);
    const auto less = [](const Member& a, const Member& b) { return a.first < b.first; };
    std::ranges::stable_sort(all, less);
    all.erase(std::unique(all.begin(), all.end(), [](const Member& a, const Member& b) { return a.first == b.first; }),
              all.end());
    return all;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::uint32_t hash_of(Arrays::Id before, std::uint32_t last) {
  Hasher hash;
  hash.add(before), hash.add(last);
  return hash.bits();
}

}  // namespace

std::uint64_t hash_json(std::string_view text) { return Hashing(text).value(0); }

Arrays::Id Arrays::insert(const Position& position, bool findable) {
  const auto id = static_cast<Id>(positions_.size());
  positions_.push_back(position);
  if (findable) ids_.insert(hash_of(position.before, position.before == kNone ? position.state : position.byte), id);
  return id;
}

Arrays::Id Arrays::begin(std::uint32_t state) {
  const auto same = [&](Id id) { return at(id).before == kNone && at(id).state == state; };
  const Id found = ids_.find(hash_of(kNone, state), same);
  return found != kNone ? found : insert({.before = kNone, .state = state, .life = Life::kAlive}, true);
}

Arrays::Id Arrays::known(Id from, std::uint8_t byte) const {
  return ids_.find(hash_of(from, byte), [&](Id id) { return at(id).before == from && at(id).byte == byte; });
}

Arrays::Id Arrays::add(Id from, std::uint8_t byte, std::uint32_t state) {
  Position next = at(from);
  next.before = from, next.state = state, next.byte = byte, next.life = Life::kUnknown;
  const bool in_value = next.size == kInValue;
  if (!in_value) next.size++;
  bool ends = false;
  if (next.quoted) {
    next.quoted = next.escaped || byte != '"';
    next.escaped = !next.escaped && byte == '\\';
  } else if (byte == '"') {
    next.quoted = true;
  } else if (byte == '[' || byte == '{') {
    next.depth++;
  } else if (byte == ']' || byte == '}') {
    next.left = next.depth == 0;
    if (!next.left) next.depth--;
    ends = next.left && !in_value;
  } else if (next.depth == 0 && byte == ',' && in_value) {
    next.size = 0;
  } else {
    ends = next.depth == 0 && (byte == ',' || (byte == ':' && !in_value));
  }
  if (ends) {
    const std::string text = item(from);
    const std::uint64_t hash = hash_json(text);
    for (Id id = next.items; id != kNone; id = items_[id].before)
      if (items_[id].hash == hash) next.life = Life::kDead;
    if (next.life != Life::kDead) next.items = add_item(next.items, hash, text);
    next.size = byte == ':' ? kInValue : 0;
  }
  if (next.life != Life::kDead && (next.left || next.size == kInValue)) next.life = Life::kAlive;
  return insert(next, true);
}

Arrays::Id Arrays::add_item(Id before, std::uint64_t hash, std::string_view text) {
  const std::uint32_t number = before == kNone ? 1 : items_[before].number + 1;
  items_.push_back({before, number, hash, static_cast<std::uint32_t>(texts_.size()), static_cast<std::uint32_t>(text.size())});
  texts_ += text;
  return static_cast<Id>(items_.size() - 1);
}

std::string Arrays::item(Id id) const {
  std::string text(at(id).size == kInValue ? 0 : at(id).size, '\0');
  for (std::size_t i = text.size(); i-- > 0; id = at(id).before) text[i] = static_cast<char>(at(id).byte);
  return text;
}

Arrays::Id Arrays::copy(const Arrays& from, Id id, std::uint32_t state) {
  std::vector<Item> old;
  for (Id item = from.at(id).items; item != kNone; item = from.items_[item].before) old.push_back(from.items_[item]);
  Id items = kNone;
  for (std::size_t i = old.size(); i-- > 0;)
    items = add_item(items, old[i].hash, std::string_view(from.texts_).substr(old[i].first, old[i].size));
  // nothing is appended to the positions before: only their bytes matter
  Id before = kNone;
  const std::string text = from.item(id);
  for (std::size_t i = 0; i + 1 < text.size(); i++)
    before = insert({.before = before, .state = 0, .byte = static_cast<std::uint8_t>(text[i])}, false);
  Position copied = from.at(id);
  copied.before = before, copied.state = state, copied.items = items;
  return insert(copied, false);
}

// A position is alive if some text completes its item so that it differs from those before; the grammar promises that
// the array can then be completed.

namespace {

/// Maximum number of positions to look at in a search for a completed item. A position whose search is longer counts
/// as alive, so a text may reach a dead end there. In arrays inside others there are fewer, since each step of the outer
/// search may need an inner one.
constexpr std::uint32_t kMaxSteps = 2000, kMinSteps = 16;
/// Number of positions before a position where its state is looked for.
constexpr std::size_t kLookBack = 64;

/// Returns all bytes, first those that complete most texts, and blanks last.
constexpr std::array<std::uint8_t, 256> bytes_to_try() {
  constexpr std::string_view kFirst = "\"]},:1234567890.-tfnaze";
  std::array<std::uint8_t, 256> order{};
  std::array<bool, 256> used{};
  std::size_t size = 0;
  const auto add = [&](unsigned byte) {
    if (!used[byte]) order[size++] = static_cast<std::uint8_t>(byte);
    used[byte] = true;
  };
  for (const char c : kFirst) add(static_cast<std::uint8_t>(c));
  for (unsigned i = 0; i < 256; i++)
    if (const unsigned byte = 0x20 + i < 256 ? 0x20 + i : i - 0xE0; !is_blank(byte)) add(byte);
  for (const char c : std::string_view(" \n\t\r")) add(static_cast<std::uint8_t>(c));
  return order;
}
constexpr std::array<std::uint8_t, 256> kOrder = bytes_to_try();

/// Returns whether more than `count` different characters are of these kinds.
bool has_more(Signature kinds, std::uint32_t count) {
  const ByteClasses classes = vocabulary().classes();
  std::uint32_t found = (kinds & kWellFormedUtf8) != 0 ? 0x10000 : 0;
  for (unsigned byte = 0; byte < 0x80 && found <= count; byte++) found += kinds >> classes.of[byte] & 1;
  return found > count;
}

/// Calls `visit` with each string of a text in JSON, with its quotes; the last one may lack its end.
template <class Visit>
void each_string(std::string_view text, Visit visit) {
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string_view::npos;) {
    const std::size_t first = at++;
    while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
    at = std::min(at + 1, text.size());
    visit(text.substr(first, at - first));
  }
}

}  // namespace

/// Returns the state of a position: after the end of the array, that of the parser.
Engine::State Engine::after(Arrays::Id position) const {
  return arrays_.at(position).left ? arrays_.at(position).state : kInArray | position;
}

Engine::State Engine::append_in_array(Reading from, std::uint8_t byte) {
  const Arrays::Id next = step_in_array(position_of(from), byte);
  return next != Arrays::kNone && lives(next) ? after(next) : 0;
}

/// Returns the position after the byte; kNone if the grammar does not allow it.
Arrays::Id Engine::step_in_array(Arrays::Id from, std::uint8_t byte) {
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
  // the first item cannot be equal to another, a text without limit can become longer than those of all others, and
  // only a string of an earlier item makes items equal
  return at.items == Arrays::kNone || loop_in_array(position).signature != 0 ||
         (at.quoted && doubts(kInArray | position).empty());
}

/// Searches for a text that completes the item: a walk in depth that avoids going in circles. Blanks outside of strings
/// change no value, so they are tried only where nothing else is allowed.
bool Engine::lives(Arrays::Id first) {
  using Life = Arrays::Life;
  if (lives_for_sure(first)) return true;
  if (arrays_.at(first).life == Life::kDead) return false;
  struct Level {
    Arrays::Id position;
    unsigned tried = 0;
    /// Whether a byte is allowed that is no blank outside of strings.
    bool goes_on = false;
  };
  std::vector<Level> path{{first}};
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
    Level& level = path.back();
    const Arrays::Id from = level.position;
    if (level.tried == kOrder.size()) {
      path.pop_back();
      arrays_.at(from).life = Life::kDead;
      continue;
    }
    const std::uint8_t byte = kOrder[level.tried++];
    const bool blank = is_blank(byte) && !arrays_.at(from).quoted;
    if (blank && level.goes_on) continue;
    const Arrays::Id next = step_in_array(from, byte);
    if (next == Arrays::kNone) continue;
    level.goes_on |= !blank;
    if (arrays_.at(next).life == Life::kDead) continue;
    if (arrays_.item_ended(next) || lives_for_sure(next)) {
      for (const Level& above : path) arrays_.at(above.position).life = Life::kAlive;
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

/// Only in strings, and only where any text of the loop leads to a position that is alive: in the first item, in a loop
/// without limit, and before the last character that fits, if there are more characters than items.
Engine::Loop Engine::loop_in_array(Arrays::Id position) {
  constexpr Loop kNone{0, kUnlimited};
  const Arrays::Position at = arrays_.at(position);
  if (!at.quoted || at.escaped || at.left) return kNone;
  Loop found = loop(at.state);
  if (found.length == kUnlimited || at.items == Arrays::kNone) return found;
  if (found.length == 0 || !has_more(found.signature, arrays_.count(position))) return kNone;
  found.length--;
  return found;
}

/// Within a string, the text that is allowed is that of the terminal, but for `doubts`.
std::uint32_t Engine::inner_in_array(Arrays::Id position) const {
  const Arrays::Position& at = arrays_.at(position);
  return at.quoted && !at.escaped && !at.left ? inner(at.state) : 0;
}

/// A string makes its item equal to an earlier one only if that has the same string: returns the rest of each string of
/// earlier items that begins as the one that is being read.
std::vector<std::string> Engine::doubts(State state) const {
  if (!in_array(state) || state >= kMixed) return {};
  const Arrays::Id position = position_of(state);
  std::vector<std::string> found = doubts(arrays_.at(position).state);
  if (arrays_.at(position).items == Arrays::kNone) return found;
  const std::string text = arrays_.item(position);
  std::string_view now;
  each_string(text, [&](std::string_view string) { now = string; });
  if (now.empty()) return found;  // in the value of a property, where only names count
  arrays_.each_item(position, [&](std::string_view item) {
    each_string(item, [&](std::string_view string) {
      if (string.size() > now.size() && string.starts_with(now)) found.emplace_back(string.substr(now.size()));
    });
  });
  return found;
}

}  // namespace aici::cfg
