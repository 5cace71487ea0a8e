#include "aici/cfg/counted.hpp"

#include <algorithm>
#include <utility>

namespace aici::cfg {

std::optional<Counted> Counted::make(regex::Regex regex, std::uint32_t most) {
  Counted made(std::move(regex), most);
  if (!made.find_rests()) return std::nullopt;
  made.intern(0, 0);
  return made;
}

std::uint8_t Counted::escape_after(std::uint8_t escape, std::uint8_t byte) {
  if (escape == 0) return byte == '\\';
  if (escape == 1) return byte == 'u' ? 5 : 0;
  return escape == 2 ? 0 : static_cast<std::uint8_t>(escape - 1);
}

std::uint32_t Counted::place(regex::Regex::State regex, std::uint8_t escape) {
  Hasher hash;
  hash.add(regex), hash.add(escape);
  const auto same = [&](std::uint32_t i) { return places_[i].regex == regex && places_[i].escape == escape; };
  if (const std::uint32_t known = place_ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const auto made = static_cast<std::uint32_t>(places_.size());
  places_.push_back({regex, escape});
  place_ids_.insert(hash.bits(), made);
  return made;
}

/// Goes through all places forwards, then backwards from the ends, those that are no character away before the others.
bool Counted::find_rests() {
  struct Step {
    std::uint32_t from;
    bool begins;
  };
  std::vector<std::vector<Step>> into(1);
  place(regex_.initial(), 0);
  for (std::uint32_t at = 0; at < places_.size(); at++) {
    for (unsigned b = 0; b < 256; b++) {
      const auto byte = static_cast<std::uint8_t>(b);
      const Place from = places_[at];
      const regex::Regex::State next = regex_.append(from.regex, byte);
      if (regex_.dead(next)) continue;
      const std::uint32_t to = place(next, escape_after(from.escape, byte));
      if (to >= kMostPlaces) return false;
      into.resize(places_.size());
      const Step step{at, begins(from.escape, byte)};
      if (into[to].empty() || into[to].back().from != at || into[to].back().begins != step.begins)
        into[to].push_back(step);
    }
  }
  std::vector<std::uint32_t> now, next;
  for (std::uint32_t i = 0; i < places_.size(); i++)
    if (regex_.accepting(places_[i].regex)) places_[i].rest = 0, now.push_back(i);
  for (std::uint32_t rest = 0; !now.empty(); rest++, now.swap(next)) {
    next.clear();
    for (std::size_t i = 0; i < now.size(); i++) {
      if (places_[now[i]].rest != rest) continue;  // it was found nearer
      farthest_ = rest;
      for (const Step& step : into[now[i]]) {
        const std::uint32_t far = rest + step.begins;
        if (places_[step.from].rest <= far) continue;
        places_[step.from].rest = far;
        (step.begins ? next : now).push_back(step.from);
      }
    }
  }
  return true;
}

Counted::State Counted::intern(std::uint32_t place, std::uint32_t count) {
  Hasher hash;
  hash.add(place), hash.add(count);
  const auto same = [&](std::uint32_t i) { return states_[i].place == place && states_[i].count == count; };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const auto state = static_cast<State>(states_.size());
  states_.push_back({place, count});
  ids_.insert(hash.bits(), state);
  return state;
}

Counted::State Counted::append(State state, std::uint8_t byte) {
  const auto [at, count] = states_[state];
  const Place from = places_[at];
  const regex::Regex::State next = regex_.append(from.regex, byte);
  if (regex_.dead(next)) return 0;
  const std::uint32_t to = place(next, escape_after(from.escape, byte)), so_far = count + begins(from.escape, byte);
  return places_[to].rest <= most_ - std::min(most_, so_far) && so_far <= most_ ? intern(to, so_far) : 0;
}

bool Counted::ended(State state) {
  for (unsigned byte = 0; byte < 256; byte++)
    if (append(state, static_cast<std::uint8_t>(byte)) != 0) return false;
  return true;
}

Signature Counted::loop_signature(State state, std::uint32_t* length) const {
  const auto [at, count] = states_[state];
  if (most_ - count <= farthest_ || places_[at].escape != 0) return 0;
  *length = std::min(regex_.loop_length(places_[at].regex), most_ - count - farthest_);
  return regex_.loop_signature(places_[at].regex);
}

}  // namespace aici::cfg
