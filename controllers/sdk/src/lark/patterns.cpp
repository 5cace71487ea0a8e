#include "patterns.hpp"

#include "aici/cfg/grammar.hpp"
#include "aici/regex/limits.hpp"
#include "../front/patterns.hpp"
#include "../front/rules.hpp"

namespace aici::lark {

namespace {

using Kind = LarkNode::Kind;

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

}  // namespace

LarkPatterns::LarkPatterns(const LarkSyntax& syntax, const front::Source& source)
    : syntax_(syntax), source_(source), patterns_(syntax.nodes.size()) {
  for (std::uint32_t i = 0; i < syntax.terminals.size(); i++) numbers_.emplace(syntax.terminals[i].name, i);
  translate_terminals();
}

/// Translates each terminal after the terminals that it names.
void LarkPatterns::translate_terminals() {
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

void LarkPatterns::fail_not_regular(const LarkNode& node) const {
  if (is_terminal_name(node.text)) {
    std::vector<std::string_view> names;
    for (const auto& [name, number] : numbers_) names.push_back(name);
    const std::string_view near = front::nearest(node.text, names);
    source_.fail(node.at, "there is no terminal " + node.text + (near.empty() ? "" : "; did you mean ") +
                              std::string(near) + (near.empty() ? "" : "?"));
  }
  source_.fail(node.at, "a terminal cannot name the rule " + node.text + ": it is a regular expression");
}

const std::string& LarkPatterns::of(Part part) {
  std::string& pattern = patterns_[part];
  if (pattern.empty()) {
    pattern = make(syntax_.nodes[part]);
    if (pattern.size() > regex::Limits().pattern_bytes)
      source_.fail(syntax_.nodes[part].at, "this is too long with its terminals expanded");
  }
  return pattern;
}

std::string LarkPatterns::of(const LarkDefinition& definition) {
  for (Part part = definition.first; part < definition.body; part++) of(part);
  const std::string& body = of(definition.body);
  return definition.suffix ? "(?:" + body + ")" + of(*definition.suffix) : body;
}

std::string LarkPatterns::make(const LarkNode& node) {
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
        source_.fail(node.at, "%regex with more than " + std::to_string(kMaxChunks) + " pieces is only possible alone " +
                                  "in a terminal that no other one names, or in a rule");
      return chunks_pattern(node.chunks);
    case Kind::kLark: source_.fail(node.at, "%lark cannot be in a terminal: it is not a regular expression");
    case Kind::kTokens: source_.fail(node.at, "a special token cannot be in a terminal, since it is not text: put it into a "
                                              "rule");
    case Kind::kIf: source_.fail(node.at, "`%if` cannot be in a terminal: only rules have parameters");
    case Kind::kJson: source_.fail(node.at, "%json cannot be in a terminal: it is not a regular expression");
  }
  return {};
}

const std::string& LarkPatterns::named(const LarkNode& node) {
  const auto found = numbers_.find(node.text);
  if (found == numbers_.end()) fail_not_regular(node);
  return of(syntax_.terminals[found->second].body);
}

}  // namespace aici::lark
