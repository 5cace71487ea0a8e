// Escapes: everything that begins with a backslash.
#include <algorithm>
#include <string>

#include "../unicode/unicode.hpp"
#include "parser.hpp"

namespace aici::regex {
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
