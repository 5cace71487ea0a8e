// Bracketed classes: [a-z], [^...], nested classes, POSIX names and set operators.
#include <string>

#include "aici/number.hpp"
#include "../unicode/unicode.hpp"
#include "parser.hpp"

namespace aici::regex {
namespace {

struct PosixClass {
  std::string_view name;
  CodepointRange ranges[4];
  int count;
};

constexpr PosixClass kPosixClasses[] = {
    {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}, 3},
    {"alpha", {{'A', 'Z'}, {'a', 'z'}}, 2},
    {"ascii", {{0, 127}}, 1},
    {"blank", {{9, 9}, {' ', ' '}}, 2},
    {"cntrl", {{0, 31}, {127, 127}}, 2},
    {"digit", {{'0', '9'}}, 1},
    {"graph", {{'!', '~'}}, 1},
    {"lower", {{'a', 'z'}}, 1},
    {"print", {{' ', '~'}}, 1},
    {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}, 4},
    {"space", {{9, 13}, {' ', ' '}}, 2},
    {"upper", {{'A', 'Z'}}, 1},
    {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}, 4},
    {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, 3},
};

}  // namespace

CodepointSet Parser::folded(const CodepointSet& set) const {
  if (!flags_.ignore_case) return set;
  return flags_.unicode ? fold_case(set) : fold_case_ascii(set);
}

bool Parser::parse_class(CodepointSet* out) {
  std::vector<Bracket> stack;
  if (!open_bracket(&stack)) return false;
  for (;;) {
    skip_space();
    if (at_end()) return fail(stack.back().offset, {"this class is not closed: ']' is missing"});
    bool ok = true;
    if (byte() == '[') {
      ok = next_is("[:") ? parse_posix(&stack.back()) : open_bracket(&stack);
    } else if (byte() == ']') {
      if (!close_bracket(&stack, out)) return false;
      if (stack.empty()) return true;
      stack.back().current.add(*out);
      stack.back().has_items = true;
    } else if (next_is("&&") || next_is("--") || next_is("~~")) {
      ok = parse_set_operator(&stack.back());
    } else {
      ok = parse_class_item(&stack.back());
    }
    if (!ok) return false;
  }
}

bool Parser::open_bracket(std::vector<Bracket>* stack) {
  const std::size_t start = at_++;
  if (stack->size() >= limits_.nesting)
    return fail(start, {"classes are nested deeper than ", Number(limits_.nesting).text()});
  skip_space();
  stack->push_back({start, accept("^"), SetOperator::kUnion, {}, {}, false});
  skip_space();
  // A '-' or ']' in the first position is a character.
  Bracket& bracket = stack->back();
  while (accept("-")) bracket.current.add('-', '-'), bracket.has_items = true;
  if (!bracket.has_items && accept("]")) bracket.current.add(']', ']'), bracket.has_items = true;
  return true;
}

bool Parser::close_bracket(std::vector<Bracket>* stack, CodepointSet* out) {
  at_++;
  Bracket& bracket = stack->back();
  if (!apply_operator(&bracket)) return false;
  *out = bracket.negated ? bracket.left.complement() : std::move(bracket.left);
  stack->pop_back();
  return true;
}

bool Parser::apply_operator(Bracket* bracket) {
  if (!bracket->has_items)
    return fail(at_ - 1,
                {"an operand of '&&', '--' or '~~' is empty; escape the character if it is meant as one"});
  const CodepointSet current = folded(bracket->current);
  switch (bracket->pending) {
    case SetOperator::kUnion: bracket->left = current; break;
    case SetOperator::kIntersection: bracket->left = bracket->left & current; break;
    case SetOperator::kDifference: bracket->left = bracket->left - current; break;
    case SetOperator::kSymmetricDifference: bracket->left = bracket->left ^ current; break;
  }
  bracket->current = CodepointSet();
  bracket->has_items = false;
  return true;
}

bool Parser::parse_set_operator(Bracket* bracket) {
  const char op = byte();
  at_ += 2;
  if (!apply_operator(bracket)) return false;
  bracket->pending = op == '&'   ? SetOperator::kIntersection
                     : op == '-' ? SetOperator::kDifference
                                 : SetOperator::kSymmetricDifference;
  return true;
}

bool Parser::parse_posix(Bracket* bracket) {
  const std::size_t start = at_;
  at_ += 2;
  const bool negated = accept("^");
  const std::size_t first = at_;
  while (byte() >= 'a' && byte() <= 'z') at_++;
  const std::string_view name = text_.substr(first, at_ - first);
  CodepointSet set;
  bool known = false;
  for (const PosixClass& posix : kPosixClasses) {
    if (posix.name != name) continue;
    known = true;
    for (int i = 0; i < posix.count; i++) set.add(posix.ranges[i].low, posix.ranges[i].high);
  }
  if (!accept(":]") || !known) {
    std::string names;
    for (const PosixClass& posix : kPosixClasses) {
      if (!names.empty()) names += ", ";
      names += posix.name;
    }
    return fail(start, {"unknown POSIX class; allowed are [:name:] and [:^name:] with the names ", names,
                        ", and \\[ for the character"});
  }
  set = folded(set);
  bracket->current.add(negated ? set.complement() : set);
  bracket->has_items = true;
  return true;
}

bool Parser::parse_class_atom(Atom* out) {
  if (byte() == '\\') return parse_escape(true, out);
  out->kind = Atom::kCharacter;
  out->character = take();
  return true;
}

bool Parser::parse_class_item(Bracket* bracket) {
  const std::size_t start = at_;
  Atom low, high;
  if (!parse_class_atom(&low)) return false;
  bracket->has_items = true;
  skip_space();
  const bool range = byte() == '-' && !next_is("--") && [&] {  // in "-]" the '-' is a character, and the class ends
    const std::size_t here = at_++;
    skip_space();
    const bool more = !at_end() && byte() != ']';
    if (!more) at_ = here;
    return more;
  }();
  if (!range) {
    if (low.kind == Atom::kSet)
      bracket->current.add(low.set);
    else
      bracket->current.add(low.character, low.character);
    return true;
  }
  if (byte() == '[') return fail(at_, {"a range cannot end with a class; write \\[ for the character"});
  if (!parse_class_atom(&high)) return false;
  if (low.kind == Atom::kSet || high.kind == Atom::kSet)
    return fail(start, {"a range needs a character on both sides; put '-' first or last, or write \\- for it"});
  if (low.character > high.character)
    return fail(start, {"the range '", since(start), "' is empty: its first character comes after its last"});
  bracket->current.add(low.character, high.character);
  return true;
}

}  // namespace aici::regex
