#include "parser.hpp"

#include <algorithm>

#include "aici/text.hpp"
#include "sort.hpp"
#include "unicode.hpp"

namespace aici::regex {

NodeId Ast::add(const Node& node) {
  nodes.push_back(node);
  return static_cast<NodeId>(nodes.size() - 1);
}

NodeId Ast::add(Node::Kind kind, std::uint32_t offset, const NodeId* of, std::uint32_t count) {
  if (count == 1 && (kind == Node::Kind::kConcat || kind == Node::Kind::kAlternate)) return of[0];
  const auto first = static_cast<std::uint32_t>(children.size());
  append<NodeId>(&children, {of, count});
  return add({.kind = kind, .offset = offset, .index = first, .count = count});
}

NodeId Ast::add_class(std::uint32_t offset, const CodepointSet& set) {
  return add({.kind = Node::Kind::kClass, .offset = offset, .index = class_index(set)});
}

std::uint32_t Ast::class_index(const CodepointSet& set) {
  Hasher hash;
  for (auto& r : set.ranges()) hash.add(r.low), hash.add(r.high);
  const std::uint32_t known = class_ids_.find(hash.bits(), [&](std::uint32_t i) { return classes[i] == set; });
  if (known != HashIndex::kNone) return known;
  classes.push_back(set);
  const auto index = static_cast<std::uint32_t>(classes.size() - 1);
  class_ids_.insert(hash.bits(), index);
  return index;
}

bool Parser::fail(std::size_t offset, std::initializer_list<std::string_view> message) {
  error_ = Error{.offset = static_cast<std::uint32_t>(offset)};
  for (const std::string_view part : message) error_.message += part;
  for (const char c : text_.substr(0, offset)) {
    if (c == '\n')
      error_.line++, error_.column = 1;
    else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80)
      error_.column++;
  }
  return false;
}

std::uint32_t Parser::take() { return decode_utf8(text_, &at_); }

bool Parser::check_utf8() {
  for (std::size_t at = 0; at < text_.size();) {
    const std::size_t start = at;
    if (decode_utf8(text_, &at) == kInvalidUtf8) return fail(start, {"the pattern is not valid UTF-8 here"});
  }
  return true;
}

void Parser::skip_space() {
  while (flags_.extended && !at_end()) {
    const std::size_t start = at_;
    const std::uint32_t c = take();
    const bool space = (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0x200E || c == 0x200F ||
                       c == 0x2028 || c == 0x2029;
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (!space) {
      at_ = start;
      return;
    }
  }
}

bool Parser::parse() {
  if (text_.size() > limits_.pattern_bytes)
    return fail(limits_.pattern_bytes,
                {"the pattern is longer than ", Number(limits_.pattern_bytes).text(), " bytes"});
  if (!check_utf8()) return false;
  push_group(0, Node::Kind::kConcat);
  if (!parse_items()) return false;
  if (groups_.size() > 1) return fail(groups_.back().offset, {"this group is not closed: ')' is missing"});
  ast_.root = finish_alternatives(groups_.back());
  return true;
}

bool Parser::parse_items() {
  for (;;) {
    skip_space();
    if (at_end()) return true;
    if (!parse_item()) return false;
  }
}

bool Parser::parse_item() {
  const std::size_t start = at_;
  switch (byte()) {
    case '(': return open_group();
    case ')': return close_group();
    case '*':
    case '+':
    case '?':
    case '{': return parse_repetition();
    case '|':
      at_++;
      alternatives_.push_back(finish_concat(groups_.back()));
      last_ = Last::kNothing;
      return true;
    case '[': {
      CodepointSet set;
      if (!parse_class(&set)) return false;
      push_node(ast_.add_class(static_cast<std::uint32_t>(start), set));
      return true;
    }
    case '.': {
      at_++;
      const CodepointSet all = CodepointSet::all();
      push_node(ast_.add_class(static_cast<std::uint32_t>(start),
                               flags_.dot_all ? all : all - CodepointSet('\n', '\n')));
      return true;
    }
    case '^':
    case '$': {
      const bool left = byte() == '^';
      at_++;
      const Assertion line = left ? Assertion::kLineStart : Assertion::kLineEnd;
      const Assertion text = left ? Assertion::kTextStart : Assertion::kTextEnd;
      push_node(ast_.add({.kind = Node::Kind::kAssertion,
                          .assertion = flags_.multi_line ? line : text,
                          .offset = static_cast<std::uint32_t>(start)}));
      return true;
    }
    case '\\': {
      if (accept("\\Q")) return parse_quoted();
      Atom atom;
      if (!parse_escape(false, &atom)) return false;
      if (atom.kind == Atom::kCharacter) {
        push_character(start, atom.character);
      } else if (atom.kind == Atom::kSet) {
        push_node(ast_.add_class(static_cast<std::uint32_t>(start), atom.set));
      } else {
        push_node(ast_.add({.kind = Node::Kind::kAssertion,
                            .assertion = atom.assertion,
                            .offset = static_cast<std::uint32_t>(start)}));
      }
      return true;
    }
    default: push_character(start, take()); return true;
  }
}

void Parser::push_node(NodeId node) {
  items_.push_back(node);
  last_ = Last::kItem;
}

void Parser::push_character(std::size_t offset, std::uint32_t character) {
  const CodepointSet set(character, character);
  push_node(ast_.add_class(static_cast<std::uint32_t>(offset), folded(set)));
}

bool Parser::parse_quoted() {
  while (!at_end() && !accept("\\E")) {
    const std::size_t start = at_;
    push_character(start, take());
  }
  return true;
}

void Parser::push_group(std::size_t offset, Node::Kind kind, std::string_view name) {
  groups_.push_back({offset, flags_, kind, alternatives_.size(), items_.size(), name});
  last_ = Last::kNothing;
}

// Everything that may follow an opening parenthesis.

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

NodeId Parser::finish_concat(const Group& group) {
  const auto count = static_cast<std::uint32_t>(items_.size() - group.items);
  const NodeId node = ast_.add(Node::Kind::kConcat, static_cast<std::uint32_t>(group.offset),
                               items_.data() + group.items, count);
  items_.resize(group.items);
  return node;
}

NodeId Parser::finish_alternatives(const Group& group) {
  alternatives_.push_back(finish_concat(group));
  const auto count = static_cast<std::uint32_t>(alternatives_.size() - group.alternatives);
  const NodeId node = ast_.add(Node::Kind::kAlternate, static_cast<std::uint32_t>(group.offset),
                               alternatives_.data() + group.alternatives, count);
  alternatives_.resize(group.alternatives);
  return node;
}

bool Parser::close_group() {
  if (groups_.size() == 1) return fail(at_, {"')' without a group; write \\) for the character"});
  at_++;
  const Group group = groups_.back();
  NodeId node = finish_alternatives(group);
  if (group.kind != Node::Kind::kConcat)
    node = ast_.add(group.kind, static_cast<std::uint32_t>(group.offset), &node, 1);
  if (!group.name.empty()) ast_.groups.push_back({node, std::string(group.name)});
  groups_.pop_back();
  flags_ = group.outer;
  push_node(node);
  return true;
}

bool Parser::parse_repetition() {
  const std::size_t start = at_++;
  const std::string_view op = since(start);
  if (last_ == Last::kNothing)
    return fail(start, {"there is nothing to repeat before '", op, "'; write \\", op, " for the character"});
  if (last_ == Last::kRepetition)
    return fail(start,
                {"a repetition directly after a repetition means different things in different dialects; "
                 "put the first one into a group: (?:...)",
                 op});
  std::uint32_t min = 0, max = Node::kNoMax;
  if (op == "+") min = 1;
  if (op == "?") max = 1;
  if (op == "{" && !parse_counts(start, &min, &max)) return false;
  const bool lazy = accept("?") != flags_.lazy;
  const NodeId child = items_.back();
  const auto first = static_cast<std::uint32_t>(ast_.children.size());
  ast_.children.push_back(child);
  items_.back() = ast_.add({.kind = Node::Kind::kRepeat,
                            .offset = static_cast<std::uint32_t>(start),
                            .index = first,
                            .count = 1,
                            .min = min,
                            .max = max,
                            .lazy = lazy});
  last_ = Last::kRepetition;
  return true;
}

bool Parser::parse_counts(std::size_t start, std::uint32_t* min, std::uint32_t* max) {
  constexpr std::uint32_t kMaxDigits = 9;  // more would not fit, and is beyond any limit
  const auto number = [&](std::uint32_t* out) {
    const std::size_t first = at_;
    for (*out = 0; byte() >= '0' && byte() <= '9' && at_ - first < kMaxDigits; at_++)
      *out = *out * 10 + static_cast<std::uint32_t>(byte() - '0');
    return at_ > first;
  };
  const auto refuse = [&](const char* why) {
    return fail(start, {why, "; allowed are {2}, {2,} and {2,5} without spaces, and \\{ for the character"});
  };
  if (byte() == ',') return refuse("the lower bound of this repetition is missing: write {0,...}");
  if (!number(min)) return refuse("this is not a repetition");
  *max = *min;
  if (accept(",") && !number(max)) *max = Node::kNoMax;
  if (byte() >= '0' && byte() <= '9') return fail(start, {"the count of this repetition is too large"});
  if (!accept("}")) return refuse("this repetition is not closed");
  if (*max < *min) return fail(start, {"the upper bound of this repetition is less than the lower one"});
  return true;
}

}  // namespace aici::regex
