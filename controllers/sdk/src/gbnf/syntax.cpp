#include "syntax.hpp"

#include <map>
#include <optional>
#include <utility>

#include "aici/cfg/grammar.hpp"
#include "../front/nest.hpp"
#include "../front/tokens.hpp"
#include "characters.hpp"

namespace aici::gbnf {

using front::Source;

namespace {

using Kind = GbnfNode::Kind;
using Nest = front::Nest<Part>;

/// Maximum count of a repetition, since counted repetitions are expanded.
constexpr std::uint32_t kMaxTimes = 10'000;

bool is_name(char c) { return front::is_word(c) || c == '-'; }

class Reader {
 public:
  explicit Reader(Source& source) : source_(source) {
    for (skip_blanks(); !source_.at_end(); skip_blanks()) read_rule();
  }
  GbnfSyntax take() { return std::move(out_); }

 private:
  void skip_blanks() {
    for (;;) {
      const char c = source_.peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        source_.move(1);
      else if (c == '#')
        source_.find("\n");
      else
        return;
    }
  }

  std::string_view take_name() {
    const std::size_t from = source_.at();
    while (is_name(source_.peek())) source_.move(1);
    return source_.since(from);
  }

  /// Returns whether a rule begins here: a name with ::= after it. A rule may therefore extend over several lines.
  bool at_rule() {
    const std::size_t here = source_.at();
    const bool named = !take_name().empty();
    skip_blanks();
    const bool found = named && source_.next_is("::=");
    source_.go_to(here);
    return found;
  }

  void read_rule() {
    const std::size_t at = source_.at();
    if (!at_rule()) source_.fail_here("a rule, `name ::= ...`,");
    const std::string name(take_name());
    skip_blanks();
    source_.accept("::=");
    if (const auto [known, is_new] = places_.emplace(name, at); !is_new)
      source_.fail(at, "there is a rule " + name + " already, in " + source_.place(known->second));
    const Part body = read_body(at);
    out_.rules.push_back({name, at, body});
  }

  Part add(GbnfNode node) {
    out_.nodes.push_back(std::move(node));
    return static_cast<Part>(out_.nodes.size() - 1);
  }

  Part read_body(std::size_t rule_at) {
    Nest nest;
    for (;;) {
      skip_blanks();
      const std::size_t at = source_.at();
      const char c = source_.peek();
      if (source_.accept("(")) {
        nest.open(source_, ')', at);
      } else if (source_.accept("|")) {
        nest.next_alternative();
      } else if (nest.inside() && c == ')') {
        source_.move(1);
        Nest::Level level = nest.pop();
        Part inside = choice(std::move(level), level.at);
        if (nest.is_deep()) inside = add({Kind::kGroup, level.at, {}, {inside}});
        nest.sequence().push_back(read_postfix(inside));
      } else if (!at_rule() && !source_.at_end()) {
        nest.sequence().push_back(read_postfix(read_atom(c)));
      } else if (nest.inside()) {
        nest.fail_open(source_);
      } else {
        return choice(nest.pop(), rule_at);
      }
    }
  }

  Part choice(Nest::Level&& level, std::size_t at) {
    std::vector<Part> all;
    for (auto& sequence : level.alternatives)
      all.push_back(sequence.size() == 1 ? sequence[0] : add({Kind::kSequence, at, {}, std::move(sequence)}));
    return all.size() == 1 ? all[0] : add({Kind::kChoice, at, {}, std::move(all)});
  }

  Part read_atom(char first) {
    const std::size_t at = source_.at();
    if (first == '"') return add({Kind::kLiteral, at, take_gbnf_literal(source_)});
    if (first == '[') return add({Kind::kClass, at, take_gbnf_class(source_)});
    if (source_.accept(".")) return add({Kind::kClass, at, "(?s:.)"});
    if (is_name(first)) return add({Kind::kCall, at, std::string(take_name())});
    if (first == '<') {
      GbnfNode node{Kind::kTokens, at};
      node.tokens = front::take_tokens(source_, &node.text);
      if (node.tokens.empty()) node.kind = Kind::kLiteral;
      return add(std::move(node));
    }
    if (first == '!')
      source_.fail(at, "all tokens but one (`!`) are not supported: write the texts that may stand here, such as [^<]*");
    source_.fail_here("a text, a class, a name, a parenthesis or `|`");
  }

  Part read_postfix(Part part) {
    for (;;) {
      skip_blanks();
      const std::size_t at = source_.at();
      std::uint32_t least = 0, most = cfg::kNoLimit;
      if (source_.accept("{"))
        read_counts(at, &least, &most);
      else if (source_.accept("?"))
        most = 1;
      else if (source_.accept("+"))
        least = 1;
      else if (!source_.accept("*"))
        return part;
      part = add({Kind::kRepeat, at, {}, {part}, least, most});
    }
  }

  void read_counts(std::size_t at, std::uint32_t* least, std::uint32_t* most) {
    if (!front::is_digit(source_.peek())) source_.fail(at, "a repetition is {3}, {3,} or {3,5}");
    *least = front::take_number(source_, kMaxTimes);
    if (!source_.accept(","))
      *most = *least;
    else if (front::is_digit(source_.peek()))
      *most = front::take_number(source_, kMaxTimes);
    if (!source_.accept("}")) source_.fail(at, "a repetition is {3}, {3,} or {3,5}");
    if (*most < *least) source_.fail(at, "this repetition is empty: its minimum is above its maximum");
  }

  Source& source_;
  GbnfSyntax out_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace

GbnfSyntax read_gbnf(Source& source) { return Reader(source).take(); }

}  // namespace aici::gbnf
