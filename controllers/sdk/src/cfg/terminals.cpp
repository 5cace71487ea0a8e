#include "aici/detail/cfg/terminals.hpp"

#include <algorithm>
#include <utility>

#include "aici/text.hpp"

namespace aici::cfg {

namespace {

template <class... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};

}  // namespace

Terminal Terminals::add_literal(std::string_view bytes) {
  all_.emplace_back(Literal(bytes));
  return static_cast<Terminal>(all_.size() - 1);
}
Terminal Terminals::add_regex(std::shared_ptr<regex::Regex> regex, bool early) {
  if (!early) first_of_regex_.try_emplace(regex.get(), static_cast<Terminal>(all_.size()));
  all_.emplace_back(Pattern{std::move(regex), early});
  return static_cast<Terminal>(all_.size() - 1);
}
std::optional<Terminal> Terminals::find(const regex::Regex& regex, Lexemes lexemes) const {
  const auto found = first_of_regex_.find(&regex);
  if (found == first_of_regex_.end() || !std::holds_alternative<Pattern>(all_[found->second])) return std::nullopt;
  const bool same = longest(found->second) == (lexemes == Lexemes::kLongest) && temperature(found->second) == 0;
  return same ? std::optional(found->second) : std::nullopt;
}
Terminal Terminals::add_substring(Substrings substrings) {
  all_.emplace_back(std::move(substrings));
  return static_cast<Terminal>(all_.size() - 1);
}
Terminal Terminals::add_except(Except except) {
  first_of_regex_.try_emplace(&except.regex(), static_cast<Terminal>(all_.size()));
  all_.emplace_back(std::move(except));
  return static_cast<Terminal>(all_.size() - 1);
}

Terminal Terminals::add_counted(Counted counted) {
  // the regex alone, as the twin of all counts
  if (!first_of_regex_.contains(&counted.regex())) add_regex(counted.shared_regex(), false);
  all_.emplace_back(std::move(counted));
  return static_cast<Terminal>(all_.size() - 1);
}

void Terminals::set_byte_classes(ByteClasses classes) {
  classes_ = classes.of;
  const auto set = [&](regex::Regex& regex) {
    const auto rare = regex.leave_out_rare();
    rare_.insert(rare_.end(), rare.begin(), rare.end());
    regex.set_byte_classes(classes);
  };
  for (auto& one : all_) {
    if (auto* pattern = std::get_if<Pattern>(&one)) set(*pattern->regex);
    if (auto* except = std::get_if<Except>(&one)) set(except->regex());
    if (auto* counted = std::get_if<Counted>(&one)) set(counted->regex());
  }
  std::ranges::sort(rare_);
  rare_.erase(std::unique(rare_.begin(), rare_.end()), rare_.end());
}

Terminals::State Terminals::initial(Terminal terminal) const {
  return std::visit(Overload{[](const Literal&) -> State { return 1; },
                             [](const Pattern& it) -> State { return it.regex->initial(); },
                             [](const Substrings& it) -> State { return it.initial(); },
                             [](const Except&) -> State { return 1; }, [](const Counted&) -> State { return 1; }},
                    all_[terminal]);
}

Terminals::State Terminals::append(Terminal terminal, State state, std::uint8_t byte) {
  if (state == kDead) return kDead;
  return std::visit(Overload{[&](const Literal& it) -> State {
                               const bool next = state <= it.size() && static_cast<std::uint8_t>(it[state - 1]) == byte;
                               return next ? state + 1 : kDead;
                             },
                             [&](const Pattern& it) -> State {
                               if (state == kStopped) return kDead;
                               const State next = it.regex->append(state, byte);
                               return it.early && it.regex->accepting(next) ? kStopped : next;
                             },
                             [&](const Substrings& it) -> State { return it.append(state, byte); },
                             [&](Except& it) -> State { return it.append(state, byte); },
                             [&](Counted& it) -> State { return it.append(state, byte); }},
                    all_[terminal]);
}

bool Terminals::accepting(Terminal terminal, State state) const {
  if (state == kDead) return false;
  return std::visit(
      Overload{[&](const Literal& it) { return state > it.size(); },
               [&](const Pattern& it) { return state == kStopped || (!it.early && it.regex->accepting(state)); },
               [&](const Substrings& it) { return it.accepting(state); },
               [&](const Except& it) { return it.accepting(state); },
               [&](const Counted& it) { return it.accepting(state); }},
      all_[terminal]);
}

bool Terminals::ended(Terminal terminal, State state) {
  if (state == kDead) return true;
  return std::visit(Overload{[&](const Literal& it) { return state > it.size(); },
                             [&](const Pattern& it) { return state == kStopped || it.regex->ended(state); },
                             [&](const Substrings& it) { return it.ended(state); },
                             [&](Except& it) { return it.ended(state); },
                             [&](Counted& it) { return it.ended(state); }},
                    all_[terminal]);
}

Signature Terminals::loop_signature(Terminal terminal, State state, std::uint32_t* length) const {
  if (const auto* counted = std::get_if<Counted>(&all_[terminal]))
    return state != kDead ? counted->loop_signature(state, length) : 0;
  const regex::Regex* regex = nullptr;
  if (const auto* pattern = std::get_if<Pattern>(&all_[terminal])) {
    if (!pattern->early && state != kDead) regex = pattern->regex.get();
  } else if (const auto* except = std::get_if<Except>(&all_[terminal])) {
    regex = except->free(state);
    state = except->regex_state(state);
  }
  if (regex == nullptr) return 0;
  *length = regex->loop_length(state);
  return regex->loop_signature(state);
}

Signature Terminals::multibyte_signature(Terminal terminal, State state) const {
  const auto* except = std::get_if<Except>(&all_[terminal]);
  if (except == nullptr || state == kDead || !except->free_after_multibyte(state)) return 0;
  const regex::Regex::State inside = except->regex_state(state);
  return except->regex().loop_length(inside) == kUnlimited ? except->regex().loop_signature(inside) : 0;
}

bool Terminals::well_formed() const {
  return std::ranges::all_of(all_, [](const auto& one) {
    const auto* literal = std::get_if<Literal>(&one);
    // a special token is not text
    return literal != nullptr ? literal->front() == kTokenMark || utf8_length(*literal) == literal->size() : !std::holds_alternative<Substrings>(one);
  });
}

Terminals::State Terminals::without_names(Terminal terminal, State state, ByteSet& differ) {
  if (const auto* literal = std::get_if<Literal>(&all_[terminal])) {
    if (state <= literal->size()) differ.add(static_cast<std::uint8_t>((*literal)[state - 1]));
    return kDead;
  }
  if (auto* except = std::get_if<Except>(&all_[terminal])) return except->without_names(state, differ);
  return state;
}

void Terminals::add_next_bytes(Terminal terminal, State state, ByteSet& bytes) const {
  if (const auto* literal = std::get_if<Literal>(&all_[terminal])) {
    if (state <= literal->size()) bytes.add(static_cast<std::uint8_t>((*literal)[state - 1]));
    return;
  }
  const auto* pattern = std::get_if<Pattern>(&all_[terminal]);
  const auto* except = std::get_if<Except>(&all_[terminal]);
  const auto* counted = std::get_if<Counted>(&all_[terminal]);
  if (pattern != nullptr && state != kStopped)
    pattern->regex->add_next_bytes(state, bytes);
  else if (except != nullptr)
    except->regex().add_next_bytes(except->regex_state(state), bytes);
  else if (counted != nullptr)
    counted->regex().add_next_bytes(counted->regex_state(state), bytes);
  else if (pattern == nullptr)
    bytes.add(ByteSet::all());
}

Terminals::Place Terminals::twin(Place own, std::uint32_t* length) {
  *length = kUnlimited;
  const regex::Regex* regex = nullptr;
  regex::Regex::State state = own.state;
  if (const auto* pattern = std::get_if<Pattern>(&all_[own.terminal])) {
    if (!pattern->early) regex = pattern->regex.get();
  } else if (const auto* except = std::get_if<Except>(&all_[own.terminal])) {
    regex = except->free(own.state);
    state = except->regex_state(own.state);
  } else if (const auto* counted = std::get_if<Counted>(&all_[own.terminal])) {
    *length = counted->free_length(own.state);
    state = counted->regex_state(own.state);
    regex = &counted->regex();
  }
  const auto first = first_of_regex_.find(regex);
  if (first == first_of_regex_.end()) return own;
  auto* except = std::get_if<Except>(&all_[first->second]);
  return {first->second, except != nullptr ? except->outside(state) : state};
}

const char* Terminals::failure() const {
  for (const auto& one : all_) {
    const auto* pattern = std::get_if<Pattern>(&one);
    const auto* except = std::get_if<Except>(&one);
    const auto* counted = std::get_if<Counted>(&one);
    if (const char* problem = pattern   ? pattern->regex->failure()
                              : except  ? except->failure()
                              : counted ? counted->failure()
                                        : nullptr)
      return problem;
  }
  return nullptr;
}

Except::Except(std::shared_ptr<regex::Regex> regex, std::span<const std::string> texts) : regex_(std::move(regex)) {
  for (const std::string& text : texts) {
    std::uint32_t node = kRoot;
    for (const char c : text) {
      const auto byte = static_cast<std::uint8_t>(c);
      std::uint32_t next = child(node, byte);
      if (next == kNone) {
        next = static_cast<std::uint32_t>(trie_.size());
        trie_[node].children.emplace_back(byte, next);
        trie_.emplace_back();
      }
      node = next;
    }
    trie_[node].ends = true;
  }
  for (Node& node : trie_) std::ranges::sort(node.children);
  pairs_.push_back({0, kNone, 0});
  intern(regex_->initial(), kRoot);
}

std::uint32_t Except::child(std::uint32_t node, std::uint8_t byte) const {
  const auto& children = trie_[node].children;
  const auto found = std::ranges::lower_bound(children, byte, {}, [](const auto& pair) { return pair.first; });
  return found != children.end() && found->first == byte ? found->second : kNone;
}

Except::State Except::intern(regex::Regex::State regex, std::uint32_t node) {
  Hasher hash;
  hash.add(regex), hash.add(node);
  const auto same = [&](std::uint32_t i) { return pairs_[i].regex == regex && pairs_[i].node == node; };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const auto state = static_cast<State>(pairs_.size());
  pairs_.push_back({regex, node, -1});
  ids_.insert(hash.bits(), state);
  return state;
}

Except::State Except::append(State state, std::uint8_t byte) {
  const Pair from = pairs_[state];
  const regex::Regex::State next = regex_->append(from.regex, byte);
  if (regex_->dead(next)) return 0;
  const State to = intern(next, child(from.node, byte));
  return alive(to) ? to : 0;
}

bool Except::accepting(State state) const {
  return regex_->accepting(pairs_[state].regex) && !trie_[pairs_[state].node].ends;
}

/// Returns whether an accepted text can follow. Outside the trie, the regex guarantees it. Every path in the trie is
/// short, so the recursion ends.
bool Except::alive(State state) {
  if (pairs_[state].alive >= 0) return pairs_[state].alive;
  bool found = pairs_[state].node == kNone || accepting(state);
  for (unsigned byte = 0; byte < 256 && !found; byte++) found = append(state, static_cast<std::uint8_t>(byte)) != 0;
  pairs_[state].alive = found;
  return found;
}

bool Except::ended(State state) {
  if (pairs_[state].node == kNone) return regex_->ended(pairs_[state].regex);
  for (unsigned byte = 0; byte < 256; byte++)
    if (append(state, static_cast<std::uint8_t>(byte)) != 0) return false;
  return true;
}

std::optional<Counted> Counted::make(std::shared_ptr<regex::Regex> regex, bool escapes) {
  auto shape = std::make_shared<Shape>(std::move(regex), escapes);
  if (!shape->find_places()) return std::nullopt;
  shape->find_rests();
  shape->stretches = shape->can_stretch();
  shape->closes = std::ranges::none_of(shape->places, [](const Place& it) { return it.accepting && !it.ways.empty(); });
  return Counted(std::move(shape));
}

std::optional<Counted> Counted::between(std::uint32_t least, std::uint32_t most) const {
  if (least > shape_->places[kFirst].rest && !shape_->stretches) return std::nullopt;
  if ((most == kUnlimited ? least : most) >= kMaxStates / shape_->places.size()) return std::nullopt;
  Counted counted(shape_);
  counted.least_ = least, counted.most_ = most;
  return counted;
}

std::uint8_t Counted::escape_after(std::uint8_t escape, std::uint8_t byte) {
  if (escape == 0) return byte == '\\';
  if (escape == 1) return byte == 'u' ? 5 : 0;
  return escape == 2 ? 0 : static_cast<std::uint8_t>(escape - 1);
}

/// Finds all places, forwards from the start. Returns false if there are too many.
bool Counted::Shape::find_places() {
  HashIndex ids;
  const auto place = [&](regex::Regex::State state, std::uint8_t escape) {
    Hasher hash;
    hash.add(state), hash.add(escape);
    const auto same = [&](std::uint32_t i) { return places[i].regex == state && places[i].escape == escape; };
    if (const std::uint32_t known = ids.find(hash.bits(), same); known != HashIndex::kNone) return known;
    const auto made = static_cast<std::uint32_t>(places.size());
    places.push_back({state, escape, regex->accepting(state)});
    ids.insert(hash.bits(), made);
    return made;
  };
  places.push_back({});
  place(regex->initial(), 0);
  for (std::uint32_t at = kFirst; at < places.size(); at++) {
    if (places.size() > kMaxPlaces) return false;
    next.resize(256 * places.size());
    regex::Regex::State last = 0;
    std::uint8_t last_escape = 0;
    PlaceId to = kNowhere;
    const bool within = regex->within_character(places[at].regex);
    for (unsigned b = within ? 0x80 : 0, end = within ? 0xC0 : 256; b < end; b++) {
      if (b == 0x80 && !within) b = 0xC0;
      const auto byte = static_cast<std::uint8_t>(b);
      const std::uint8_t escape = places[at].escape;
      const regex::Regex::State now = regex->append(places[at].regex, byte);
      if (regex->dead(now)) continue;
      const std::uint8_t escape_now = escapes ? escape_after(escape, byte) : 0;
      if (to == kNowhere || now != last || escape_now != last_escape) {
        last = now, last_escape = escape_now;
        to = static_cast<PlaceId>(place(now, escape_now));
      }
      next[at << 8 | b] = to;
      const Place::Way way{to, begins(escape, byte)};
      std::vector<Place::Way>& ways = places[at].ways;
      if (ways.empty() || (ways.back() != way && std::ranges::find(ways, way) == ways.end())) ways.push_back(way);
    }
  }
  next.resize(256 * places.size());
  return true;
}

/// Finds the number of characters from each place to the nearest end. Works backwards from the ends; steps within a
/// character come first.
void Counted::Shape::find_rests() {
  struct Step {
    PlaceId from;
    bool begins;
  };
  std::vector<std::vector<Step>> into(places.size());
  for (std::size_t at = kFirst; at < places.size(); at++)
    for (const Place::Way& way : places[at].ways) into[way.to].push_back({static_cast<PlaceId>(at), way.begins});
  std::vector<PlaceId> now, then;
  for (std::size_t i = kFirst; i < places.size(); i++)
    if (places[i].accepting) places[i].rest = 0, now.push_back(static_cast<PlaceId>(i));
  for (std::uint32_t rest = 0; !now.empty(); rest++, now.swap(then)) {
    then.clear();
    for (std::size_t i = 0; i < now.size(); i++) {
      if (places[now[i]].rest != rest) continue;  // a shorter way was found
      if (now[i] != kFirst || !into[kFirst].empty()) farthest = rest;
      for (const Step& step : into[now[i]]) {
        const std::uint32_t far = rest + step.begins;
        if (places[step.from].rest <= far) continue;
        places[step.from].rest = far;
        (step.begins ? then : now).push_back(step.from);
      }
    }
  }
}

/// Returns whether there is a text of every length from the rest on. For this, each place with an exit must have a byte
/// that leads to another such place which is no farther from an end.
bool Counted::Shape::can_stretch() const {
  return std::all_of(places.begin() + kFirst, places.end(), [&](const Place& place) {
    return place.ways.empty() || std::ranges::any_of(place.ways, [&](const Place::Way& way) {
             return !places[way.to].ways.empty() && places[way.to].rest <= place.rest;
           });
  });
}

bool Counted::lives(PlaceId place, std::uint32_t count) const {
  const Place& at = shape_->places[place];
  return count <= most_ && at.rest != kFar && at.rest <= most_ - count && (count >= least_ || !at.ways.empty());
}

Counted::State Counted::append(State state, std::uint8_t byte) const {
  const PlaceId from = place_of(state), to = shape_->next[std::size_t{from} << 8 | byte];
  std::uint32_t count = count_of(state) + begins(shape_->places[from].escape, byte);
  if (most_ == kUnlimited) count = std::min(count, least_);
  return to != kNowhere && lives(to, count) ? count * static_cast<State>(shape_->places.size()) + to : 0;
}

bool Counted::ended(State state) const {
  const std::uint32_t count = count_of(state);
  return std::ranges::none_of(shape_->places[place_of(state)].ways,
                              [&](const Place::Way& way) { return lives(way.to, count + way.begins); });
}

/// Returns the number of characters that may follow, wherever they lead.
std::uint32_t Counted::room(std::uint32_t count) const {
  if (most_ == kUnlimited) return kUnlimited;
  return most_ - count > shape_->farthest ? most_ - count - shape_->farthest : 0;
}

std::uint32_t Counted::free_length(State state) const {
  const std::uint32_t count = count_of(state);
  if (count >= least_) return room(count);
  // states differ by their counts, so not all is equal that a state of the pattern allows
  return shape_->closes ? std::min(room(count), kUnlimited - 1) : 0;
}

Signature Counted::loop_signature(State state, std::uint32_t* length) const {
  const Place& at = shape_->places[place_of(state)];
  const std::uint32_t count = count_of(state);
  if (room(count) == 0 || at.escape != 0) return 0;
  const std::uint32_t loop = shape_->regex->loop_length(at.regex);
  if (count < least_ && loop != kUnlimited) return 0;  // the text may end before the minimum
  *length = std::min(loop, room(count));
  return shape_->regex->loop_signature(at.regex);
}

}  // namespace aici::cfg
