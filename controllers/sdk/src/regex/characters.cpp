// Parses classes of characters in brackets, and escapes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/text.hpp"
#include "parser.hpp"
#include "unicode.hpp"

namespace aici::regex {

// Brackets: [a-z], [^...], nested classes, POSIX names and set operators.

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

// Escapes: everything that begins with a backslash.

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(std::uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool Parser::parse_escape(bool in_class, Atom* out) {
  const std::size_t start = at_++;
  if (at_end()) return fail(start, {"a backslash at the end; write \\\\ for the character"});
  const std::uint32_t c = take();
  if (is_letter(c)) return parse_letter_escape(start, in_class, out);
  if (c >= '0' && c <= '9') {
    if (c != '0' || is_digit(byte()))
      return fail(start,
                  {"back-references and octal escapes are not supported; write a character as \\x{...}"});
    out->character = 0;
    return true;
  }
  if (c == '<' || c == '>')
    return fail(start, {"\\< and \\> are the characters in some dialects and word boundaries in others; "
                        "write < and >, or \\b{start} and \\b{end}"});
  if (c < ' ' || c >= 0x7F)
    return fail(start, {"only ASCII characters can be escaped; write it without the backslash"});
  out->character = c;
  return true;
}

bool Parser::parse_letter_escape(std::size_t start, bool in_class, Atom* out) {
  const char letter = text_[start + 1];
  switch (letter) {
    case 'n': out->character = '\n'; return true;
    case 't': out->character = '\t'; return true;
    case 'r': out->character = '\r'; return true;
    case 'f': out->character = '\f'; return true;
    case 'v': out->character = '\v'; return true;
    case 'a': out->character = '\a'; return true;
    case 'x':
    case 'u':
    case 'U': return parse_hex(start, static_cast<std::uint32_t>(letter), out);
    case 'p':
    case 'P': return parse_property(start, letter == 'P', out);
    case 'd':
    case 's':
    case 'w':
      out->kind = Atom::kSet;
      out->set = perl_class(letter);
      return true;
    case 'D':
    case 'S':
    case 'W':
      out->kind = Atom::kSet;
      out->set = perl_class(static_cast<char>(letter + 32)).complement();
      return true;
    case 'A':
    case 'z':
      if (in_class) break;
      out->kind = Atom::kAssertion;
      out->assertion = letter == 'A' ? Assertion::kTextStart : Assertion::kTextEnd;
      return true;
    case 'b':
      if (in_class) return fail(start, {"\\b in a class is a backspace in some dialects; write \\x08"});
      return parse_boundary(start, out);
    case 'B':
      if (in_class) break;
      out->kind = Atom::kAssertion;
      out->assertion = flags_.unicode ? Assertion::kNoWordBoundary : Assertion::kAsciiNoWordBoundary;
      return true;
    default: break;
  }
  if (in_class && std::string_view("ABzQE").find(letter) != std::string_view::npos)
    return fail(start, {since(start), " has no meaning in a class"});
  return refuse_escape(start, static_cast<std::uint32_t>(letter));
}

bool Parser::refuse_escape(std::size_t start, std::uint32_t letter) {
  switch (letter) {
    case 'k':
    case 'g': return fail(start, {"back-references are not supported: they do not describe a regular language"});
    case 'Z':
      return fail(start,
                  {"\\Z means different things in different dialects; write \\z for the end of the text"});
    case 'E': return fail(start, {"\\E without \\Q"});
    case 'K':
    case 'G': return fail(start, {since(start), " is not supported: the whole text is matched"});
    case 'X':
    case 'R':
    case 'C':
    case 'N':
    case 'h':
    case 'H': return fail(start, {since(start), " is not supported; write the characters as a class"});
    default:
      return fail(start,
                  {"unknown escape ", since(start),
                   "; allowed are \\n \\t \\r \\f \\v \\a \\0 \\xHH \\x{H} \\uHHHH \\u{H} \\d \\D \\s \\S "
                   "\\w \\W \\pL \\p{Name} \\P{Name} \\A \\z \\b \\B \\Q...\\E and punctuation"});
  }
}

bool Parser::parse_hex(std::size_t start, std::uint32_t letter, Atom* out) {
  const auto refuse = [&] {
    const char* allowed = letter == 'x'   ? "\\xHH or \\x{H...}"
                          : letter == 'u' ? "\\uHHHH or \\u{H...}"
                                          : "\\UHHHHHHHH or \\U{H...}";
    return fail(start, {"bad escape: allowed is ", allowed, " with hex digits"});
  };
  std::uint32_t value = 0;
  if (accept("{")) {
    const std::size_t first = at_;
    for (; hex_digit(byte()) >= 0 && at_ - first < 8; at_++)
      value = value << 4 | static_cast<std::uint32_t>(hex_digit(byte()));
    if (at_ == first || !accept("}")) return refuse();
  } else {
    for (int left = letter == 'x' ? 2 : letter == 'u' ? 4 : 8; left > 0; left--, at_++) {
      if (hex_digit(byte()) < 0) return refuse();
      value = value << 4 | static_cast<std::uint32_t>(hex_digit(byte()));
    }
    if (letter == 'u' && !parse_surrogate_pair(start, &value)) return false;
  }
  if (!is_scalar(value))
    return fail(start, {since(start), " is not a character: allowed are 0 to 10FFFF without D800 to DFFF"});
  if (!flags_.unicode && letter == 'x' && value > 0x7F && value <= 0xFF)
    return fail(start, {"with (?-u) ", since(start),
                        " would be a byte, but text is UTF-8; write \\u{...} for the character"});
  out->character = value;
  return true;
}

bool Parser::parse_surrogate_pair(std::size_t start, std::uint32_t* value) {
  if (*value < 0xD800 || *value > 0xDBFF || !next_is("\\u")) return true;
  std::uint32_t low = 0;
  for (std::size_t i = 2; i < 6; i++) {
    const int digit = at_ + i < text_.size() ? hex_digit(text_[at_ + i]) : -1;
    if (digit < 0) return true;
    low = low << 4 | static_cast<std::uint32_t>(digit);
  }
  if (low < 0xDC00 || low > 0xDFFF) return fail(start, {"a high surrogate without a low one is not a character"});
  at_ += 6;
  *value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
  return true;
}

bool Parser::parse_property(std::size_t start, bool negated, Atom* out) {
  std::string_view name;
  if (accept("{")) {
    const std::size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return fail(start, {"this property is not closed: '}' is missing"});
    name = text_.substr(at_, end - at_);
    at_ = end + 1;
  } else if (!at_end()) {
    const std::size_t first = at_;
    take();
    name = text_.substr(first, at_ - first);
  }
  if (name.starts_with('^')) {
    name.remove_prefix(1);
    negated = !negated;
  }
  std::string key;
  if (const std::size_t unequal = name.find("!="); unequal != std::string_view::npos) {
    key = name.substr(0, unequal);
    key += name.substr(unequal + 1);
    name = key;
    negated = !negated;
  }
  CodepointSet set;
  if (!find_property(name, &set))
    return fail(start, {"unknown property ", since(start),
                        "; known are general categories (L, Lu, Letter), scripts (Greek, Han), sc=Script, "
                        "gc=Category, and properties like Alphabetic, White_Space, Emoji"});
  set = folded(set);
  out->kind = Atom::kSet;
  out->set = negated ? set.complement() : set;
  return true;
}

bool Parser::parse_boundary(std::size_t start, Atom* out) {
  struct Named {
    const char* name;
    Assertion unicode, ascii;
  };
  constexpr Named kNamed[] = {
      {"{start}", Assertion::kWordStart, Assertion::kAsciiWordStart},
      {"{end}", Assertion::kWordEnd, Assertion::kAsciiWordEnd},
      {"{start-half}", Assertion::kWordStartHalf, Assertion::kAsciiWordStartHalf},
      {"{end-half}", Assertion::kWordEndHalf, Assertion::kAsciiWordEndHalf},
  };
  out->kind = Atom::kAssertion;
  out->assertion = flags_.unicode ? Assertion::kWordBoundary : Assertion::kAsciiWordBoundary;
  for (const Named& named : kNamed) {
    if (!accept(named.name)) continue;
    out->assertion = flags_.unicode ? named.unicode : named.ascii;
    return true;
  }
  if (byte() == '{' && at_ + 1 < text_.size() && !is_digit(text_[at_ + 1]))
    return fail(
        start,
        {"unknown word boundary; allowed are \\b, \\b{start}, \\b{end}, \\b{start-half}, \\b{end-half}"});
  return true;
}

CodepointSet Parser::perl_class(char letter) {
  if (flags_.unicode) {
    CodepointSet& known = perl_classes_[letter == 'd' ? 0 : letter == 's' ? 1 : 2];
    if (known.empty())
      known = letter == 'd' ? unicode_digit() : letter == 's' ? unicode_space() : unicode_word();
    return known;
  }
  if (letter == 'd') return CodepointSet('0', '9');
  CodepointSet out;
  if (letter == 's') {
    out.add(9, 13), out.add(' ', ' ');
  } else {
    out.add('0', '9'), out.add('A', 'Z'), out.add('_', '_'), out.add('a', 'z');
  }
  return out;
}

}  // namespace aici::regex
