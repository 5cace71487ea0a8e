#include "aici/detail/regex/automaton.hpp"

#include <algorithm>
#include <cstring>

#include "sort.hpp"

namespace aici::regex {

KindSetId KindSets::add(std::span<const std::uint32_t> set) {
  Hasher hash;
  for (const std::uint32_t word : set) hash.add(word);
  const std::uint32_t known = ids_.find(hash.bits(), [&](std::uint32_t i) {
    return std::equal(set.begin(), set.end(), bits_.begin() + static_cast<std::ptrdiff_t>(i * words_));
  });
  if (known != HashIndex::kNone) return static_cast<KindSetId>(known);
  if (count_ > 0xffff) {
    overflow_ = true;
    return kNoKinds;
  }
  append(&bits_, set);
  ids_.insert(hash.bits(), count_);
  return static_cast<KindSetId>(count_++);
}

KindSetId KindSets::unite(KindSetId a, KindSetId b) {
  if (a == b) return a;
  std::vector<std::uint32_t> out((*this)[a].begin(), (*this)[a].end());
  for (std::size_t i = 0; i < words_; i++) out[i] |= (*this)[b][i];
  return add(out);
}

KindSetId KindSets::intersect(KindSetId a, KindSetId b) {
  std::vector<std::uint32_t> out((*this)[a].begin(), (*this)[a].end());
  for (std::size_t i = 0; i < words_; i++) out[i] &= (*this)[b][i];
  return add(out);
}

namespace {

/// Sets of classes. Each set gets a number when it is first seen; number 0 is the empty set.
class Memberships {
 public:
  explicit Memberships(std::size_t num_classes) : words_((num_classes + 31) / 32), now_(words_) { number(); }

  void flip(std::uint32_t index) { now_[index / 32] ^= 1u << (index % 32); }

  /// Returns the number of the current set.
  std::uint32_t number() {
    Hasher hash;
    for (const std::uint32_t word : now_) hash.add(word);
    const std::size_t bytes = words_ * sizeof(std::uint32_t);
    const std::uint32_t known = ids_.find(hash.bits(), [&](std::uint32_t i) {
      return !bytes || !std::memcmp(&sets_[i * words_], now_.data(), bytes);
    });
    if (known != HashIndex::kNone) return known;
    append<std::uint32_t>(&sets_, now_);
    ids_.insert(hash.bits(), count_);
    return count_++;
  }

  std::uint32_t count() const { return count_; }
  bool has(std::uint32_t set, std::uint32_t index) const {
    return sets_[set * words_ + index / 32] >> (index % 32) & 1;
  }

 private:
  std::size_t words_;
  std::vector<std::uint32_t> now_, sets_;
  std::uint32_t count_ = 0;
  HashIndex ids_;
};

}  // namespace

bool Alphabet::build(const std::vector<CodepointSet>& classes, const Limits& limits) {
  *this = Alphabet();
  if (!find_kinds(classes, limits)) return false;
  below_start_.push_back(0);
  uniform_.assign(num_kinds_ * kUniformDepths, 0);
  const bool ascii_alone = intervals_.back().kind == 0 && intervals_.back().low <= 0x80;
  for (std::uint32_t byte = 0xC2; byte <= 0xF4 && !ascii_alone; byte++) {
    const std::uint32_t bits = byte < 0xE0 ? 6 : byte < 0xF0 ? 12 : 18;
    const std::uint32_t least = byte < 0xE0 ? 0x80 : byte < 0xF0 ? 0x800 : 0x10000;
    const std::uint32_t lead = byte < 0xE0 ? byte & 0x1F : byte < 0xF0 ? byte & 0xF : byte & 7;
    leads_[byte] = make_step(lead << bits, bits, least);
  }
  uniform_ = {};
  return !too_many_nodes_;
}

bool Alphabet::find_kinds(const std::vector<CodepointSet>& classes, const Limits& limits) {
  // Upper half: a code point. Lower half: the class whose membership changes there.
  std::vector<std::uint64_t> changes;
  for (std::uint32_t i = 0; i < classes.size(); i++)
    for (const CodepointRange& r : classes[i].ranges()) {
      changes.push_back(std::uint64_t{r.low} << 32 | i);
      changes.push_back(std::uint64_t{r.high + 1} << 32 | i);
    }
  sort_by_codepoint(&changes);

  // Kinds are numbered in the order of their first characters, so those of ASCII come first.
  Memberships memberships(classes.size());
  const auto meet = [&](std::uint32_t codepoint, Kind kind) {
    if (!intervals_.empty() && intervals_.back().kind == kind) return;
    intervals_.push_back({codepoint, kind});
  };
  meet(0, 0);
  for (std::size_t i = 0; i < changes.size();) {
    const auto codepoint = static_cast<std::uint32_t>(changes[i] >> 32);
    for (; i < changes.size() && changes[i] >> 32 == codepoint; i++)
      memberships.flip(static_cast<std::uint32_t>(changes[i]));
    if (codepoint > kMaxCodepoint) break;
    const std::uint32_t number = memberships.number();
    if (number >= limits.character_kinds) return false;
    if (intervals_.back().low == codepoint) intervals_.pop_back();
    meet(codepoint, static_cast<Kind>(number));
  }
  num_kinds_ = memberships.count();

  beyond_ascii_.resize(num_kinds_);
  num_dense_ = 1;
  for (std::size_t i = 0; i < intervals_.size(); i++) {
    const auto [low, kind] = intervals_[i];
    const std::uint32_t end = i + 1 < intervals_.size() ? intervals_[i + 1].low : kMaxCodepoint + 1;
    for (std::uint32_t c = low; c < std::min(end, 0x80u); c++) ascii_[c] = kind;
    if (low < 0x80) num_dense_ = std::max(num_dense_, kind + 1u);
    const bool surrogates = low >= 0xD800 && end <= 0xE000;
    if (end > 0x80 && !surrogates) beyond_ascii_[kind] = true;
  }
  class_kinds_.resize(classes.size() * words());
  for (std::uint32_t i = 0; i < classes.size(); i++)
    for (std::uint32_t kind = 0; kind < num_kinds_; kind++)
      if (memberships.has(kind, i)) class_kinds_[i * words() + kind / 32] |= 1u << (kind % 32);
  return true;
}

Alphabet::Rare Alphabet::rare() const {
  // Fewer than 64, so that not all characters that begin with the same bytes are rare.
  constexpr std::uint32_t kMax = 32;
  const auto each_interval = [&](auto visit) {
    for (std::size_t i = 0; i < intervals_.size(); i++) {
      const std::uint32_t end = i + 1 < intervals_.size() ? intervals_[i + 1].low : kMaxCodepoint + 1;
      const bool surrogates = intervals_[i].low >= 0xD800 && end <= 0xE000;
      if (end > 0x80 && !surrogates) visit(intervals_[i].kind, std::max(intervals_[i].low, 0x80u), end);
    }
  };
  std::vector<std::uint32_t> sizes(num_kinds_);
  each_interval([&](Kind kind, std::uint32_t low, std::uint32_t end) { sizes[kind] += end - low; });
  Rare rare{{}, std::vector<bool>(num_kinds_)};
  if (sizes[0] > kMax) return rare;  // kind 0 is in no class of the pattern: no state could loop with all others
  std::uint32_t left = kMax;
  for (std::uint32_t kind = 0; kind < num_kinds_; kind++)
    if (sizes[kind] != 0 && sizes[kind] <= left) rare.kinds[kind] = true, left -= sizes[kind];
  each_interval([&](Kind kind, std::uint32_t low, std::uint32_t end) {
    for (std::uint32_t c = low; c < end && rare.kinds[kind]; c++) rare.characters.push_back(c);
  });
  return rare;
}

/// Returns the step to the characters low .. low + 2^bits - 1. Characters below `least` would be overlong in UTF-8.
Alphabet::Step Alphabet::make_step(std::uint32_t low, std::uint32_t bits, std::uint32_t least) {
  const std::uint32_t end = low + (1u << bits);
  if (end <= least || low > kMaxCodepoint) return 0;
  auto at =
      std::partition_point(intervals_.begin(), intervals_.end(), [=](auto& i) { return i.low <= low; }) - 1;
  const bool one_kind = at + 1 == intervals_.end() || (at + 1)->low >= end;
  if (one_kind && (at->kind == 0 || (low >= least && end <= kMaxCodepoint + 1)))
    return uniform_step(at->kind, bits);
  Step steps[64];
  for (std::uint32_t i = 0; i < 64; i++) {
    const std::uint32_t first = low + (i << (bits - 6));
    if (bits > 6) {
      steps[i] = make_step(first, bits - 6, least);
    } else {
      while (at + 1 != intervals_.end() && (at + 1)->low <= first) ++at;
      steps[i] = at->kind;
    }
  }
  return add_node(steps);
}

Alphabet::Step Alphabet::uniform_step(Kind kind, std::uint32_t bits) {
  if (bits == 0 || kind == 0) return kind;
  Step& known = uniform_[kind * kUniformDepths + bits / 6 - 1];
  if (known == 0) {
    Step steps[64];
    std::fill(steps, steps + 64, uniform_step(kind, bits - 6));
    known = add_node(steps);
  }
  return known;
}

Alphabet::Step Alphabet::add_node(const Step* steps) {
  if (std::all_of(steps, steps + 64, [](Step s) { return s == 0; })) return 0;
  Hasher hash;
  for (int i = 0; i < 64; i += 2) hash.add(steps[i] | static_cast<std::uint32_t>(steps[i + 1]) << 16);
  const std::uint32_t known = node_ids_.find(
      hash.bits(), [&](std::uint32_t node) { return std::equal(steps, steps + 64, &steps_[node * 64]); });
  if (known != HashIndex::kNone) return static_cast<Step>(kNode | known);
  const auto node = static_cast<std::uint32_t>(below_start_.size() - 1);
  if (node >= kMaxNodes) {
    too_many_nodes_ = true;
    return 0;
  }
  append<Step>(&steps_, {steps, 64});
  std::vector<Kind> below;
  for (int i = 0; i < 64; i++) {
    if (i > 0 && steps[i] == steps[i - 1]) continue;
    if (steps[i] & kNode) {
      const auto kinds = kinds_below(steps[i] & ~kNode & 0xffff);
      append(&below, kinds);
    } else if (steps[i]) {
      below.push_back(steps[i]);
    }
  }
  sort_small(&below);
  below.erase(std::unique(below.begin(), below.end()), below.end());
  append<Kind>(&below_, below);
  std::uint32_t bits = 0;
  for (const Kind kind : below) bits |= kind_bit(kind);
  below_bits_.push_back(bits);
  below_start_.push_back(static_cast<std::uint32_t>(below_.size()));
  node_ids_.insert(hash.bits(), node);
  return static_cast<Step>(kNode | node);
}

std::size_t Alphabet::bytes() const {
  return class_kinds_.size() * 4 + intervals_.size() * sizeof(Interval) + steps_.size() * 2 +
         below_.size() * 2 + below_start_.size() * 8 + node_ids_.bytes();
}

}  // namespace aici::regex
