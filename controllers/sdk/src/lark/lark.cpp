#include "aici/lark/lark.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/regex/limits.hpp"
#include "aici/substring.hpp"
#include "../front/rules.hpp"
#include "syntax.hpp"

namespace aici::lark {

namespace {

using cfg::Expr;
using cfg::Grammar;
using cfg::Lexemes;
using front::Source;
using Kind = LarkNode::Kind;

/// The terminals of a grammar as regular expressions. They may name each other, but not themselves.
class Patterns {
 public:
  /// Maximum number of chunks of %regex in one regular expression, in which they become nested groups.
  static constexpr std::size_t kMaxChunks = 90;

  /// Fails if a terminal is not regular (it names a rule or itself), or if it is too long when it is expanded.
  Patterns(const LarkSyntax& syntax, const front::Source& source);

  bool has(std::string_view terminal) const { return numbers_.contains(terminal); }
  /// Returns the number of a terminal, in the order of the definitions.
  std::uint32_t number(std::string_view terminal) const { return numbers_.find(terminal)->second; }
  /// Returns the pattern of a terminal's body, or of any part without rules.
  const std::string& of(Part part);
  /// Returns the pattern of a definition with its suffix. For rules with attributes, and for ignored text.
  std::string of(const LarkDefinition& definition);

  /// Fails with the message that this name must be a terminal and is not one.
  [[noreturn]] void fail_not_regular(const LarkNode& node) const;

 private:
  std::string make(const LarkNode& node);
  const std::string& named(const LarkNode& node);
  void translate_terminals();

  const LarkSyntax& syntax_;
  const front::Source& source_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  /// By node; empty if not made yet. (No pattern is empty: the pattern of the empty text is a group.)
  std::vector<std::string> patterns_;
};

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string all;
  for (const std::string& part : parts) all.append(all.empty() ? "" : between).append(part);
  return all;
}

/// Any run of consecutive chunks: the alternatives are each chunk, optionally followed by the chunks after it.
std::string chunks_pattern(const std::vector<std::string>& chunks) {
  std::string all = "(?:", rest;
  for (std::size_t i = chunks.size(); i-- > 0;) {
    const std::string here = front::pattern_of(std::string_view(chunks[i]));
    rest = rest.empty() ? here : here + "(?:" + rest + ")?";
    all += rest + "|";
  }
  return all + ")";
}

Patterns::Patterns(const LarkSyntax& syntax, const front::Source& source)
    : syntax_(syntax), source_(source), patterns_(syntax.nodes.size()) {
  for (std::uint32_t i = 0; i < syntax.terminals.size(); i++) numbers_.emplace(syntax.terminals[i].name, i);
  translate_terminals();
}

/// Translates each terminal after the terminals that it names.
void Patterns::translate_terminals() {
  const auto& all = syntax_.terminals;
  std::vector<std::uint32_t> open(all.size()), order;
  std::vector<std::vector<std::uint32_t>> users(all.size());
  for (std::uint32_t i = 0; i < all.size(); i++)
    for (Part part = all[i].first; part <= all[i].body; part++) {
      const LarkNode& node = syntax_.nodes[part];
      if (node.kind != Kind::kName) continue;
      const auto found = numbers_.find(node.text);
      if (found == numbers_.end()) fail_not_regular(node);
      users[found->second].push_back(i), open[i]++;
    }
  for (std::uint32_t i = 0; i < all.size(); i++)
    if (open[i] == 0) order.push_back(i);
  for (std::size_t i = 0; i < order.size(); i++) {
    const LarkDefinition& terminal = all[order[i]];
    // many chunks are too large for a regular expression, but a terminal with nothing else does not need one
    for (Part part = terminal.first; part <= terminal.body; part++)
      if (syntax_.nodes[part].kind != Kind::kChunks) of(part);
    for (const std::uint32_t user : users[order[i]])
      if (--open[user] == 0) order.push_back(user);
  }
  for (std::uint32_t i = 0; i < all.size(); i++)
    if (open[i] != 0)
      source_.fail(all[i].at, "the terminal " + all[i].name + " contains itself: nested brackets need a "
                                                              "rule, whose name begins with a lower-case letter");
}

void Patterns::fail_not_regular(const LarkNode& node) const {
  if (is_terminal_name(node.text)) {
    std::vector<std::string_view> names;
    for (const auto& [name, number] : numbers_) names.push_back(name);
    const std::string_view near = front::nearest(node.text, names);
    source_.fail(node.at, "there is no terminal " + node.text + (near.empty() ? "" : "; did you mean ") +
                              std::string(near) + (near.empty() ? "" : "?"));
  }
  source_.fail(node.at, "a terminal cannot name the rule " + node.text + ": it is a regular expression");
}

const std::string& Patterns::of(Part part) {
  std::string& pattern = patterns_[part];
  if (pattern.empty()) {
    pattern = make(syntax_.nodes[part]);
    if (pattern.size() > regex::Limits().pattern_bytes)
      source_.fail(syntax_.nodes[part].at, "this is too long with its terminals expanded");
  }
  return pattern;
}

std::string Patterns::of(const LarkDefinition& definition) {
  for (Part part = definition.first; part < definition.body; part++) of(part);
  const std::string& body = of(definition.body);
  return definition.suffix ? "(?:" + body + ")" + of(*definition.suffix) : body;
}

std::string Patterns::make(const LarkNode& node) {
  std::vector<std::string> parts;
  for (const Part part : node.parts) parts.push_back(of(part));
  switch (node.kind) {
    case Kind::kText: return "(?:" + front::pattern_of(std::string_view(node.text)) + ")";
    case Kind::kPattern: return node.text;
    case Kind::kName: return named(node);
    case Kind::kGroup: return parts[0];
    case Kind::kSequence: return "(?:" + join(parts, "") + ")";
    case Kind::kChoice: {
      std::string all = "(?:" + parts[0];
      for (std::size_t i = 1; i < parts.size(); i++) all += "|" + parts[i];
      return all + ")";
    }
    case Kind::kNot: return "(?not:" + parts[0] + ")";
    case Kind::kBoth: {
      // the texts that match all parts are those that match no part's complement
      std::string none = "(?not:(?not:" + parts[0] + ")";
      for (std::size_t i = 1; i < parts.size(); i++) none += "|(?not:" + parts[i] + ")";
      return none + ")";
    }
    case Kind::kRepeat: {
      std::string all = "(?:" + parts[0] + "){" + std::to_string(node.least) + ",";
      if (node.most != cfg::kNoLimit) all += std::to_string(node.most);
      return all + "}";
    }
    case Kind::kChunks:
      if (node.chunks.size() > kMaxChunks)
        source_.fail(node.at, "%regex with more than " + std::to_string(kMaxChunks) +
                                  " pieces is only possible alone in a terminal that no other one names, or in a rule");
      return chunks_pattern(node.chunks);
    case Kind::kLark: source_.fail(node.at, "%lark cannot be in a terminal: it is not a regular expression");
    case Kind::kTokens: source_.fail(node.at, "a special token cannot be in a terminal, since it is not text: put it into a "
                                              "rule");
    case Kind::kIf: source_.fail(node.at, "`%if` cannot be in a terminal: only rules have parameters");
    case Kind::kJson: source_.fail(node.at, "%json cannot be in a terminal: it is not a regular expression");
  }
  return {};
}

const std::string& Patterns::named(const LarkNode& node) {
  const auto found = numbers_.find(node.text);
  if (found == numbers_.end()) fail_not_regular(node);
  return of(syntax_.terminals[found->second].body);
}

constexpr const char* kStart = "start";
/// Maximum number of warnings about terminals. (Finding the position of a warning takes time: lines are counted.)
constexpr int kMaxWarnings = 20;
/// Maximum number of nested grammars, and their maximum depth. The code recurses.
constexpr std::size_t kMaxNested = 64, kMaxDepth = 8;
/// Maximum number of nodes in all instances of rules with a parameter.
constexpr std::size_t kMaxNodes = 500'000;

/// What all grammars in one text share: `ignored` are the patterns that the outermost one ignores.
struct Shared {
  Grammar grammar{Lexemes::kLongest};
  std::set<std::string> ignored{};
  std::size_t nested = 0, depth = 0;
};

/// Translates a grammar for the context-free engine. Fails the controller if a name is not defined, a terminal is not
/// regular, or the grammar has no text. Writes warnings to the log.
class Translator {
 public:
  Translator(const LarkSyntax& syntax, const Source& source, Shared& shared)
      : syntax_(syntax), source_(source), shared_(shared), grammar_(shared.grammar), patterns_(syntax, source),
        rules_(source, grammar_), exprs_(syntax.nodes.size()), excluded_(syntax.nodes.size()), terminals_(syntax.terminals.size()) {
    read_ignored();
    for (const LarkDefinition& rule : syntax.rules)
      if (rule.has_parameter) instances_[rule.name].rule = &rule;
    for (const LarkDefinition& rule : syntax.rules)
      if (!rule.has_parameter) read_rule(rule, rule.name);
    read_instances();
    rules_.check_names(kStart);
    rules_.check_texts(kStart);
    warn_of_unused_terminals();
  }

  cfg::Rule start() const { return rules_.find(kStart)->rule; }

 private:
  void read_ignored() {
    std::set<std::string> patterns;
    for (const LarkDefinition& ignored : syntax_.ignored) patterns.insert(patterns_.of(ignored));
    if (shared_.depth == 0) {
      shared_.ignored = std::move(patterns);
      for (const LarkDefinition& ignored : syntax_.ignored)
        grammar_.ignore(terminal(patterns_.of(ignored), ignored.at));
    } else if (patterns != shared_.ignored) {
      const auto& some = syntax_.ignored.empty() ? syntax_.rules : syntax_.ignored;
      source_.fail(some.empty() ? source_.all().size() : some[0].at,
                   "a nested grammar must ignore the same text as the grammar around it: repeat its %ignore");
    }
  }

  /// Reads a nested grammar, which has names of its own.
  Expr nested(const LarkNode& node) {
    if (shared_.nested == kMaxNested || shared_.depth == kMaxDepth)
      source_.fail(node.at, "there are more than " + std::to_string(kMaxNested) +
                                " grammars in this one, or one is deeper than " + std::to_string(kMaxDepth) + ": write rules instead");
    shared_.nested++, shared_.depth++;
    const std::string text = at_its_place(node);
    Source source(text);
    source.go_to(text.size() - node.text.size());
    const LarkSyntax syntax = read_lark(source);
    const cfg::Rule start = Translator(syntax, source, shared_).start();
    shared_.depth--;
    return grammar_.call(start);
  }

  /// Replaces everything before the text of a node by blanks, so that messages have positions in the whole grammar.
  std::string at_its_place(const LarkNode& node) const {
    std::string text;
    for (const char c : source_.all().substr(0, node.text_at))
      if (c == '\n' || (c & 0xC0) != 0x80) text += c == '\n' ? c : ' ';
    return text + node.text;
  }

  void warn_of_unused_terminals() {
    std::set<std::string_view> used;
    for (const LarkNode& node : syntax_.nodes)
      if (node.kind == Kind::kName) used.insert(node.text);
    int warnings = 0;
    for (const LarkDefinition& terminal : syntax_.terminals)
      if (!used.contains(terminal.name) && warnings++ < kMaxWarnings)
        front::warn(source_, terminal.at, "the terminal " + terminal.name + " is not used");
  }

  /// A rule with a parameter becomes one rule for each value that calls pass on.
  struct Instances {
    const LarkDefinition* rule = nullptr;
    std::set<std::uint64_t> values{};
  };
  static std::string instance_name(std::string_view rule, std::uint64_t value) {
    return std::string(rule) + "::" + std::to_string(value);
  }

  void read_instances() {
    while (!open_.empty()) {
      const auto [rule, value] = open_.back();
      open_.pop_back();
      parameter_ = value;
      read_rule(*rule, instance_name(rule->name, value));
    }
    parameter_.reset();
    for (const auto& [name, instances] : instances_)
      if (instances.values.empty()) front::warn(source_, instances.rule->at, "the rule " + name + " is not used");
  }

  /// Finds the alternatives whose conditions do not hold. Their calls are not made, so that counting comes to an end.
  void find_excluded(const LarkDefinition& rule) {
    const auto fails = [&](Part part) {
      const LarkNode& node = syntax_.nodes[part];
      return node.kind == Kind::kIf && !node.condition.holds(*parameter_);
    };
    std::fill(excluded_.begin() + rule.first, excluded_.begin() + rule.body + 1, false);
    // parts come before what contains them
    for (Part part = rule.body + 1; part-- > rule.first;) {
      const LarkNode& node = syntax_.nodes[part];
      if (node.kind == Kind::kSequence && std::ranges::any_of(node.parts, fails)) excluded_[part] = true;
      if (excluded_[part])
        for (const Part inner : node.parts) excluded_[inner] = true;
    }
  }

  /// Calls a rule with a parameter.
  Expr call(const LarkNode& node, Instances& instances) {
    using FunctionKind = LarkFunction::Kind;
    if (!node.parameter) source_.fail(node.at, node.text + " has a parameter: write " + node.text + "::0, or another value");
    if (!parameter_ && node.parameter->kind != FunctionKind::kValue)
      source_.fail(node.at, "this rule has no parameter to pass on: give " + node.text + " a number, as in " + node.text +
                                "::0");
    const std::uint64_t value = node.parameter->apply(parameter_.value_or(0));
    if (instances.values.insert(value).second) {
      size_ += 1 + instances.rule->body - instances.rule->first;
      if (size_ > kMaxNodes)
        source_.fail(instances.rule->at, "the parameter of " + node.text + " takes too many values (" +
                                             std::to_string(instances.values.size()) +
                                             " so far): the rules may have " + std::to_string(kMaxNodes) +
                                             " parts for all values together");
      open_.emplace_back(instances.rule, value);
    }
    return rules_.call(instance_name(node.text, value), node.at);
  }

  void read_rule(const LarkDefinition& rule, const std::string& name) {
    rules_.enter(name, rule.at, rule.has_parameter);
    name_ = rule.name;
    capture(rule, rules_.find(name)->rule);
    if (rule.lazy || rule.temperature != 0) {
      rules_.define(terminal(patterns_.of(rule), rule.at, rule.lazy, rule.temperature));
      return;
    }
    if (parameter_) find_excluded(rule);
    for (Part part = rule.first; part <= rule.body; part++)
      exprs_[part] = parameter_ && excluded_[part] ? grammar_.never() : expr_of(part);
    rules_.define(exprs_[rule.body]);
  }

  void capture(const LarkDefinition& rule, cfg::Rule made) {
    if (rule.capture.empty() && rule.suffix_capture.empty()) return;
    const auto regex = [&](const std::string& pattern) {
      auto read = front::read_pattern(source_, pattern, front::Texts::kAll, [&](std::size_t) { return rule.at; });
      return read ? std::make_shared<regex::Regex>(std::move(*read)) : nullptr;
    };
    Grammar::Captured captured{rule.capture, rule.suffix_capture, nullptr, nullptr};
    if (rule.suffix) {
      patterns_.of(rule);
      captured.body = regex(patterns_.of(rule.body)), captured.suffix = regex(patterns_.of(*rule.suffix));
      if (captured.body == nullptr || captured.suffix == nullptr) return;  // no text matches the rule
    }
    grammar_.capture(made, std::move(captured));
  }

  Expr expr_of(Part part) {
    const LarkNode& node = syntax_.nodes[part];
    std::vector<Expr> parts;
    for (const Part inner : node.parts) parts.push_back(exprs_[inner]);
    switch (node.kind) {
      case Kind::kText: return grammar_.literal(node.text);
      case Kind::kPattern: return terminal(patterns_.of(part), node.at);
      case Kind::kName: return named(node);
      case Kind::kGroup: return front::as_rule(grammar_, parts[0], name_);
      case Kind::kChunks: return chunks(part);
      case Kind::kJson: return schema(node);
      case Kind::kLark: return nested(node);
      case Kind::kTokens: return front::one_of(grammar_, source_, node.tokens, node.at);
      case Kind::kIf:
        if (!parameter_) source_.fail(node.at, "`%if` needs a rule with a parameter, such as " + std::string(name_) + "::_");
        return node.condition.holds(*parameter_) ? grammar_.empty() : grammar_.never();
      case Kind::kSequence: return grammar_.sequence(parts);
      case Kind::kChoice: return grammar_.choice(parts);
      case Kind::kRepeat: return front::repeated(grammar_, parts[0], node.least, node.most, name_);
      case Kind::kBoth: source_.fail(node.at, "`&` is only possible in terminals: rules are not regular");
      case Kind::kNot: source_.fail(node.at, "`~` is only possible in terminals: rules are not regular");
    }
    return grammar_.never();
  }

  Expr named(const LarkNode& node) {
    if (const auto found = instances_.find(node.text); found != instances_.end()) return call(node, found->second);
    if (node.parameter)
      source_.fail(node.at, node.text + " has no parameter: its definition must begin with " + node.text + "::_ :");
    if (!is_terminal_name(node.text)) return rules_.call(node.text, node.at);
    if (!patterns_.has(node.text)) patterns_.fail_not_regular(node);
    const std::uint32_t number = patterns_.number(node.text);
    std::optional<Expr>& known = terminals_[number];
    if (!known) {
      const LarkDefinition& definition = syntax_.terminals[number];
      const LarkNode& body = syntax_.nodes[definition.body];
      known = body.kind == Kind::kChunks ? chunks(definition.body)
              : body.kind == Kind::kText ? grammar_.literal(body.text)
                                         : terminal(patterns_.of(definition.body), definition.at);
    }
    return *known;
  }

  Expr schema(const LarkNode& node) {
    return front::read_schema(source_, node.at, at_its_place(node), grammar_);
  }

  /// Single characters have their own automaton, which may be large. A large number of other chunks would be too large
  /// for a regular expression and becomes rules: each chunk, optionally followed by the chunks after it.
  Expr chunks(Part part) {
    const LarkNode& node = syntax_.nodes[part];
    if (node.characters) {
      std::string text;
      for (const std::string& chunk : node.chunks) text += chunk;
      return grammar_.substring(Substrings(text));
    }
    if (node.chunks.size() <= Patterns::kMaxChunks) return terminal(patterns_.of(part), node.at);
    grammar_.set_lexemes(Lexemes::kAnywhere);
    const cfg::Rule all = grammar_.declare(name_);
    Expr rest = grammar_.empty();
    grammar_.define(all, rest);
    for (std::size_t i = node.chunks.size(); i-- > 0;) {
      const cfg::Rule here = grammar_.declare(name_);
      grammar_.define(here, grammar_.sequence({grammar_.literal(node.chunks[i]), rest}));
      grammar_.define(all, grammar_.call(here));
      rest = grammar_.optional(grammar_.call(here));
    }
    grammar_.set_lexemes(Lexemes::kLongest);
    return grammar_.call(all);
  }

  Expr terminal(const std::string& pattern, std::size_t at, bool lazy = false, float temperature = 0) {
    const auto [found, is_new] =
        by_pattern_.emplace(std::tuple(pattern, lazy, temperature), grammar_.never());
    if (!is_new) return found->second;
    const auto texts = lazy ? front::Texts::kAll : front::Texts::kLexemes;
    auto made = front::read_pattern(source_, pattern, texts, [&](std::size_t) { return at; });
    if (!made) {
      front::warn(source_, at, "no text matches this");
      return grammar_.never();
    }
    if (lazy) {
      const bool may_be_empty = made->accepting(made->initial());
      found->second = grammar_.early_regex(std::move(*made));
      if (may_be_empty) found->second = grammar_.optional(found->second);
    } else {
      found->second = grammar_.regex(std::move(*made));
    }
    if (temperature != 0) grammar_.set_temperature(found->second, temperature);
    return found->second;
  }

  const LarkSyntax& syntax_;
  const Source& source_;
  Shared& shared_;
  Grammar& grammar_;
  Patterns patterns_;
  front::Rules rules_;
  std::vector<Expr> exprs_;
  std::vector<bool> excluded_;  ///< by node, in the instance that is being translated
  std::vector<std::optional<Expr>> terminals_;
  /// By pattern, whether it is lazy, and temperature.
  std::map<std::tuple<std::string, bool, float>, Expr> by_pattern_;
  /// The rules with a parameter, and those instances that have not been translated.
  std::map<std::string, Instances, std::less<>> instances_;
  std::vector<std::pair<const LarkDefinition*, std::uint64_t>> open_;
  std::size_t size_ = 0;  ///< number of nodes of all instances
  std::string_view name_;  ///< the rule that is being translated
  std::optional<std::uint64_t> parameter_;  ///< its parameter
};

}  // namespace

cfg::Parser make_or_fail(std::string_view grammar) {
  Source source(grammar);
  const LarkSyntax syntax = read_lark(source);
  Shared shared;
  const cfg::Rule start = Translator(syntax, source, shared).start();
  return cfg::make_or_fail(std::move(shared.grammar), start);
}

}  // namespace aici::lark
