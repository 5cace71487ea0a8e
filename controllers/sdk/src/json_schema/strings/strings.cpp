#include "strings.hpp"

#include "aici/number.hpp"
#include "aici/json_schema/document.hpp"
#include "formats.hpp"

namespace aici::json_schema {
namespace {

/// Maximum number of repetitions to write out where they could be counted.
constexpr std::uint32_t kLongestWrittenOut = 16;
/// The same for a repetition with something after it; such a pattern is counted as a whole.
constexpr std::uint32_t kLongWrittenOut = 1024;
/// Maximum length to count; a larger maxLength is replaced by this. Without one, lengths up to minLength are counted.
constexpr std::uint32_t kMaxLength = 1'000'000;
/// Maximum lengths to try where a length is combined with a pattern; the first one that works is used.
constexpr std::uint32_t kTriedLengths[] = {1024, 256, 64};

std::uint32_t add(std::uint32_t a, std::uint32_t b) { return b == kUnlimited ? b : a + b; }

/// Patterns that most schemas have, with their automata. A grammar changes its automata, so each serves only one.
constinit std::vector<std::pair<std::string, std::shared_ptr<regex::Regex>>> prepared;
constinit bool preparing = false;

std::string number(std::uint32_t value) { return std::string(Number(value).text()); }

std::string repeated(const std::string& unit, std::uint32_t least, std::uint32_t most) {
  if (least == 0 && most == kUnlimited) return "(?:" + unit + ")*";
  return "(?:" + unit + "){" + number(least) + "," + (most == kUnlimited ? "" : number(most)) + "}";
}

}  // namespace

std::uint32_t length(std::string_view text) {
  std::uint32_t characters = 0;
  for (const char c : text) characters += (c & 0xC0) != 0x80;
  return characters;
}

void Strings::prepare(void (*use)()) {
  preparing = true;
  use();
  preparing = false;
}

std::shared_ptr<regex::Regex> Strings::compile(std::string_view pattern, bool* empty, std::string* problem) {
  *empty = false;
  if (!preparing)
    for (auto& [text, automaton] : prepared)
      if (automaton && text == pattern) return std::exchange(automaton, nullptr);
  regex::Limits limits;
  limits.eager_states = 4096;
  limits.nfa_states = 65'000;
  regex::Error error;
  std::optional<regex::Regex> compiled = regex::Regex::compile(pattern, &error, limits);
  *empty = !compiled && error.message.starts_with("no text matches");
  if (!compiled) {
    *problem = "its automaton is too large: " + error.message;
    return nullptr;
  }
  auto automaton = std::make_shared<regex::Regex>(std::move(*compiled));
  if (preparing) prepared.emplace_back(pattern, automaton);
  return automaton;
}

Strings::Known& Strings::known(std::string_view text, bool format) {
  const auto [found, added] = known_.try_emplace({std::string(text), format});
  Known& known = found->second;
  if (!added) return known;
  if (!format) {
    known.pattern = read_ecma(text, plain_);
  } else if (const Format* meant = find_format(text); !meant) {
    if (ignores_format(text)) return known;
    known.pattern.problem = "this format is not known";
    if (const std::string_view similar = similar_format(text); !similar.empty())
      known.pattern.problem.append(": do you mean ").append(similar).append("?");
  } else if (!meant->pattern.empty()) {
    known.pattern = read_ecma(meant->pattern, plain_);
  }
  return known;
}

bool Strings::ignores_format(std::string_view name) const {
  return !refuse_unknown_formats_ && !find_format(name) && similar_format(name).empty();
}

const Pattern& Strings::read(std::string_view text, bool format) { return known(text, format).pattern; }

std::optional<bool> Strings::matches(std::string_view text, bool format, std::string_view string) {
  Known& known = this->known(text, format);
  if (!known.pattern.problem.empty() || known.failed) return std::nullopt;
  if (known.pattern.text.empty()) return true;
  if (!known.compiled) {
    bool empty = false;
    std::string problem;
    known.automaton = compile(known.pattern.text, &empty, &problem);
    known.compiled = true, known.failed = !known.automaton && !empty;
  }
  if (known.failed) return std::nullopt;
  if (!known.automaton) return false;
  std::string quoted;
  append_json_string(string, &quoted);
  const std::string_view inside = plain_ ? string : std::string_view(quoted).substr(1, quoted.size() - 2);
  regex::Regex::State state = known.automaton->initial();
  for (const char c : inside) state = known.automaton->append(state, static_cast<std::uint8_t>(c));
  return known.automaton->accepting(state);
}

std::optional<Strings::Language> Strings::language(const Branch& branch, Lengths lengths, const Branch::Text** cause,
                                                   std::string* problem) {
  std::vector<std::string> good, bad;
  std::uint32_t least = 0, most = kUnlimited;
  const Pattern::Stretch* stretch = nullptr;
  Language out;
  for (const Branch::Text& text : branch.texts) {
    const Pattern& pattern = read(text.text, text.format);
    *cause = &text;
    out.assertive = out.assertive || pattern.assertive;
    if (!pattern.text.empty()) (text.negated ? bad : good).push_back(pattern.text);
    if (text.negated) continue;
    least = std::max(least, pattern.min_length), most = std::min(most, pattern.max_length);
    if (pattern.stretch.known) stretch = &pattern.stretch;
  }
  const bool bounded = branch.min_length > least || branch.max_length < most;
  const std::uint32_t from = std::max(branch.min_length, least), to = std::min(branch.max_length, most);
  const bool may_count = lengths != Lengths::kWrittenOut && branch.not_strings.empty();
  const bool may_count_both = may_count && lengths == Lengths::kCounted;
  const auto count = [&](std::string pattern, std::uint32_t low, std::uint32_t high) {
    out.pattern = std::move(pattern), out.counted = true;
    out.least = low, out.most = high == kUnlimited ? high : std::min(high, kMaxLength);
    return out;
  };
  if (good.empty() && bad.empty()) {
    if (branch.min_length > kMaxLength) {
      *problem = "texts of this length cannot be enforced";
      return std::nullopt;
    }
    if (may_count_both && (branch.max_length != Branch::kNoLimit || branch.min_length > kLongestWrittenOut))
      return count(any_text(plain_), branch.min_length, branch.max_length);
    out.pattern = repeated(any_character(plain_), branch.min_length, branch.max_length);
    return out;
  }
  if (good.size() == 1 && bad.empty() && stretch &&
      (bounded || (may_count_both && stretch->behind.empty() && stretch->is_long(kLongestWrittenOut)))) {
    const auto less = [&](std::uint32_t n) { return n > stretch->fixed ? n - stretch->fixed : 0; };
    const std::uint32_t low = std::max(stretch->least, less(branch.min_length));
    std::uint32_t high = stretch->most;
    if (branch.max_length != Branch::kNoLimit) high = std::min(high, less(branch.max_length));
    const auto longer_than = [&](std::uint32_t n) { return low > n || (high != kUnlimited && high > n); };
    if (low > high || stretch->fixed > branch.max_length)
      out.pattern = "[a&&b]";
    else if (may_count_both && stretch->behind.empty() && longer_than(kLongestWrittenOut))
      return count(stretch->before + repeated(stretch->unit, 0, kUnlimited), add(stretch->fixed, low),
                   add(stretch->fixed, high));
    else if (may_count_both && longer_than(kLongWrittenOut) && branch.min_length <= kMaxLength)
      return count(good[0], branch.min_length, branch.max_length);
    else
      out.pattern = stretch->before + repeated(stretch->unit, low, std::min(high, high == kUnlimited ? high : 6000u)) +
                    stretch->behind;
    return out;
  }
  if (!bounded && good.size() == 1 && bad.empty()) {
    out.pattern = good[0];
    return out;
  }
  const bool longer = branch.min_length > least, shorter = branch.max_length < most;
  const std::uint32_t low = longer ? branch.min_length : 0, high = shorter ? branch.max_length : kUnlimited;
  if (bounded && good.size() == 1 && bad.empty() && (may_count_both || (may_count && !longer)))
    return count(good[0], low, high);
  const auto combined = [&](std::uint32_t fewest, std::uint32_t greatest) {
    const std::string texts = repeated(any_character(plain_), fewest, greatest);
    std::string all;
    if (out.assertive) {  // (?not:...) has no assertions
      for (const std::string& text : good) all += "(?=" + text + "\\z)";
      for (const std::string& text : bad) all += "(?!" + text + "\\z)";
      return all + texts;
    }
    for (const std::string& text : good) all += "|(?not:" + text + ")";
    if (good.empty()) all += "|(?not:" + any_text(plain_) + ")";
    for (const std::string& text : bad) all += "|" + text;
    if (fewest != 0 || greatest != kUnlimited) all += "|(?not:" + texts + ")";
    return "(?not:" + all.substr(1) + ")";
  };
  if (!bounded) {
    out.pattern = combined(0, kUnlimited);
    return out;
  }
  if (may_count_both || (may_count && !longer)) return count(combined(0, kUnlimited), low, high);
  if (may_count) return count(combined(low, kUnlimited), 0, high);
  // a pattern with a length and excluded texts is a product of automata, which may be too large
  std::vector<std::uint32_t> tried{to};
  for (const std::uint32_t length : kTriedLengths)
    if (to > length && from < length && branch.max_length < most) tried.push_back(length);
  for (const std::uint32_t high : tried) {
    if (high != kUnlimited && high > kTriedLengths[0]) continue;
    out.pattern = combined(branch.min_length, high);
    bool empty = false;
    if (compile(out.pattern, &empty, problem) || empty) return out;
  }
  *problem = "this pattern cannot be combined with the lengths beside it: the automaton would be too large";
  return std::nullopt;
}

}  // namespace aici::json_schema
