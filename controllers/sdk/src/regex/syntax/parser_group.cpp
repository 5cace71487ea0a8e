// Groups: everything that may follow an opening parenthesis.
#include <algorithm>

#include "aici/number.hpp"
#include "parser.hpp"

namespace aici::regex {
namespace {

struct Refused {
  std::string_view text;
  const char* why;
};

constexpr Refused kRefused[] = {
    {"?P=", "back-references are not supported: they do not describe a regular language"},
    {"?P>", "recursion is not supported"},
    {"?R", "recursion is not supported"},
    {"?0", "recursion is not supported"},
    {"?&", "recursion is not supported"},
    {"?>", "atomic groups are not supported: write (?:...)"},
    {"?|", "branch reset groups are not supported: write (?:...)"},
    {"?(", "conditional groups are not supported"},
    {"?#", "comments (?#...) are not supported: use the flag x and # to the end of the line"},
    {"?'", "a named group is (?<name>...)"},
    {"*", "verbs like (*ACCEPT) are not supported; write \\* for the character"},
};

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9') || c == '.' || c == '[' || c == ']';
}

}  // namespace

bool Parser::open_group() {
  const std::size_t start = at_++;
  if (groups_.size() > limits_.nesting)
    return fail(start, {"groups are nested deeper than ", Number(limits_.nesting).text()});
  for (const Refused& refused : kRefused)
    if (next_is(refused.text)) return fail(start, {refused.why});
  if (accept("?")) return open_special_group(start);
  push_group(start, Node::Kind::kConcat);
  return true;
}

bool Parser::open_special_group(std::size_t start) {
  if (accept(":")) {
    push_group(start, Node::Kind::kConcat);
  } else if (accept("until:")) {
    push_group(start, Node::Kind::kUntil);
  } else if (accept("not:")) {
    push_group(start, Node::Kind::kNot);
  } else if (accept("=")) {
    push_group(start, Node::Kind::kAhead);
  } else if (accept("!")) {
    push_group(start, Node::Kind::kNotAhead);
  } else if (accept("<=")) {
    push_group(start, Node::Kind::kBehind);
  } else if (accept("<!")) {
    push_group(start, Node::Kind::kNotBehind);
  } else if (accept("P<") || accept("<")) {
    if (!parse_group_name(start)) return false;
    push_group(start, Node::Kind::kConcat, names_.back());
  } else {
    return parse_flags(start);
  }
  return true;
}

bool Parser::parse_group_name(std::size_t start) {
  const std::size_t first = at_;
  while (is_name_part(byte()) && (at_ > first || is_name_start(byte()))) at_++;
  const std::string_view name = text_.substr(first, at_ - first);
  if (name.empty() || byte() != '>')
    return fail(at_,
                {"bad group name: letters, digits, '_', '.', '[' and ']' are allowed, first a letter or '_', "
                 "then '>'"});
  at_++;
  if (std::find(names_.begin(), names_.end(), name) != names_.end())
    return fail(start, {"there is another group with the name '", name, "'"});
  names_.push_back(name);
  return true;
}

bool Parser::parse_flags(std::size_t start) {
  Flags flags = flags_;
  bool value = true, any = false;
  for (;; at_++) {
    const char c = byte();
    if (c == ')' || c == ':') break;
    if (at_end()) return fail(start, {"this group is not closed: ')' is missing"});
    any = true;
    if (c == '-' && value) {
      value = any = false;
    } else if (c == 'i') {
      flags.ignore_case = value;
    } else if (c == 'm') {
      flags.multi_line = value;
    } else if (c == 's') {
      flags.dot_all = value;
    } else if (c == 'x') {
      flags.extended = value;
    } else if (c == 'u') {
      flags.unicode = value;
    } else if (c == 'U') {
      flags.lazy = value;
    } else {
      const std::size_t from = at_;
      take();
      return fail(from, {"unknown flag '", since(from),
                         "'; allowed are i, m, s, x, u, U, and those to switch off after a '-'"});
    }
  }
  if (!any) return fail(at_, {"there are no flags after '", value ? "(?'" : "-'"});
  if (byte() == ':') {
    at_++;
    push_group(start, Node::Kind::kConcat);
    flags_ = flags;
  } else {
    at_++;
    flags_ = flags;
    last_ = Last::kNothing;
  }
  return true;
}

}  // namespace aici::regex
