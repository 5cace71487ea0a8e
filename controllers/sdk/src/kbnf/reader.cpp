#include "reader.hpp"

#include <optional>
#include <string>
#include <vector>

#include "aici/host.hpp"
#include "../front/nest.hpp"
#include "../front/patterns.hpp"
#include "../front/rules.hpp"
#include "../front/schema.hpp"
#include "../front/source.hpp"
#include "quoted.hpp"

namespace aici::kbnf {

namespace {

using cfg::Expr;
using cfg::Grammar;
using front::Source;
using Nest = front::Nest<Expr>;

constexpr std::string_view kStart = "start";
bool is_name_start(char c) { return front::is_letter(c) || c == '_'; }
bool is_postfix(char c) { return c == '?' || c == '*' || c == '+'; }

class Reader {
 public:
  Reader(std::string_view text, std::span<const std::string> extract) : source_(text), rules_(source_, out_.grammar) {
    for (skip_blanks(); !source_.at_end(); skip_blanks()) read_rule();
    rules_.check_names(kStart);
    rules_.check_texts(kStart);
    out_.start = rules_.find(kStart)->rule;
    for (const std::string& name : extract) {
      const front::Rules::Named* rule = rules_.find(name);
      if (rule == nullptr) fail("there is no rule " + name + " whose text can be extracted" + rules_.suggestion(name));
      out_.grammar.capture(rule->rule, {name, {}, nullptr, nullptr});
    }
  }

  Kbnf take() { return std::move(out_); }

 private:
  /// Skips blanks and comments. (In the original, comments may be only between rules.)
  void skip_blanks() {
    for (;;) {
      const std::size_t at = source_.at();
      const char c = source_.peek();
      if (c == ' ' || (c >= '\t' && c <= '\r')) {
        source_.move(1);
      } else if (source_.accept("(*")) {
        if (!source_.find("*)")) source_.fail(at, "this comment is not closed: `*)` is missing");
        source_.move(2);
      } else {
        return;
      }
    }
  }

  std::string_view take_name() {
    const std::size_t from = source_.at();
    while (front::is_word(source_.peek())) source_.move(1);
    return source_.since(from);
  }

  void read_rule() {
    const std::size_t at = source_.at();
    if (!is_name_start(source_.peek())) source_.fail_here("the name of a rule (letters, digits and _)");
    const std::string_view name = take_name();
    skip_blanks();
    if (!source_.accept("::=") && !source_.accept("=")) source_.fail_here("`::=` after the name of a rule");
    name_ = name;
    rules_.enter(name, at);
    const Expr body = read_body();
    if (!source_.accept(";")) source_.fail_here("`;` at the end of a rule, or more of it,");
    rules_.define(body);
  }

  Expr read_body() {
    Nest nest;
    for (;;) {
      skip_blanks();
      const bool comma = !nest.sequence().empty() && source_.accept(",");
      if (comma) skip_blanks();
      const std::size_t at = source_.at();
      const char c = source_.peek();
      if (c == '(' || c == '[' || c == '{') {
        source_.move(1);
        nest.open(source_, c == '(' ? ')' : c == '[' ? ']' : '}', at);
      } else if (const std::optional<Expr> atom = read_atom(c)) {
        nest.sequence().push_back(read_postfix(*atom));
      } else if (comma || nest.sequence().empty()) {
        source_.fail_here("a text, a pattern, a name or a bracket (the empty text is '')");
      } else if (source_.accept("|")) {
        nest.next_alternative();
      } else if (!nest.inside()) {
        return choice(nest.pop());
      } else if (c == nest.close()) {
        source_.move(1);
        Expr inside = choice(nest.pop());
        if (nest.is_deep()) inside = front::as_rule(out_.grammar, inside, name_);
        nest.sequence().push_back(read_postfix(c == ']'   ? out_.grammar.optional(inside)
                                               : c == '}' ? out_.grammar.star(inside)
                                                          : inside));
      } else {
        nest.fail_open(source_);
      }
    }
  }

  Expr choice(const Nest::Level& level) {
    std::vector<Expr> all;
    for (const auto& sequence : level.alternatives) all.push_back(out_.grammar.sequence(sequence));
    return out_.grammar.choice(all);
  }

  Expr read_postfix(Expr atom) {
    skip_blanks();
    const char postfix = source_.peek();
    if (!is_postfix(postfix)) return atom;
    source_.move(1);
    skip_blanks();
    if (is_postfix(source_.peek()))
      source_.fail(source_.at(), "only one of ?, * and + is possible here: write ('a'?)* with parentheses");
    if (postfix == '?') return out_.grammar.optional(atom);
    return front::repeated(out_.grammar, atom, postfix == '+', cfg::kNoLimit, name_);
  }

  std::optional<Expr> read_atom(char first) {
    const std::size_t at = source_.at();
    if (first == '\'' || first == '"') return out_.grammar.literal(take_quoted(source_, false).text);
    if (first == '#') return read_pattern();
    if (is_name_start(first)) return rules_.call(take_name(), at);
    return std::nullopt;
  }

  Expr read_pattern() {
    const std::size_t at = source_.at();
    source_.move(1);
    const std::string_view sort = take_name();
    if (source_.peek() != '\'' && source_.peek() != '"')
      source_.fail_here("a quote after `#" + std::string(sort) + "`");
    const Quoted quoted = take_quoted(source_, sort != "substrs" && sort != "json" && sort != "text");
    if (sort == "substrs") return out_.grammar.substring(Substrings(quoted.text));
    if (sort == "json" || sort == "text")
      return front::read_schema(source_, at, quoted.text, out_.grammar, sort == "text");
    const bool all = sort.empty(), early = sort == "e", without = sort == "ex";
    if (!all && !early && !without)
      source_.fail(at, "`#" + std::string(sort) +
                           "` is unknown; allowed are #'...', #e'...', #ex'...', #substrs'...', #json'...' and "
                           "#text'...'");
    const auto place = [&](std::size_t offset) { return quoted.from[offset]; };
    auto pattern = front::read_pattern(source_, quoted.text, without ? front::Texts::kWithout : front::Texts::kAll, place);
    const Expr made = !pattern ? out_.grammar.never()
                      : early  ? out_.grammar.early_regex(std::move(*pattern))
                               : out_.grammar.regex(std::move(*pattern));
    if (made == out_.grammar.never()) front::warn(source_, at, "no text matches this");
    return made;
  }

  Kbnf out_;
  Source source_;
  front::Rules rules_;
  std::string_view name_;  ///< the rule that is being read
};

}  // namespace

Kbnf read_kbnf(std::string_view text, std::span<const std::string> extract) { return Reader(text, extract).take(); }

}  // namespace aici::kbnf
