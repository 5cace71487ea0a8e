#include "translate.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "aici/substring.hpp"
#include "../front/patterns.hpp"
#include "../front/rules.hpp"
#include "../front/schema.hpp"
#include "../front/tokens.hpp"
#include "patterns.hpp"
#include "words.hpp"

namespace aici::lark {

namespace {

using cfg::Expr;
using cfg::Grammar;
using cfg::Lexemes;
using front::Source;
using Kind = LarkNode::Kind;

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
      source_.fail(node.at, "there are more than " + std::to_string(kMaxNested) + " grammars in this one, or one is deeper "
                            "than " + std::to_string(kMaxDepth) + ": write rules instead");
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
    const std::uint64_t value = (*node.parameter)(parameter_.value_or(0));
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
    if (node.chunks.size() <= LarkPatterns::kMaxChunks) return terminal(patterns_.of(part), node.at);
    grammar_.set_lexemes(Lexemes::kAnywhere);
    const cfg::Rule all = grammar_.declare(name_);
    Expr behind = grammar_.empty();
    grammar_.define(all, behind);
    for (std::size_t i = node.chunks.size(); i-- > 0;) {
      const cfg::Rule here = grammar_.declare(name_);
      grammar_.define(here, grammar_.sequence({grammar_.literal(node.chunks[i]), behind}));
      grammar_.define(all, grammar_.call(here));
      behind = grammar_.optional(grammar_.call(here));
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
  LarkPatterns patterns_;
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

Lark translate_lark(const LarkSyntax& syntax, const Source& source) {
  Shared shared;
  const cfg::Rule start = Translator(syntax, source, shared).start();
  return {std::move(shared.grammar), start};
}

}  // namespace aici::lark
