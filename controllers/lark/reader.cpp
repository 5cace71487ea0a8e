#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "aici/cfg/grammar.hpp"
#include "aici/front/nest.hpp"
#include "aici/front/patterns.hpp"
#include "chunks.hpp"
#include "common.hpp"
#include "syntax.hpp"
#include "words.hpp"

using aici::front::Source;

namespace {

using Kind = LarkNode::Kind;
using Nest = aici::front::Nest<Part>;

/// Of counted repetitions, which are written out.
constexpr std::uint32_t kMostTimes = 10'000;
/// Of what may stand between the name of a rule and its colon.
constexpr std::size_t kMostAttributes = 400;

class Reader {
 public:
  explicit Reader(Source& source) : source_(source) {
    for (skip_lark_blanks(source_); !source_.at_end(); skip_lark_blanks(source_))
      source_.peek() == '%' ? read_directive() : read_definition();
  }
  LarkSyntax take() { return std::move(out_); }

 private:
  /// Does a rule or terminal begin here? Only then a colon comes, so lines may end anywhere.
  bool at_definition() {
    const std::size_t here = source_.at();
    while (source_.peek() == '?' || source_.peek() == '!') source_.move(1);
    const bool named = !take_lark_name(source_).empty();
    const std::size_t from = source_.at();
    bool found = false;
    while (named && !source_.at_end() && source_.at() - from < kMostAttributes) {
      const char c = source_.peek();
      if ((found = c == ':')) break;
      const bool blank = c == ' ' || c == '\t', priority = c == '.' && source_.peek(1) != '.';
      if (c == '[' || c == '{')
        source_.find(c == '[' ? "]" : "}");
      else if (!blank && !priority && !aici::front::is_digit(c) && c != '-')
        break;
      source_.move(1);
    }
    source_.go_to(here);
    return found;
  }

  bool at_directive() const {
    return source_.peek() == '%' && !source_.next_is("%json") && !source_.next_is("%regex");
  }

  Part add(LarkNode node) {
    out_.nodes.push_back(std::move(node));
    return static_cast<Part>(out_.nodes.size() - 1);
  }
  Part next() const { return static_cast<Part>(out_.nodes.size()); }

  void read_definition() {
    const std::size_t at = source_.at();
    if (!at_definition()) source_.fail_here("a rule, `name: ...`, or a directive such as %ignore");
    while (source_.peek() == '?' || source_.peek() == '!') source_.move(1);
    const std::string name(take_lark_name(source_));
    const bool is_terminal = is_terminal_name(name);
    LarkDefinition made{name, at, next(), 0};
    skip_spaces();
    if (source_.peek() == '{')
      source_.fail(source_.at(), "rules with parameters are not supported: write a rule for each use");
    read_priority();
    if (source_.peek() == '[') read_attributes(made);
    read_priority();
    if (!source_.accept(":")) source_.fail_here("`:` after the name");
    made.body = read_body(at);
    note(name, at);
    (is_terminal ? out_.terminals : out_.rules).push_back(std::move(made));
  }

  void note(const std::string& name, std::size_t at) {
    if (const auto [known, is_new] = places_.emplace(name, at); !is_new)
      source_.fail(at, "there is a definition of " + name + " already, in " + source_.place(known->second));
  }

  void skip_spaces() {
    while (source_.peek() == ' ' || source_.peek() == '\t') source_.move(1);
  }

  /// Of several lexemes all are taken, so it decides nothing.
  void read_priority() {
    skip_spaces();
    if (!source_.accept(".")) return;
    source_.accept("-");
    if (!aici::front::is_digit(source_.peek())) source_.fail_here("a number after `.`");
    while (aici::front::is_digit(source_.peek())) source_.move(1);
    skip_spaces();
  }

  /// [lazy, suffix="x", capture]; the others need an engine that knows of them.
  void read_attributes(LarkDefinition& made) {
    const std::size_t begin = source_.at();
    source_.move(1);
    for (;;) {
      skip_lark_blanks(source_);
      const std::size_t at = source_.at();
      const std::string_view name = take_lark_name(source_);
      skip_spaces();
      const bool has_value = source_.accept("=");
      skip_spaces();
      if (name == "lazy" && !has_value) {
        made.lazy = true;
      } else if (name == "suffix" && has_value) {
        made.lazy = true;
        made.suffix = read_atom();
      } else if (name == "capture") {
        if (has_value) read_atom();
      } else {
        source_.fail(at, "the attribute `" + std::string(name) + "` is not supported: there are lazy, suffix=\"...\" and "
                         "capture, which changes nothing");
      }
      skip_lark_blanks(source_);
      if (source_.accept("]")) break;
      if (!source_.accept(",")) source_.fail_here("`]` for the bracket of " + source_.place(begin));
    }
  }

  void read_directive() {
    const std::size_t at = source_.at();
    source_.move(1);
    const std::string_view name = take_lark_name(source_);
    if (name == "ignore") {
      LarkDefinition made{"%ignore", at, next(), 0};
      made.body = read_body(at);
      out_.ignored.push_back(std::move(made));
    } else if (name == "import") {
      read_import();
    } else if (name == "llguidance") {
      skip_lark_blanks(source_);
      take_lark_object(source_);
      aici::front::warn(source_, at, "what %llguidance says is left out");
    } else if (name == "declare") {
      source_.fail(at, "%declare is not possible: a terminal without a definition has no texts");
    } else {
      source_.fail(at, "`%" + std::string(name) + "` is not known: there are %ignore and %import");
    }
  }

  /// %import common.WS, with `-> NAME` or not, or %import common (WS, INT)
  void read_import() {
    skip_spaces();
    const std::size_t at = source_.at();
    const std::string_view from = take_lark_name(source_);
    if (from != "common") source_.fail(at, "only `common` can be imported from, as in %import common.WS");
    skip_spaces();
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
    skip_spaces();
    std::string called(name);
    if (!in_list && source_.accept("->")) {
      skip_spaces();
      called = take_lark_name(source_);
    }
    if (!is_terminal_name(called)) source_.fail_here("the name of a terminal, which begins with a capital letter,");
    note(called, at);
    const Part first = next();
    add({Kind::kPattern, at, std::string("(?:") + pattern + ")"});
    out_.terminals.push_back({called, at, first, first});
    if (in_list) skip_lark_blanks(source_);
  }

  Part read_body(std::size_t from) {
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
        skip_spaces();
        if (take_lark_name(source_).empty()) source_.fail_here("a name after `->`");
      } else if (nest.inside() && c == nest.close()) {
        source_.move(1);
        const Nest::Level level = nest.pop();
        Part inside = choice(level, level.at);
        if (nest.is_deep()) inside = add({Kind::kGroup, level.at, {}, {inside}});
        push(nest, c == ']' ? add({Kind::kRepeat, at, {}, {inside}, 0, 1}) : inside);
      } else if (c == '~' || c == '&') {
        source_.move(1);
        // they are put where they belong when the sequence is whole
        nest.sequence().push_back(c == '~' ? kNotMark : kBothMark);
      } else if (source_.at_end() || at_directive() || at_definition()) {
        if (nest.inside()) nest.fail_open(source_);
        return choice(nest.pop(), from);
      } else {
        push(nest, read_atom());
      }
    }
  }

  static constexpr Part kNotMark = 0xffffffff, kBothMark = 0xfffffffe;

  /// Marks apply first, then repetitions.
  void push(Nest& nest, Part part) {
    auto& sequence = nest.sequence();
    while (!sequence.empty() && sequence.back() == kNotMark) {
      sequence.pop_back();
      part = add({Kind::kNot, out_.nodes[part].at, {}, {part}});
    }
    sequence.push_back(read_postfix(part));
  }

  Part choice(const Nest::Level& level, std::size_t at) {
    std::vector<Part> all;
    for (const auto& sequence : level.alternatives) all.push_back(both(sequence, at));
    return all.size() == 1 ? all[0] : add({Kind::kChoice, at, {}, std::move(all)});
  }

  Part both(const std::vector<Part>& marked, std::size_t at) {
    std::vector<Part> all, sequence;
    if (!marked.empty() && marked[0] < kBothMark) at = out_.nodes[marked[0]].at;
    for (const Part part : marked) {
      if (part == kNotMark) source_.fail(at, "`~` needs something behind it");
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

  Part read_atom() {
    const std::size_t at = source_.at();
    const char c = source_.peek();
    if (c == '"') return read_text(at);
    if (c == '/') return add({Kind::kPattern, at, take_lark_pattern(source_)});
    if (source_.accept("%json")) return add({Kind::kJson, at, std::string(take_lark_object(source_))});
    if (source_.accept("%regex")) {
      LarkNode node{.kind = Kind::kChunks, .at = at};
      node.characters = read_chunks(source_, take_lark_object(source_), at, &node.chunks);
      return add(std::move(node));
    }
    if (c == '\'') source_.fail(at, "texts are in double quotes");
    if (c == '<') source_.fail(at, "tokens by name or number are not possible: a text may come as any tokens");
    if (c == '@') source_.fail(at, "other grammars cannot be named here: there is only this one");
    const std::string name(take_lark_name(source_));
    if (name.empty()) source_.fail_here("a text, a pattern, a name or a bracket");
    if (source_.peek() == '{' && !aici::front::is_digit(source_.peek(1)) && source_.peek(1) != ',')
      source_.fail(source_.at(), "rules with parameters are not supported: write a rule for each use");
    return add({Kind::kName, at, name});
  }

  Part read_text(std::size_t at) {
    const std::string text = take_lark_text(source_);
    if (source_.next_is("..")) {
      source_.move(2);
      if (source_.peek() != '"') source_.fail_here("the last character of a range");
      return add({Kind::kPattern, at, range(text, take_lark_text(source_), at)});
    }
    if (source_.peek() == 'i' && !aici::front::is_word(source_.peek(1))) {
      source_.move(1);
      return add({Kind::kPattern, at, "(?i:" + aici::front::pattern_of(text) + ")"});
    }
    return add({Kind::kText, at, text});
  }

  std::string range(const std::string& low, const std::string& high, std::size_t at) {
    Source first(low), last(high);
    if (low.empty() || high.empty()) source_.fail(at, "a range has a character on each side");
    const char32_t a = first.take_character(), b = last.take_character();
    if (!first.at_end() || !last.at_end()) source_.fail(at, "a range has one character on each side");
    if (b < a) source_.fail(at, "this range is empty: its first character comes after its last");
    return "[" + aici::front::pattern_of(a) + "-" + aici::front::pattern_of(b) + "]";
  }

  Part read_postfix(Part part) {
    skip_spaces();
    const std::size_t at = source_.at();
    std::uint32_t least = 0, most = aici::cfg::kNoLimit;
    if (source_.peek() == '~' && (source_.peek(1) == ' ' || aici::front::is_digit(source_.peek(1)))) {
      source_.move(1);
      skip_spaces();
      if (!aici::front::is_digit(source_.peek())) source_.fail(at, "a repetition is ~3 or ~3..5");
      least = most = aici::front::take_number(source_, kMostTimes);
      if (source_.accept("..")) {
        if (!aici::front::is_digit(source_.peek())) source_.fail(at, "a repetition is ~3 or ~3..5");
        most = aici::front::take_number(source_, kMostTimes);
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
    if (most < least) source_.fail(at, "this repetition has no number: the first is above the second");
    return add({Kind::kRepeat, at, {}, {part}, least, most});
  }

  /// {3}, {3,}, {,5} or {3,5}
  void read_counts(std::size_t at, std::uint32_t* least, std::uint32_t* most) {
    const bool has_least = aici::front::is_digit(source_.peek());
    if (has_least) *least = aici::front::take_number(source_, kMostTimes);
    if (!source_.accept(","))
      *most = *least;
    else if (aici::front::is_digit(source_.peek()))
      *most = aici::front::take_number(source_, kMostTimes);
    else if (!has_least)
      source_.fail(at, "a repetition is {3}, {3,}, {,5} or {3,5}");
    if (!source_.accept("}")) source_.fail(at, "a repetition is {3}, {3,}, {,5} or {3,5}");
  }

  Source& source_;
  LarkSyntax out_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace

bool is_terminal_name(std::string_view name) {
  const std::size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

LarkSyntax read_lark(Source& source) { return Reader(source).take(); }
