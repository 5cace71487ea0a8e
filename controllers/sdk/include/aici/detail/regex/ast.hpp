// ast.hpp - a parsed pattern.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aici/detail/hash_index.hpp"
#include "aici/detail/regex/codepoint_set.hpp"

namespace aici::regex {

/// Conditions on the characters to the left and right of a position. `word` is \w; the Ascii variants count only ASCII
/// characters as word characters.
enum class Assertion : std::uint8_t {
  kTextStart,  ///< \A, and ^ without (?m)
  kTextEnd,    ///< \z, and $ without (?m)
  kLineStart,  ///< ^ with (?m): at the start or after \n
  kLineEnd,    ///< $ with (?m): at the end or before \n
  kWordBoundary,
  kNoWordBoundary,
  kWordStart,      ///< \b{start}: not word before, word after
  kWordEnd,        ///< \b{end}: word before, not word after
  kWordStartHalf,  ///< \b{start-half}: not word before
  kWordEndHalf,    ///< \b{end-half}: not word after
  kAsciiWordBoundary,
  kAsciiNoWordBoundary,
  kAsciiWordStart,
  kAsciiWordEnd,
  kAsciiWordStartHalf,
  kAsciiWordEndHalf,
};

inline constexpr bool is_word_assertion(Assertion a) { return a >= Assertion::kWordBoundary; }
inline constexpr bool is_ascii_assertion(Assertion a) { return a >= Assertion::kAsciiWordBoundary; }
inline constexpr bool is_line_assertion(Assertion a) {
  return a == Assertion::kLineStart || a == Assertion::kLineEnd;
}

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

}  // namespace aici::regex
