#include "aici/cfg/groups.hpp"

#include <utility>
#include <vector>

namespace aici::cfg {

namespace {

using regex::Part;

/// Named groups become rules, and all around them terminals.
Expr add(Grammar& grammar, Part& part) {
  if (part.kind == Part::Kind::kRegex) return grammar.regex(std::move(*part.regex));
  std::vector<Expr> parts;
  for (Part& below : part.parts) parts.push_back(add(grammar, below));
  if (part.kind == Part::Kind::kSequence) return grammar.sequence(parts);
  if (part.kind == Part::Kind::kChoice) return grammar.choice(parts);
  const Rule rule = grammar.declare(part.name);
  grammar.define(rule, parts.front());
  if (part.kind == Part::Kind::kRepeat) return grammar.repeat(grammar.call(rule), part.min, part.max);
  grammar.capture(rule, {part.name, {}, nullptr, nullptr});
  return grammar.call(rule);
}

}  // namespace

Parser make_or_fail(Part pattern) {
  Grammar grammar;
  const Rule start = grammar.declare("start");
  grammar.define(start, add(grammar, pattern));
  return make_or_fail(std::move(grammar), start);
}

}  // namespace aici::cfg
