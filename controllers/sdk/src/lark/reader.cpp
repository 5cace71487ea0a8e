// Reads a grammar in the dialect of Lark: its definitions and directives, and the terminals of `common`.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici.h"
#include "aici/cfg/grammar.hpp"
#include "../front/rules.hpp"
#include "syntax.hpp"

namespace aici::lark {

namespace {

using front::Source;
using Kind = LarkNode::Kind;

/// The terminals that a grammar may import from `common`, as regular expressions.
constexpr std::pair<std::string_view, const char*> kCommon[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\.)*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "(?s)/\\*(?until:\\*/)"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/// Returns the regular expression of a terminal, or null.
const char* common_terminal(std::string_view name) {
  for (const auto& [known, pattern] : kCommon)
    if (known == name) return pattern;
  return nullptr;
}

/// Returns the names of all terminals, for messages.
std::string common_names() {
  std::string names;
  for (const auto& [name, pattern] : kCommon) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

/// Maximum count of a repetition, since counted repetitions are expanded.
constexpr std::uint32_t kMaxTimes = 10'000;

/// Reads the body of a rule or terminal, after the colon.
class BodyReader {
 public:
  /// Adds nodes to `nodes`.
  BodyReader(front::Source& source, std::vector<LarkNode>* nodes) : source_(source), nodes_(*nodes) {}

  /// Reads up to the next definition or directive. `from` is the start of this definition.
  Part read(std::size_t from);
  /// Reads a text, a pattern, a name, or the value of %json or %regex.
  Part read_atom();

 private:
  using Nest = front::Nest<Part>;
  /// Placeholders for `~` and `&` in a sequence while it is read.
  static constexpr Part kNotMark = 0xffffffff, kBothMark = 0xfffffffe;

  Part add(LarkNode node) {
    nodes_.push_back(std::move(node));
    return static_cast<Part>(nodes_.size() - 1);
  }
  void push(Nest& nest, Part part);
  Part choice(const Nest::Level& level, std::size_t at);
  Part both(const std::vector<Part>& marked, std::size_t at);
  Part read_text(std::size_t at);
  std::string range(const std::string& low, const std::string& high, std::size_t at);
  Part read_postfix(Part part);
  void read_counts(std::size_t at, std::uint32_t* least, std::uint32_t* most);

  front::Source& source_;
  std::vector<LarkNode>& nodes_;
};

Part BodyReader::read(std::size_t from) {
  Nest nest;
  for (;;) {
    skip_lark_blanks(source_);
    const std::size_t at = source_.at();
    const char c = source_.peek();
    if (c == '(' || c == '[') {
      source_.move(1);
      nest.open(source_, c == '(' ? ')' : ']', at);
    } else if (source_.accept("|")) {
      nest.next_alternative();
    } else if (source_.accept("->")) {
      skip_lark_spaces(source_);
      if (take_lark_name(source_).empty()) source_.fail_here("a name after `->`");
    } else if (nest.inside() && c == nest.close()) {
      source_.move(1);
      const Nest::Level level = nest.pop();
      Part inside = choice(level, level.at);
      if (nest.is_deep()) inside = add({Kind::kGroup, level.at, {}, {inside}});
      push(nest, c == ']' ? add({Kind::kRepeat, at, {}, {inside}, 0, 1}) : inside);
    } else if (source_.accept("%if")) {
      LarkNode node{Kind::kIf, at};
      node.condition = read_lark_condition(source_);
      nest.sequence().push_back(add(std::move(node)));
    } else if (c == '~' || c == '&') {
      source_.move(1);
      // applied when the sequence is complete
      nest.sequence().push_back(c == '~' ? kNotMark : kBothMark);
    } else if (source_.at_end() || at_lark_directive(source_) || at_lark_definition(source_)) {
      if (nest.inside()) nest.fail_open(source_);
      return choice(nest.pop(), from);
    } else {
      push(nest, read_atom());
    }
  }
}

/// `~` applies first, then repetitions.
void BodyReader::push(Nest& nest, Part part) {
  auto& sequence = nest.sequence();
  while (!sequence.empty() && sequence.back() == kNotMark) {
    sequence.pop_back();
    part = add({Kind::kNot, nodes_[part].at, {}, {part}});
  }
  sequence.push_back(read_postfix(part));
}

Part BodyReader::choice(const Nest::Level& level, std::size_t at) {
  std::vector<Part> all;
  for (const auto& sequence : level.alternatives) all.push_back(both(sequence, at));
  return all.size() == 1 ? all[0] : add({Kind::kChoice, at, {}, std::move(all)});
}

Part BodyReader::both(const std::vector<Part>& marked, std::size_t at) {
  std::vector<Part> all, sequence;
  if (!marked.empty() && marked[0] < kBothMark) at = nodes_[marked[0]].at;
  for (const Part part : marked) {
    if (part == kNotMark) source_.fail(at, "`~` must be followed by an expression");
    if (part != kBothMark) {
      sequence.push_back(part);
    } else {
      all.push_back(add({Kind::kSequence, at, {}, std::exchange(sequence, {})}));
    }
  }
  const Part last = sequence.size() == 1 ? sequence[0] : add({Kind::kSequence, at, {}, std::move(sequence)});
  if (all.empty()) return last;
  all.push_back(last);
  return add({Kind::kBoth, at, {}, std::move(all)});
}

Part BodyReader::read_atom() {
  const std::size_t at = source_.at();
  const char c = source_.peek();
  if (c == '"') return read_text(at);
  if (c == '/') return add({Kind::kPattern, at, take_lark_pattern(source_)});
  if (source_.accept("%json")) {
    LarkNode node{Kind::kJson, at, std::string(take_lark_schema(source_))};
    node.text_at = source_.at() - node.text.size();
    return add(std::move(node));
  }
  if (source_.accept("%lark")) {
    LarkNode node{Kind::kLark, at, std::string(take_lark_grammar(source_))};
    node.text_at = source_.at() - 1 - node.text.size();
    return add(std::move(node));
  }
  if (source_.accept("%regex")) {
    LarkNode node{.kind = Kind::kChunks, .at = at};
    node.characters = read_chunks(source_, take_lark_object(source_), at, &node.chunks);
    return add(std::move(node));
  }
  if (c == '\'') source_.fail(at, "texts need double quotes");
  if (c == '<') {
    LarkNode node{Kind::kTokens, at};
    node.tokens = front::take_tokens(source_, &node.text);
    if (node.tokens.empty()) node.kind = Kind::kText;
    return add(std::move(node));
  }
  if (c == '@') source_.fail(at, "other grammars cannot be named here: there is only this one");
  const std::string name(take_lark_name(source_));
  if (name.empty()) source_.fail_here("a text, a pattern, a name or a bracket");
  if (source_.peek() == '{' && !front::is_digit(source_.peek(1)) && source_.peek(1) != ',')
    source_.fail(source_.at(), "templates are not supported: write a rule for each use");
  LarkNode node{Kind::kName, at, name};
  if (source_.accept("::")) node.parameter = read_lark_function(source_);
  return add(std::move(node));
}

Part BodyReader::read_text(std::size_t at) {
  const std::string text = take_lark_text(source_);
  if (source_.next_is("..")) {
    source_.move(2);
    if (source_.peek() != '"') source_.fail_here("the last character of a range");
    return add({Kind::kPattern, at, range(text, take_lark_text(source_), at)});
  }
  if (source_.peek() == 'i' && !front::is_word(source_.peek(1))) {
    source_.move(1);
    return add({Kind::kPattern, at, "(?i:" + front::pattern_of(text) + ")"});
  }
  return add({Kind::kText, at, text});
}

std::string BodyReader::range(const std::string& low, const std::string& high, std::size_t at) {
  Source first(low), last(high);
  if (low.empty() || high.empty()) source_.fail(at, "a range has a character on each side");
  const char32_t a = first.take_character(), b = last.take_character();
  if (!first.at_end() || !last.at_end()) source_.fail(at, "a range has one character on each side");
  if (b < a) source_.fail(at, "this range is empty: its first character comes after its last");
  return "[" + front::pattern_of(a) + "-" + front::pattern_of(b) + "]";
}

Part BodyReader::read_postfix(Part part) {
  skip_lark_spaces(source_);
  const std::size_t at = source_.at();
  std::uint32_t least = 0, most = cfg::kNoLimit;
  if (source_.peek() == '~' && (source_.peek(1) == ' ' || front::is_digit(source_.peek(1)))) {
    source_.move(1);
    skip_lark_spaces(source_);
    if (!front::is_digit(source_.peek())) source_.fail(at, "a repetition is ~3 or ~3..5");
    least = most = front::take_number(source_, kMaxTimes);
    if (source_.accept("..")) {
      if (!front::is_digit(source_.peek())) source_.fail(at, "a repetition is ~3 or ~3..5");
      most = front::take_number(source_, kMaxTimes);
    }
  } else if (source_.accept("{")) {
    read_counts(at, &least, &most);
  } else if (source_.accept("?")) {
    most = 1;
  } else if (source_.accept("+")) {
    least = 1;
  } else if (!source_.accept("*")) {
    return part;
  }
  if (most < least) source_.fail(at, "this repetition is empty: its minimum is above its maximum");
  return add({Kind::kRepeat, at, {}, {part}, least, most});
}

/// Reads {3}, {3,}, {,5} or {3,5}.
void BodyReader::read_counts(std::size_t at, std::uint32_t* least, std::uint32_t* most) {
  const bool has_least = front::is_digit(source_.peek());
  if (has_least) *least = front::take_number(source_, kMaxTimes);
  if (!source_.accept(","))
    *most = *least;
  else if (front::is_digit(source_.peek()))
    *most = front::take_number(source_, kMaxTimes);
  else if (!has_least)
    source_.fail(at, "a repetition is {3}, {3,}, {,5} or {3,5}");
  if (!source_.accept("}")) source_.fail(at, "a repetition is {3}, {3,}, {,5} or {3,5}");
}

/// Attributes that do more than restrict the texts, with a replacement to suggest.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"stop", "`stop` removes its text, which a grammar cannot do: suffix=\"...\" ends with the same text "
             "and keeps it"},
    {"max_tokens", "`max_tokens` counts tokens, but a grammar describes text: limit the characters in the "
                   "pattern, as in /.{0,200}/"},
};

class Reader {
 public:
  explicit Reader(Source& source) : source_(source), body_(source, &out_.nodes) {
    for (skip_lark_blanks(source_); !source_.at_end(); skip_lark_blanks(source_))
      source_.peek() == '%' ? read_directive() : read_definition();
  }
  LarkSyntax take() { return std::move(out_); }

 private:
  Part next() const { return static_cast<Part>(out_.nodes.size()); }

  void read_definition() {
    const std::size_t at = source_.at();
    if (!at_lark_definition(source_)) source_.fail_here("a rule, `name: ...`, or a directive such as %ignore");
    while (source_.peek() == '?' || source_.peek() == '!') source_.move(1);
    const std::string name(take_lark_name(source_));
    const bool is_terminal = is_terminal_name(name);
    LarkDefinition made{name, at, next(), 0};
    skip_lark_spaces(source_);
    if (source_.peek() == '{') source_.fail(source_.at(), "templates are not supported: write a rule for each use");
    made.has_parameter = source_.accept("::_");
    if (made.has_parameter && is_terminal) source_.fail(at, "a terminal has no parameter: only rules have");
    read_priority();
    if (source_.peek() == '[') {
      if (is_terminal) source_.fail(source_.at(), "a terminal has no attributes: only rules have, whose names begin with a small letter");
      read_attributes(made);
    }
    read_priority();
    if (!source_.accept(":")) source_.fail_here("`:` after the name");
    made.body = body_.read(at);
    note(name, at);
    (is_terminal ? out_.terminals : out_.rules).push_back(std::move(made));
  }

  void note(const std::string& name, std::size_t at) {
    if (const auto [known, is_new] = places_.emplace(name, at); !is_new)
      source_.fail(at, "there is a definition of " + name + " already, in " + source_.place(known->second));
  }

  /// Skips a priority. It has no effect, since all lexemes that match are followed.
  void read_priority() {
    skip_lark_spaces(source_);
    if (!source_.accept(".")) return;
    source_.accept("-");
    if (!front::is_digit(source_.peek())) source_.fail_here("a number after `.`");
    while (front::is_digit(source_.peek())) source_.move(1);
    skip_lark_spaces(source_);
  }

  /// Reads attributes such as [lazy, suffix="x", capture].
  void read_attributes(LarkDefinition& made) {
    const std::size_t begin = source_.at();
    source_.move(1);
    for (;;) {
      skip_lark_blanks(source_);
      const std::size_t at = source_.at();
      const std::string_view name = take_lark_name(source_);
      skip_lark_spaces(source_);
      const bool has_value = source_.accept("=");
      skip_lark_spaces(source_);
      if (name == "lazy" && !has_value) {
        made.lazy = true;
      } else if (name == "suffix" && has_value) {
        made.lazy = true;
        made.suffix = body_.read_atom();
      } else if (name == "temperature" && has_value) {
        made.temperature = read_temperature();
      } else if (name == "capture" || (name == "stop_capture" && has_value)) {
        (name == "capture" ? made.capture : made.suffix_capture) = has_value ? read_capture() : made.name;
      } else {
        for (const auto& [refused, why] : kRefused)
          if (name == refused) source_.fail(at, why);
        source_.fail(at, "`" + std::string(name) + (has_value ? "=" : "") + "` is not an attribute; allowed are lazy, "
                         "suffix=\"...\", temperature=0.5, capture, capture=\"...\" and stop_capture=\"...\"");
      }
      skip_lark_blanks(source_);
      if (source_.accept("]")) break;
      if (!source_.accept(",")) source_.fail_here("`]` for the bracket of " + source_.place(begin));
    }
    if (!made.suffix_capture.empty() && !made.suffix)
      source_.fail(begin, "`stop_capture` is the name of the suffix: it needs suffix=\"...\" as well");
  }

  /// Reads the name of a capture.
  std::string read_capture() {
    constexpr std::size_t kMax = 100;
    const std::size_t at = source_.at();
    if (source_.peek() != '"') source_.fail_here("the name of the capture in double quotes");
    std::string name = take_lark_text(source_);
    if (name.empty() || name.size() > kMax)
      source_.fail(at, "the name of a capture has 1 to " + std::to_string(kMax) + " bytes");
    return name;
  }

  /// Returns the temperature as MidResult::with_temperature takes it.
  float read_temperature() {
    constexpr std::uint32_t kMax = 100;
    constexpr std::size_t kMaxDigits = 6;
    const std::size_t at = source_.at();
    if (!front::is_digit(source_.peek())) source_.fail_here("a number such as 0.5");
    auto value = static_cast<float>(front::take_number(source_, kMax));
    if (source_.accept(".")) {
      float unit = 1;
      const std::size_t from = source_.at();
      for (; front::is_digit(source_.peek()) && source_.at() - from < kMaxDigits; source_.move(1))
        value += static_cast<float>(source_.peek() - '0') * (unit /= 10);
    }
    if (value > kMax) source_.fail(at, "a temperature is at most 100");
    return value == 0 ? AICI_GREEDY : value;
  }

  void read_directive() {
    const std::size_t at = source_.at();
    source_.move(1);
    const std::string_view name = take_lark_name(source_);
    if (name == "ignore") {
      LarkDefinition made{"%ignore", at, next(), 0};
      made.body = body_.read(at);
      out_.ignored.push_back(std::move(made));
    } else if (name == "import") {
      read_import();
    } else if (name == "llguidance") {
      skip_lark_blanks(source_);
      take_lark_object(source_);
      front::warn(source_, at, "%llguidance is ignored");
    } else if (name == "declare") {
      source_.fail(at, "%declare is not supported: a terminal without a definition matches no text");
    } else {
      source_.fail(at, "`%" + std::string(name) + "` is unknown; allowed are %ignore and %import");
    }
  }

  /// Reads %import common.WS, optionally with `-> NAME`, or %import common (WS, INT).
  void read_import() {
    skip_lark_spaces(source_);
    const std::size_t at = source_.at();
    const std::string_view from = take_lark_name(source_);
    if (from != "common") source_.fail(at, "only `common` can be imported from, as in %import common.WS");
    skip_lark_spaces(source_);
    if (source_.accept("(")) {
      do import_one(true);
      while (source_.accept(","));
      if (!source_.accept(")")) source_.fail_here("`,` or `)`");
    } else {
      if (!source_.accept(".")) source_.fail_here("`.` and the name of a terminal");
      import_one(false);
    }
  }

  void import_one(bool in_list) {
    if (in_list) skip_lark_blanks(source_);
    const std::size_t at = source_.at();
    const std::string_view name = take_lark_name(source_);
    const char* pattern = common_terminal(name);
    if (pattern == nullptr)
      source_.fail(at, "common has no terminal `" + std::string(name) + "`: there are " + common_names());
    skip_lark_spaces(source_);
    std::string called(name);
    if (!in_list && source_.accept("->")) {
      skip_lark_spaces(source_);
      called = take_lark_name(source_);
    }
    if (!is_terminal_name(called)) source_.fail_here("the name of a terminal, which begins with a capital letter,");
    note(called, at);
    const Part first = next();
    out_.nodes.push_back({LarkNode::Kind::kPattern, at, std::string("(?:") + pattern + ")"});
    out_.terminals.push_back({called, at, first, first});
    if (in_list) skip_lark_blanks(source_);
  }

  Source& source_;
  LarkSyntax out_;
  BodyReader body_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace

bool is_terminal_name(std::string_view name) {
  const std::size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

LarkSyntax read_lark(Source& source) { return Reader(source).take(); }

}  // namespace aici::lark
