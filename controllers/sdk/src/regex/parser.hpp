// parser.hpp - a parsed pattern, and its parser. docs/regex.md describes the syntax.
//
// The parser keeps its own stacks, so the depth of a pattern costs no call stack. It is in two files: parser.cpp
// (groups, alternatives, repetition) and characters.cpp (brackets, backslashes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/detail/regex/automaton.hpp"
#include "aici/regex/limits.hpp"

namespace aici::regex {

using NodeId = std::uint32_t;

struct Node {
  enum class Kind : std::uint8_t {
    kClass,      ///< one character of a class; an empty class matches nothing
    kAssertion,  ///< no character
    kConcat,     ///< children in sequence; without children: the empty text
    kAlternate,  ///< one of the children
    kRepeat,     ///< the child `min` to `max` times
    kUntil,      ///< the shortest text that ends with a match of the child
    kNot,        ///< every text that the child does not match
    kAhead,      ///< no character; the child matches from here on
    kNotAhead,   ///< it does not
    kBehind,     ///< no character; the child matches up to here
    kNotBehind,  ///< it does not
  };
  static constexpr std::uint32_t kNoMax = 0xffffffff;

  Kind kind;
  Assertion assertion = Assertion::kTextStart;  ///< kAssertion
  std::uint32_t offset = 0;                     ///< position in the pattern
  std::uint32_t index = 0;                      ///< kClass: of Ast::classes; else the first of Ast::children
  std::uint32_t count = 0;                      ///< number of children
  std::uint32_t min = 0, max = 0;               ///< kRepeat
  bool lazy = false;                            ///< kRepeat: `re` prefers few times

  bool is_look() const { return kind >= Kind::kAhead; }
};

/// Children come before their parents in `nodes`.
class Ast {
 public:
  std::vector<Node> nodes;
  std::vector<NodeId> children;
  std::vector<CodepointSet> classes;  ///< each set is stored once
  struct Group {
    NodeId node;
    std::string name;
  };
  std::vector<Group> groups;  ///< the named ones, in the order of their ends
  NodeId root = 0;

  NodeId child(const Node& node, std::uint32_t i = 0) const { return children[node.index + i]; }

  NodeId add(const Node& node);
  /// Adds a node with children; Concat and Alternate of one node are that node.
  NodeId add(Node::Kind kind, std::uint32_t offset, const NodeId* of, std::uint32_t count);
  NodeId add_class(std::uint32_t offset, const CodepointSet& set);
  std::uint32_t class_index(const CodepointSet& set);

 private:
  HashIndex class_ids_;
};

class Parser {
 public:
  Parser(std::string_view pattern, const Limits& limits, Ast* ast, Error* error)
      : text_(pattern), limits_(limits), ast_(*ast), error_(*error) {}

  /// Returns false and fills in `error` if the pattern is refused.
  bool parse();
  /// Fills in `error` and returns false.
  bool fail(std::size_t offset, std::initializer_list<std::string_view> message);

 private:
  struct Flags {
    bool ignore_case = false, multi_line = false, dot_all = false, extended = false, unicode = true;
    bool lazy = false;  ///< greedy and lazy are swapped
  };
  struct Group {
    std::size_t offset;
    Flags outer;               ///< flags after the group
    Node::Kind kind;           ///< kConcat for a plain group
    std::size_t alternatives;  ///< index of its first alternative in alternatives_
    std::size_t items;         ///< index of the current alternative's first item in items_
    std::string_view name;     ///< empty if it has none
  };
  /// What a repetition operator here would apply to.
  enum class Last { kNothing, kItem, kRepetition };
  /// The meaning of an escape.
  struct Atom {
    enum Kind { kCharacter, kSet, kAssertion } kind = kCharacter;
    std::uint32_t character = 0;
    CodepointSet set;
    Assertion assertion = Assertion::kTextStart;
  };
  enum class SetOperator { kUnion, kIntersection, kDifference, kSymmetricDifference };
  struct Bracket {
    std::size_t offset;
    bool negated;
    SetOperator pending;  ///< combines `left` with `current`
    CodepointSet left, current;
    bool has_items;  ///< in `current`
  };

  // parser.cpp
  bool parse_items();
  bool parse_item();
  bool check_utf8();
  bool open_group();
  bool open_special_group(std::size_t start);
  bool parse_flags(std::size_t start);
  bool parse_group_name(std::size_t start);
  bool close_group();
  void push_group(std::size_t offset, Node::Kind kind, std::string_view name = {});
  NodeId finish_alternatives(const Group& group);
  NodeId finish_concat(const Group& group);
  bool parse_repetition();
  bool parse_counts(std::size_t start, std::uint32_t* min, std::uint32_t* max);
  bool parse_quoted();
  void push_node(NodeId node);
  void push_character(std::size_t offset, std::uint32_t character);

  // characters.cpp: brackets
  bool parse_class(CodepointSet* out);
  bool open_bracket(std::vector<Bracket>* stack);
  bool close_bracket(std::vector<Bracket>* stack, CodepointSet* out);
  bool parse_class_item(Bracket* bracket);
  bool parse_class_atom(Atom* out);
  bool parse_posix(Bracket* bracket);
  bool parse_set_operator(Bracket* bracket);
  bool apply_operator(Bracket* bracket);
  CodepointSet folded(const CodepointSet& set) const;

  // characters.cpp: backslashes
  bool parse_escape(bool in_class, Atom* out);
  bool parse_letter_escape(std::size_t start, bool in_class, Atom* out);
  bool refuse_escape(std::size_t start, std::uint32_t letter);
  bool parse_hex(std::size_t start, std::uint32_t letter, Atom* out);
  bool parse_surrogate_pair(std::size_t start, std::uint32_t* value);
  bool parse_property(std::size_t start, bool negated, Atom* out);
  bool parse_boundary(std::size_t start, Atom* out);
  CodepointSet perl_class(char letter);

  bool at_end() const { return at_ >= text_.size(); }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool accept(std::string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }
  char byte() const { return at_end() ? '\0' : text_[at_]; }
  /// Returns the character here and moves past it. Requires text that check_utf8 has accepted.
  std::uint32_t take();
  /// Returns the pattern's text from `from` to here.
  std::string_view since(std::size_t from) const { return text_.substr(from, at_ - from); }
  void skip_space();

  std::string_view text_;
  const Limits& limits_;
  Ast& ast_;
  Error& error_;
  std::size_t at_ = 0;
  Flags flags_;
  Last last_ = Last::kNothing;
  std::vector<Group> groups_;
  std::vector<NodeId> items_, alternatives_;
  std::vector<std::string_view> names_;
  CodepointSet perl_classes_[3];  ///< \d, \s, \w of Unicode, if they were needed
};

}  // namespace aici::regex
