// Parses a regular expression of ECMAScript.
#include <algorithm>

#include "../regex/unicode.hpp"
#include "strings.hpp"

namespace aici::json_schema {
namespace {

using regex::CodepointSet;
using Kind = EcmaNode::Kind;

constexpr std::uint32_t kEnd = 0xffffffff;
constexpr std::size_t kMaxGroups = 200;
constexpr std::uint32_t kMaxRepeat = 65535;

CodepointSet digits() { return CodepointSet('0', '9'); }
CodepointSet words() {
  CodepointSet set('0', '9');
  set.add('A', 'Z');
  set.add('_', '_');
  set.add('a', 'z');
  return set;
}
CodepointSet line_ends() {
  CodepointSet set('\n', '\n');
  set.add('\r', '\r');
  set.add(0x2028, 0x2029);
  return set;
}

/// Returns WhiteSpace and LineTerminator of ECMAScript.
CodepointSet blanks() {
  CodepointSet set('\t', '\r');
  for (const std::uint32_t c : {0x20u, 0xA0u, 0x1680u}) set.add(c, c);
  set.add(0x2000, 0x200A);
  set.add(0x2028, 0x2029);
  for (const std::uint32_t c : {0x202Fu, 0x205Fu, 0x3000u, 0xFEFFu}) set.add(c, c);
  return set;
}

/// Keeps groups on its own stack, without recursion.
class Parser {
 public:
  Parser(std::string_view source, EcmaTree* tree) : source_(source), tree_(*tree) {}

  bool run() {
    groups_.push_back({});
    while (peek() != kEnd)
      if (!term()) return false;
    if (groups_.size() > 1) return fail("a group is not closed");
    const std::uint32_t whole = close_group();
    if (whole + 1 != tree_.nodes.size()) add({.kind = Kind::kConcat, .children = {whole}});
    return true;
  }
  std::string problem() const {
    return "the pattern is not supported: " + problem_ + " (at byte " + std::to_string(at_) + ")";
  }

 private:
  /// Set by (?i) and (?s) for the rest of a group, and by (?i:...) for a group.
  struct Flags {
    bool ignore_case = false, dot_all = false;
  };
  struct Group {
    Kind kind = Kind::kConcat;
    Flags flags{};
    std::vector<std::uint32_t> alternatives{}, items{};
  };

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  std::uint32_t peek() const {
    std::size_t at = at_;
    return at < source_.size() ? regex::decode_utf8(source_, &at) : kEnd;
  }
  std::uint32_t take() { return at_ < source_.size() ? regex::decode_utf8(source_, &at_) : kEnd; }
  bool accept(std::string_view text) {
    if (!source_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  std::uint32_t add(EcmaNode node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
  }
  bool item(EcmaNode node) {
    groups_.back().items.push_back(add(std::move(node)));
    return true;
  }
  /// Returns the characters that match one of the set.
  CodepointSet folded(const CodepointSet& set) const {
    return groups_.back().flags.ignore_case ? regex::fold_case(set) : set;
  }
  bool character(const CodepointSet& set) {
    tree_.sets.push_back(set);
    return item({.kind = Kind::kClass, .set = static_cast<std::uint32_t>(tree_.sets.size() - 1)});
  }
  std::uint32_t close_concat(Group* group) {
    if (group->items.size() == 1) {
      const std::uint32_t only = group->items[0];
      group->items.clear();
      return only;
    }
    return add({.kind = Kind::kConcat, .children = std::move(group->items)});
  }
  std::uint32_t close_group() {
    Group group = std::move(groups_.back());
    groups_.pop_back();
    group.alternatives.push_back(close_concat(&group));
    std::uint32_t body = group.alternatives[0];
    if (group.alternatives.size() > 1)
      body = add({.kind = Kind::kAlternate, .children = std::move(group.alternatives)});
    if (group.kind != Kind::kConcat) body = add({.kind = group.kind, .children = {body}});
    return body;
  }
  bool term();
  bool open();
  bool modifiers();
  bool quantifier();
  bool braces(std::uint32_t* min, std::uint32_t* max);
  bool escape();
  bool class_escape(std::uint32_t c, CodepointSet* set, bool* found);
  bool character_escape(std::uint32_t c, std::uint32_t* out);
  bool hex(std::size_t count, std::uint32_t* out);
  bool unicode_escape(std::uint32_t* out);
  bool property(bool negated, CodepointSet* set);
  bool bracket();
  bool bracket_member(CodepointSet* set, std::uint32_t* single);
  bool number(std::uint32_t* out);

  std::string_view source_;
  EcmaTree& tree_;
  std::size_t at_ = 0;
  std::string problem_;
  std::vector<Group> groups_;
};

bool Parser::term() {
  if (accept("(")) return open();
  const std::uint32_t c = take();
  std::uint32_t body = 0;
  switch (c) {
    case ')':
      if (groups_.size() == 1) return fail("`)` without `(`");
      body = close_group();
      groups_.back().items.push_back(body);
      return quantifier();
    case '|': groups_.back().alternatives.push_back(close_concat(&groups_.back())); return true;
    case '^': return item({.kind = Kind::kStart});
    case '$': return item({.kind = Kind::kEnd});
    case '.':
      character(groups_.back().flags.dot_all ? CodepointSet::all() : line_ends().complement());
      return quantifier();
    case '[': return bracket() && quantifier();
    case '\\': return escape();
    case '*':
    case '+':
    case '?': return fail("nothing to repeat");
    case '{':
    case '}':
    case ']':
      // without the flag u, these stand for themselves
      character(CodepointSet(c, c));
      return quantifier();
    default: character(folded(CodepointSet(c, c))); return quantifier();
  }
}

bool Parser::open() {
  if (groups_.size() > kMaxGroups) return fail("groups are nested too deeply");
  Group group{.flags = groups_.back().flags};
  if (accept("?:")) {
  } else if (accept("?=")) {
    group.kind = Kind::kAhead;
  } else if (accept("?!")) {
    group.kind = Kind::kNotAhead;
  } else if (accept("?<=")) {
    group.kind = Kind::kBehind;
  } else if (accept("?<!")) {
    group.kind = Kind::kNotBehind;
  } else if (accept("?<") || accept("?P<")) {
    while (peek() != '>' && peek() != kEnd) take();
    if (!accept(">")) return fail("the name of a group does not end");
  } else if (accept("?")) {
    return modifiers();
  }
  groups_.push_back(std::move(group));
  return true;
}

/// Reads the rest of (?i), as in Rust and Python, or of (?i:.
bool Parser::modifiers() {
  Flags flags = groups_.back().flags;
  for (bool on = true, any = false;;) {
    if (accept("i")) {
      flags.ignore_case = on, any = true;
    } else if (accept("s")) {
      flags.dot_all = on, any = true;
    } else if (on && accept("-")) {
      on = any = false;
    } else if (any && accept(":")) {
      groups_.push_back({.flags = flags});
      return true;
    } else if (any && accept(")")) {
      groups_.back().flags = flags;
      return true;
    } else {
      return fail("an unknown kind of group, or a flag other than i and s");
    }
  }
}

bool Parser::number(std::uint32_t* out) {
  const std::size_t from = at_;
  for (*out = 0; at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '9'; at_++)
    *out = std::min<std::uint32_t>(*out * 10 + static_cast<std::uint32_t>(source_[at_] - '0'), 1'000'000);
  return at_ > from;
}

/// Reads `{2}`, `{2,}` or `{2,3}`; returns false for anything else, which stands for itself.
bool Parser::braces(std::uint32_t* min, std::uint32_t* max) {
  const std::size_t from = at_;
  if (accept("{") && number(min)) {
    *max = *min;
    if (accept("}")) return true;
    if (accept(",")) {
      if (!number(max)) *max = kUnlimited;
      if (accept("}")) return true;
    }
  }
  at_ = from;
  return false;
}

bool Parser::quantifier() {
  std::uint32_t min = 0, max = kUnlimited;
  if (accept("+"))
    min = 1;
  else if (accept("?"))
    max = 1;
  else if (!accept("*") && !braces(&min, &max))
    return true;
  if (min > kMaxRepeat || (max != kUnlimited && max > kMaxRepeat)) return fail("a repetition this large");
  if (min > max) return fail("a repetition whose minimum is above its maximum");
  accept("?");
  if (peek() == '*' || peek() == '+' || peek() == '?') return fail("nothing to repeat");
  std::uint32_t& last = groups_.back().items.back();
  last = add({.kind = Kind::kRepeat, .min = min, .max = max, .children = {last}});
  return true;
}

bool Parser::escape() {
  const std::uint32_t c = take();
  if (c == 'b') return item({.kind = Kind::kBoundary});
  if (c == 'B') return item({.kind = Kind::kNoBoundary});
  // not in ECMAScript, which has no meaning for them with the flag u; \Z means different things to Perl and Python
  if (c == 'A') return item({.kind = Kind::kStart});
  if (c == 'z') return item({.kind = Kind::kEnd});
  if (c == 'Z') return fail("\\Z, on which dialects disagree: write $");
  if (c >= '1' && c <= '9') return fail("a back-reference");
  if (c == 'k') return fail("a back-reference");
  CodepointSet set;
  bool found = false;
  if (!class_escape(c, &set, &found)) return false;
  if (!found) {
    std::uint32_t value = 0;
    if (!character_escape(c, &value)) return false;
    set = CodepointSet(value, value);
  }
  character(folded(set));
  return quantifier();
}

bool Parser::class_escape(std::uint32_t c, CodepointSet* set, bool* found) {
  *found = true;
  switch (c) {
    case 'd': *set = digits(); return true;
    case 'D': *set = digits().complement(); return true;
    case 'w': *set = folded(words()); return true;
    case 'W': *set = folded(words()).complement(); return true;
    case 's': *set = blanks(); return true;
    case 'S': *set = blanks().complement(); return true;
    case 'p':
    case 'P': return property(c == 'P', set);
    default: *found = false; return true;
  }
}

bool Parser::property(bool negated, CodepointSet* set) {
  if (!accept("{")) return fail("`{` is expected after \\p");
  const std::size_t end = source_.find('}', at_);
  if (end == std::string_view::npos) return fail("the name of a property does not end");
  if (!regex::find_property(source_.substr(at_, end - at_), set)) return fail("an unknown property");
  if (negated) *set = set->complement();
  at_ = end + 1;
  return true;
}

bool Parser::hex(std::size_t count, std::uint32_t* out) {
  *out = 0;
  for (std::size_t i = 0; i < count; i++, at_++) {
    const char c = at_ < source_.size() ? source_[at_] : '\0', small = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9')
      *out = *out * 16 + static_cast<std::uint32_t>(c - '0');
    else if (small >= 'a' && small <= 'f')
      *out = *out * 16 + static_cast<std::uint32_t>(small - 'a' + 10);
    else
      return fail("a hexadecimal digit is expected");
  }
  return true;
}

bool Parser::unicode_escape(std::uint32_t* out) {
  if (accept("{")) {
    std::uint32_t digit = 0, value = 0;
    while (!accept("}")) {
      if (!hex(1, &digit)) return false;
      value = value * 16 + digit;
      if (value > regex::kMaxCodepoint) return fail("no character has this number");
    }
    *out = value;
  } else {
    if (!hex(4, out)) return false;
    std::uint32_t low = 0;
    if (*out >= 0xD800 && *out < 0xDC00 && accept("\\u")) {
      if (!hex(4, &low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return fail("half of a pair of surrogates");
      *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  return regex::is_scalar(*out) || fail("half of a pair of surrogates");
}

bool Parser::character_escape(std::uint32_t c, std::uint32_t* out) {
  static constexpr std::string_view kNames = "tnvfr", kMeanings = "\t\n\v\f\r";
  if (c < 0x80)
    if (const std::size_t which = kNames.find(static_cast<char>(c)); which != std::string_view::npos) {
      *out = static_cast<unsigned char>(kMeanings[which]);
      return true;
    }
  if (c == kEnd) return fail("the pattern ends with a backslash");
  if (c == '0') {
    *out = 0;
    return (peek() < '0' || peek() > '9') || fail("an octal escape");
  }
  if (c == 'x') return hex(2, out);
  if (c == 'u') return unicode_escape(out);
  if (c == 'c') {
    const std::uint32_t letter = take();
    if ((letter | 0x20) < 'a' || (letter | 0x20) > 'z') return fail("a letter is expected after \\c");
    *out = letter & 31;
    return true;
  }
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return fail("an unknown escape");
  *out = c;
  return true;
}

/// Reads one member of a class; *single is kEnd if it stands for several characters.
bool Parser::bracket_member(CodepointSet* set, std::uint32_t* single) {
  std::uint32_t c = take();
  if (c == kEnd) return fail("a class is not closed");
  if (c == '\\') {
    bool found = false;
    c = take();
    if (c == 'b') {
      c = '\b';
    } else {
      if (!class_escape(c, set, &found)) return false;
      if (found) {
        *single = kEnd;
        return true;
      }
      if (c >= '1' && c <= '9') return fail("an octal escape");
      if (c != '-' && !character_escape(c, &c)) return false;
    }
  }
  *set = CodepointSet(c, c);
  *single = c;
  return true;
}

bool Parser::bracket() {
  CodepointSet all;
  const bool negated = accept("^");
  while (!accept("]")) {
    CodepointSet low, high;
    std::uint32_t from = 0, to = 0;
    if (!bracket_member(&low, &from)) return false;
    if (peek() == '-' && source_.substr(at_).size() > 1 && source_[at_ + 1] != ']') {
      const std::size_t hyphen = at_;
      at_++;
      if (!bracket_member(&high, &to)) return false;
      if (from == kEnd || to == kEnd) {
        // [\w-x]: without the flag u the hyphen stands for itself
        low.add(CodepointSet('-', '-'));
        low.add(high);
      } else if (from > to) {
        at_ = hyphen;
        return fail("a range that begins after its end");
      } else {
        low = CodepointSet(from, to);
      }
    }
    all.add(low);
  }
  all = folded(all);
  character(negated ? all.complement() : all);
  return true;
}

}  // namespace

bool parse_ecma(std::string_view source, EcmaTree* tree, std::string* problem) {
  Parser parser(source, tree);
  if (parser.run()) return true;
  *problem = parser.problem();
  return false;
}

}  // namespace aici::json_schema
