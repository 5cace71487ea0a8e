#include "unicode.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "sort.hpp"

namespace aici::regex {

void CodepointSet::add(std::uint32_t low, std::uint32_t high) {
  high = std::min(high, kMaxCodepoint);
  if (low < 0xD800) add_scalars(low, std::min(high, 0xD7FFu));
  if (high > 0xDFFF) add_scalars(std::max(low, 0xE000u), high);
}

void CodepointSet::add_scalars(std::uint32_t low, std::uint32_t high) {
  if (low > high) return;
  if (ranges_.empty() || ranges_.back().high + 1 < low) {
    ranges_.push_back({low, high});
    return;
  }
  if (ranges_.back().low <= low) {
    ranges_.back().high = std::max(ranges_.back().high, high);
    return;
  }
  // The first range that touches low..high, and the first range after it that does not.
  auto first = std::partition_point(ranges_.begin(), ranges_.end(), [=](auto& r) { return r.high + 1 < low; });
  auto last = std::partition_point(first, ranges_.end(), [=](auto& r) { return r.low <= high + 1; });
  if (first == last) {
    ranges_.insert(first, {low, high});
    return;
  }
  first->low = std::min(first->low, low);
  first->high = std::max((last - 1)->high, high);
  ranges_.erase(first + 1, last);
}

void CodepointSet::add(const CodepointSet& other) {
  if (other.empty()) return;
  if (empty() || ranges_.back().high < other.ranges_.front().low) {
    for (auto& r : other.ranges_) add_scalars(r.low, r.high);
    return;
  }
  CodepointSet merged;
  merged.ranges_.reserve(ranges_.size() + other.ranges_.size());
  auto a = ranges_.cbegin(), b = other.ranges_.cbegin();
  while (a != ranges_.end() || b != other.ranges_.end()) {
    const bool take_a = b == other.ranges_.end() || (a != ranges_.end() && a->low < b->low);
    const CodepointRange r = take_a ? *a++ : *b++;
    if (!merged.ranges_.empty() && merged.ranges_.back().high + 1 >= r.low)
      merged.ranges_.back().high = std::max(merged.ranges_.back().high, r.high);
    else
      merged.ranges_.push_back(r);
  }
  ranges_ = std::move(merged.ranges_);
}

CodepointSet CodepointSet::complement() const {
  CodepointSet out;
  std::uint32_t next = 0;
  for (auto& r : ranges_) {
    if (r.low > next) out.add(next, r.low - 1);
    next = r.high + 1;
  }
  if (next <= kMaxCodepoint) out.add(next, kMaxCodepoint);
  return out;
}

CodepointSet CodepointSet::operator&(const CodepointSet& other) const {
  CodepointSet out;
  auto a = ranges_.cbegin(), b = other.ranges_.cbegin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const std::uint32_t low = std::max(a->low, b->low), high = std::min(a->high, b->high);
    if (low <= high) out.ranges_.push_back({low, high});
    if (a->high < b->high)
      ++a;
    else
      ++b;
  }
  return out;
}

CodepointSet CodepointSet::operator^(const CodepointSet& other) const {
  CodepointSet out = *this - other;
  out.add(other - *this);
  return out;
}

bool CodepointSet::contains(std::uint32_t codepoint) const { return intersects(codepoint, codepoint); }

bool CodepointSet::intersects(std::uint32_t low, std::uint32_t high) const {
  auto r = std::lower_bound(ranges_.begin(), ranges_.end(), low,
                            [](const CodepointRange& range, std::uint32_t c) { return range.high < c; });
  return r != ranges_.end() && r->low <= high;
}

namespace {

constexpr int kNotFound = -1;

std::uint32_t read_varint(const std::uint8_t*& at) {
  std::uint32_t value = 0;
  for (int shift = 0;; shift += 7) {
    const std::uint8_t byte = *at++;
    value |= (byte & 127u) << shift;
    if (byte < 128) return value;
  }
}

/// Returns the line of `names` that has `name` as one of its words, or kNotFound.
int find_name(const char* names, std::string_view name) {
  if (name.empty()) return kNotFound;
  const char* word = names;
  int line = 0;
  for (const char* at = names; *at; at++) {
    if (*at != ' ' && *at != '\n') continue;
    if (std::string_view(word, static_cast<std::size_t>(at - word)) == name) return line;
    word = at + 1;
    if (*at == '\n') line++;
  }
  return kNotFound;
}

CodepointSet categories(std::uint32_t mask) {
  CodepointSet out;
  const std::uint8_t* at = kCategoryRuns;
  for (std::uint32_t code = 0; code <= kMaxCodepoint;) {
    const std::uint8_t head = *at++;
    const std::uint32_t length = head >> 5 ? head >> 5 : read_varint(at);
    if (mask >> (head & 31) & 1) out.add(code, code + length - 1);
    code += length;
  }
  return out;
}

CodepointSet script(std::uint8_t wanted) {
  CodepointSet out;
  const std::uint8_t* at = kScriptRuns;
  for (std::uint32_t code = 0; code <= kMaxCodepoint;) {
    const std::uint8_t found = *at++;
    const std::uint32_t length = read_varint(at);
    if (found == wanted) out.add(code, code + length - 1);
    code += length;
  }
  return out;
}

CodepointSet property(int wanted) {
  const std::uint8_t* at = kProperties;
  for (int index = 0;; index++) {
    std::uint32_t base = 0;
    std::memcpy(&base, at, 4);
    at += 4;
    CodepointSet difference;
    std::uint32_t next = 0;
    for (std::uint32_t count = read_varint(at); count > 0; count--) {
      const std::uint32_t low = next + read_varint(at), high = low + read_varint(at);
      if (index == wanted) difference.add(low, high);
      next = high + 1;
    }
    if (index == wanted) return base ? categories(base) ^ difference : difference;
  }
}

bool find_category(std::string_view name, CodepointSet* out) {
  if (const int line = find_name(kCategoryNames, name); line != kNotFound) {
    *out = categories(1u << line);
    return true;
  }
  if (const int line = find_name(kGroupNames, name); line != kNotFound) {
    *out = categories(kGroupMasks[line]);
    return true;
  }
  return false;
}

bool find_script(std::string_view name, CodepointSet* out) {
  const int line = find_name(kScriptNames, name);
  if (line != kNotFound) *out = script(static_cast<std::uint8_t>(line));
  return line != kNotFound;
}

bool find_plain(std::string_view name, CodepointSet* out) {
  if (name == "any") {
    *out = CodepointSet::all();
  } else if (name == "ascii") {
    *out = CodepointSet(0, 0x7F);
  } else if (name == "assigned") {
    *out = categories(1u << find_name(kCategoryNames, "cn")).complement();
  } else if (const int line = find_name(kPropertyNames, name); line != kNotFound) {
    *out = property(line);
  } else {
    return find_category(name, out) || find_script(name, out);
  }
  return true;
}

/// A run of kFolds: code points low, low + step, ... high fold to the code point `delta` away (modulo 2^32).
struct FoldRun {
  std::uint32_t low, high, step, delta;
};

template <class Visit>
void each_fold_run(Visit visit) {
  std::uint32_t low = 0;
  for (const std::uint8_t* at = kFolds; at < kFolds + kFoldsSize;) {
    low += read_varint(at);
    const std::uint32_t length = read_varint(at), packed = read_varint(at), zigzag = packed >> 1;
    const std::uint32_t step = (packed & 1) + 1;
    visit(FoldRun{low, low + (length - 1) * step, step, zigzag & 1 ? ~(zigzag >> 1) : zigzag >> 1});
  }
}

/// Returns the set of the items' upper halves.
CodepointSet sorted_set(std::vector<std::uint64_t>* items) {
  sort_by_codepoint(items);
  CodepointSet out;
  for (const std::uint64_t item : *items)
    out.add(static_cast<std::uint32_t>(item >> 32), static_cast<std::uint32_t>(item >> 32));
  return out;
}

}  // namespace

const char* unicode_version() { return kUnicodeVersion; }

bool find_property(std::string_view name, CodepointSet* out) {
  std::string plain;
  std::size_t equals = std::string::npos;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    if (c == '=' || c == ':') equals = plain.size();
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  if (equals != std::string::npos) {
    const std::string_view key(plain.data(), equals);
    const std::string_view value = std::string_view(plain).substr(equals + 1);
    if (key == "gc" || key == "generalcategory") return find_category(value, out);
    if (key == "sc" || key == "script") return find_script(value, out);
    return false;
  }
  return find_plain(plain, out) || (plain.starts_with("is") && find_plain(plain.substr(2), out));
}

CodepointSet unicode_digit() { return categories(1u << find_name(kCategoryNames, "nd")); }

CodepointSet unicode_space() { return property(find_name(kPropertyNames, "whitespace")); }

CodepointSet unicode_word() {
  CodepointSet out = property(find_name(kPropertyNames, "alphabetic"));
  std::uint32_t mask = kGroupMasks[find_name(kGroupNames, "m")];
  for (const char* name : {"nd", "pc"}) mask |= 1u << find_name(kCategoryNames, name);
  out.add(categories(mask));
  out.add(0x200C, 0x200D);
  return out;
}

CodepointSet fold_case(const CodepointSet& set) {
  // Adds what the members fold to (a member that folds to nothing else stays), then everything that folds to those.
  std::vector<std::uint64_t> folded, sources;
  each_fold_run([&](const FoldRun& run) {
    if (!set.intersects(run.low, run.high)) return;
    for (std::uint32_t c = run.low; c <= run.high; c += run.step)
      if (set.contains(c)) folded.push_back(std::uint64_t{c + run.delta} << 32);
  });
  CodepointSet targets = set;
  targets.add(sorted_set(&folded));
  each_fold_run([&](const FoldRun& run) {
    if (!targets.intersects(run.low + run.delta, run.high + run.delta)) return;
    for (std::uint32_t c = run.low; c <= run.high; c += run.step)
      if (targets.contains(c + run.delta)) sources.push_back(std::uint64_t{c} << 32);
  });
  targets.add(sorted_set(&sources));
  return targets;
}

CodepointSet fold_case_ascii(const CodepointSet& set) {
  CodepointSet out = set;
  for (std::uint32_t c = 'A'; c <= 'Z'; c++) {
    if (set.contains(c)) out.add(c + 32, c + 32);
    if (set.contains(c + 32)) out.add(c, c);
  }
  return out;
}

}  // namespace aici::regex
