#include "strings.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "aici/json_schema/document.hpp"
#include "aici/text.hpp"

// The formats of `format` as patterns.
#define DATE                                                                                                       \
  "(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"    \
  "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"                                            \
  "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
// for negations: with leap seconds, and whatever the days of a month are
#define ANY_DATE "[0-9]{4}-[0-9]{2}-[0-9]{2}"
#define ANY_TIME "[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define LABEL(most) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," most "}[A-Za-z0-9])?"
// labels with -- after two characters are encoded, and not every code is valid
#define PLAIN_LABEL(most)                                                                                         \
  "[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9]|[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0," \
  most "}[A-Za-z0-9])?"
// at most 253 characters: three long labels, a long one and six short ones, or eight short ones
#define LABELS(large, small) \
  "(?:" large "(?:(?:\\." large "){0,2}|(?:\\." small "){0,6})|" small "(?:\\." small "){0,7})"
#define HOSTNAME LABELS(LABEL("61"), LABEL("28"))
#define PLAIN_HOSTNAME LABELS(PLAIN_LABEL("58"), PLAIN_LABEL("25"))
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                    \
  "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16      \
  ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 \
  ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16        \
  ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
// for negations: with zeros in front, and with a zone
#define ANY_IPV4 "[0-9]+(?:\\.[0-9]+){3}"
#define ANY_IPV6 "[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%.*)?"
#define EMAIL ATOM "{1,64}(?:\\." ATOM "+)*@(?:" HOSTNAME "|\\[" IPV4 "\\]|\\[IPv6:" IPV6 "\\])"
#define HEX(many) "[0-9A-Fa-f]{" many "}"
#define UUID(version) HEX("8") "-" HEX("4") "-" version HEX("3") "-[89ABab]" HEX("3") "-" HEX("12")
#define PERCENT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PERCENT ")"
#define USERINFO "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PERCENT ")*"
#define REG_NAME "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PERCENT ")*"
#define AUTHORITY "(?:" USERINFO "@)?(?:\\[" IPV6 "\\]|" REG_NAME ")(?::[0-9]*)?"
#define TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define ROOTLESS PCHAR "+(?:/" PCHAR "*)*"
#define HIERARCHY "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" ROOTLESS ")?"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:" HIERARCHY "|(?:" ROOTLESS ")?)" TAIL
// the first part of a relative path has no colon, since it would be a scheme
#define NO_COLON "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PERCENT ")+"
#define RELATIVE HIERARCHY "|(?:" NO_COLON "(?:/" PCHAR "*)*)?)" TAIL
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define VARIABLE "(?:[A-Za-z0-9_]|" PERCENT ")+(?:\\*|:[1-9][0-9]{0,3})?"
// Regular expressions of ECMAScript with the flag u. Its quantifiers need an atom, and {n,m} needs n <= m.
#define REGEX_BOUNDS                                                                                            \
  "0,[0-9]{1,3}|1,[1-9][0-9]{0,2}|2,(?:[2-9]|[1-9][0-9]{1,2})|3,(?:[3-9]|[1-9][0-9]{1,2})|"                     \
  "4,(?:[4-9]|[1-9][0-9]{1,2})|5,(?:[5-9]|[1-9][0-9]{1,2})|6,(?:[6-9]|[1-9][0-9]{1,2})|"                        \
  "7,(?:[7-9]|[1-9][0-9]{1,2})|8,(?:[89]|[1-9][0-9]{1,2})|9,(?:9|[1-9][0-9]{1,2})|[1-9][0-9],[1-9][0-9]{2}"
#define REGEX_QUANTIFIER "(?:(?:[*+?]|\\{(?:[0-9]{1,3},?|" REGEX_BOUNDS ")\\})[?]?)?"
#define REGEX_ESCAPE(more) "\\\\(?:[dDsSwWfnrtv.*+?()\\[\\]{}^$|/\\\\" more "]|x" HEX("2") "|u" HEX("4") ")"
#define REGEX_RANGE                                                                                             \
  "a-[a-z]|[a-z]-z|A-[A-Z]|[A-Z]-Z|0-[0-9]|1-[1-9]|2-[2-9]|3-[3-9]|4-[4-9]|5-[5-9]|6-[6-9]|7-[7-9]|8-[89]|9-9"
#define REGEX_CLASS "\\[\\^?-?(?:[^\\\\\\[\\]^-]|" REGEX_RANGE "|" REGEX_ESCAPE("-") ")+-?\\]"
#define REGEX_ATOM "[^\\\\^$.*+?()\\[\\]{}|]|\\.|" REGEX_ESCAPE("") "|" REGEX_CLASS
#define REGEX_ASSERTION "[|^$]|\\\\[bB]"
#define REGEX_WITH(group) "(?:(?:" REGEX_ATOM group ")" REGEX_QUANTIFIER "|" REGEX_ASSERTION ")*"
#define REGEX_GROUP(inside) "|\\((?:\\?:)?" inside "\\)"
#define REGEX_NESTED REGEX_WITH(REGEX_GROUP(REGEX_WITH("")))
#define REGEX                                                                                                   \
  "(?:(?:" REGEX_ATOM REGEX_GROUP(REGEX_NESTED) ")" REGEX_QUANTIFIER "|" REGEX_ASSERTION                        \
  "|\\(\\?[=!]" REGEX_WITH("") "\\))*"

namespace aici::json_schema {

namespace {

constexpr Format kFormats[] = {
    {"date", "^" DATE "$", "^" ANY_DATE "$"},
    {"time", "^" TIME "$", "^" ANY_TIME "$"},
    {"date-time", "^" DATE "[Tt]" TIME "$", "^" ANY_DATE "[Tt ]" ANY_TIME "$"},
    {"duration", "^P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:" DURATION_TIME
                 ")?|" DURATION_TIME ")$", "^P[0-9A-Z.,]*$"},
    {"email", "^" EMAIL "$", "@"},
    {"idn-email", "^" EMAIL "$", "@"},
    {"hostname", "^" PLAIN_HOSTNAME "$", "^[A-Za-z0-9._-]*$"},
    {"idn-hostname", "^" PLAIN_HOSTNAME "$", "^[A-Za-z0-9._\\u0080-\\u{10ffff}-]*$"},
    {"ipv4", "^" IPV4 "$", "^" ANY_IPV4 "$"},
    {"ipv6", "^" IPV6 "$", "^" ANY_IPV6 "$"},
    {"uri", "^" URI "$", "^[A-Za-z][A-Za-z0-9+.-]*:"},
    {"iri", "^" URI "$", "^[A-Za-z][A-Za-z0-9+.-]*:"},
    {"uri-reference", "^(?:" URI "|" RELATIVE ")$", "^[^\\u0000- \"<>\\\\^`{|}]*$"},
    {"iri-reference", "^(?:" URI "|" RELATIVE ")$", "^[^\\u0000- \"<>\\\\^`{|}]*$"},
    {"uri-template", "^(?:[A-Za-z0-9._~!$&()*+,;=:@/?#\\[\\]-]|" PERCENT "|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE
                     ")*\\})*$", "^[^\\u0000- \"<>\\\\^`|]*$"},
    {"uuid", "^" HEX("8") "-" HEX("4") "-" HEX("4") "-" HEX("4") "-" HEX("12") "$"},
    {"json-pointer", "^" POINTER "$"},
    {"relative-json-pointer", "^(?:0|[1-9][0-9]*)(?:#|" POINTER ")$"},
    {"regex", "^" REGEX "$", "^"},
    // formats that are not in JSON Schema but in OpenAPI
    {"int8", "", "", "-128", "127"},
    {"int16", "", "", "-32768", "32767"},
    {"int32", "", "", "-2147483648", "2147483647"},
    {"int64", "", "", "-9223372036854775808", "9223372036854775807"},
    {"uint8", "", "", "0", "255"},
    {"uint16", "", "", "0", "65535"},
    {"uint32", "", "", "0", "4294967295"},
    {"uint64", "", "", "0", "18446744073709551615"},
    {"byte", "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$", "^[A-Za-z0-9+/=\\s]*$"},
    {"base64url", "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?$", "^[A-Za-z0-9_=-]*$"},
    {"float", ""},
    {"double", ""},
    {"password", ""},
    {"binary", ""},
    // formats of pydantic
    {"uuid1", "^" UUID("1") "$"},
    {"uuid3", "^" UUID("3") "$"},
    {"uuid4", "^" UUID("4") "$"},
    {"uuid5", "^" UUID("5") "$"},
    {"uuid6", "^" UUID("6") "$"},
    {"uuid7", "^" UUID("7") "$"},
    {"uuid8", "^" UUID("8") "$"},
    {"ipvanyaddress", "^(?:" IPV4 "|" IPV6 ")$", "^(?:" ANY_IPV4 "|" ANY_IPV6 ")$"},
    {"path", ""},
};

/// Shorter names are too often names of their own that differ from a known one in one letter, such as `url`.
constexpr std::size_t kMinToCompare = 6;

/// Returns the letters and digits of a name, in lower case.
std::string letters(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out += c;
  return out;
}

bool has_digit(std::string_view text) { return text.find_first_of("0123456789") != std::string_view::npos; }

/// Returns whether one letter is replaced, missing or added, or two neighbours are exchanged.
bool one_apart(std::string_view a, std::string_view b) {
  if (a.size() < b.size()) std::swap(a, b);
  if (a.size() > b.size() + 1) return false;
  std::size_t at = 0;
  while (at < b.size() && a[at] == b[at]) at++;
  const std::string_view rest = a.substr(at), other = b.substr(at);
  if (a.size() > b.size()) return rest.substr(1) == other;
  if (rest.size() < 2) return true;
  return rest.substr(1) == other.substr(1) ||
         (rest[0] == other[1] && rest[1] == other[0] && rest.substr(2) == other.substr(2));
}

}  // namespace

const Format* find_format(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) return &format;
  return nullptr;
}

std::string_view similar_format(std::string_view name) {
  const std::string given = letters(name);
  for (const Format& format : kFormats) {
    const std::string known = letters(format.name);
    if (given == known) return format.name;
    const bool comparable = given.size() >= kMinToCompare && !has_digit(given) && !has_digit(known);
    if (comparable && one_apart(given, known)) return format.name;
  }
  return {};
}

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

void Strings::keep_compiled(bool keep) { preparing = keep; }

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

Strings::Known& Strings::known(std::string_view text, bool format, bool negated) {
  const auto [found, added] = known_.try_emplace({std::string(text), format, format && negated});
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
    known.pattern = read_ecma(negated && !meant->wide.empty() ? meant->wide : meant->pattern, plain_);
  }
  return known;
}

bool Strings::exclude_each_other(const Branch& branch) {
  const auto plain = [](const Branch::Text& text) { return !text.format && !text.negated; };
  if (branch.texts.size() != 2 || !std::ranges::all_of(branch.texts, plain)) return false;
  const auto [found, added] = excluding_.try_emplace({branch.texts[0].text, branch.texts[1].text}, false);
  if (!added) return found->second;
  Branch both;
  both.texts = branch.texts;
  const Branch::Text* cause = nullptr;
  std::string problem;
  const std::optional<Language> together = language(both, Lengths::kWrittenOut, &cause, &problem);
  return found->second = together && compile(together->pattern, &found->second, &problem) == nullptr && found->second;
}

bool Strings::ignores_format(std::string_view name) const {
  return !refuse_unknown_formats_ && !find_format(name) && similar_format(name).empty();
}

const Pattern& Strings::read(std::string_view text, bool format, bool negated) {
  return known(text, format, negated).pattern;
}

std::optional<bool> Strings::matches(std::string_view text, bool format, std::string_view string, bool negated) {
  Known& known = this->known(text, format, negated);
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
    const Pattern& pattern = read(text.text, text.format, text.negated);
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
      (bounded || (may_count_both && stretch->after.empty() && stretch->is_long(kLongestWrittenOut)))) {
    const auto less = [&](std::uint32_t n) { return n > stretch->fixed ? n - stretch->fixed : 0; };
    const std::uint32_t low = std::max(stretch->least, less(branch.min_length));
    std::uint32_t high = stretch->most;
    if (branch.max_length != Branch::kNoLimit) high = std::min(high, less(branch.max_length));
    const auto longer_than = [&](std::uint32_t n) { return low > n || (high != kUnlimited && high > n); };
    if (low > high || stretch->fixed > branch.max_length)
      out.pattern = "[a&&b]";
    else if (may_count_both && stretch->after.empty() && longer_than(kLongestWrittenOut))
      return count(stretch->before + repeated(stretch->unit, 0, kUnlimited), add(stretch->fixed, low),
                   add(stretch->fixed, high));
    else if (may_count_both && longer_than(kLongWrittenOut) && branch.min_length <= kMaxLength)
      return count(good[0], branch.min_length, branch.max_length);
    else
      out.pattern = stretch->before + repeated(stretch->unit, low, std::min(high, high == kUnlimited ? high : 6000u)) +
                    stretch->after;
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
