#include "aici/cfg/counted.hpp"

#include <algorithm>
#include <utility>

#include "aici/detail/hash_index.hpp"

namespace aici::cfg {

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
  return count >= least_ || shape_->closes ? room(count) : 0;
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
