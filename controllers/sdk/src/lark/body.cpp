#include "body.hpp"

#include <string_view>

#include "aici/cfg/grammar.hpp"
#include "../front/patterns.hpp"
#include "../front/tokens.hpp"
#include "chunks.hpp"
#include "words.hpp"

namespace aici::lark {

using front::Source;
using Kind = LarkNode::Kind;

namespace {

/// Maximum count of a repetition, since counted repetitions are expanded.
constexpr std::uint32_t kMaxTimes = 10'000;

}  // namespace

Part LarkBody::read(std::size_t from) {
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
void LarkBody::push(Nest& nest, Part part) {
  auto& sequence = nest.sequence();
  while (!sequence.empty() && sequence.back() == kNotMark) {
    sequence.pop_back();
    part = add({Kind::kNot, nodes_[part].at, {}, {part}});
  }
  sequence.push_back(read_postfix(part));
}

Part LarkBody::choice(const Nest::Level& level, std::size_t at) {
  std::vector<Part> all;
  for (const auto& sequence : level.alternatives) all.push_back(both(sequence, at));
  return all.size() == 1 ? all[0] : add({Kind::kChoice, at, {}, std::move(all)});
}

Part LarkBody::both(const std::vector<Part>& marked, std::size_t at) {
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

Part LarkBody::read_atom() {
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

Part LarkBody::read_text(std::size_t at) {
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

std::string LarkBody::range(const std::string& low, const std::string& high, std::size_t at) {
  Source first(low), last(high);
  if (low.empty() || high.empty()) source_.fail(at, "a range has a character on each side");
  const char32_t a = first.take_character(), b = last.take_character();
  if (!first.at_end() || !last.at_end()) source_.fail(at, "a range has one character on each side");
  if (b < a) source_.fail(at, "this range is empty: its first character comes after its last");
  return "[" + front::pattern_of(a) + "-" + front::pattern_of(b) + "]";
}

Part LarkBody::read_postfix(Part part) {
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
void LarkBody::read_counts(std::size_t at, std::uint32_t* least, std::uint32_t* most) {
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

}  // namespace aici::lark
