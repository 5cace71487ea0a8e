// patterns.hpp - what is a terminal in a Lark grammar, as a regular expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "syntax.hpp"

namespace aici::lark {

/// Terminals may name each other, but not themselves.
class LarkPatterns {
 public:
  /// More pieces of %regex cannot be in one regular expression: it has groups in groups.
  static constexpr std::size_t kMostChunks = 90;

  /// Fails if a terminal is not regular, because it names a rule or itself, or is too long when it is written out.
  LarkPatterns(const LarkSyntax& syntax, const front::Source& source);

  bool has(std::string_view terminal) const { return numbers_.contains(terminal); }
  /// The number of a terminal, in the order in which they are written.
  std::uint32_t number(std::string_view terminal) const { return numbers_.find(terminal)->second; }
  /// Of a terminal's body, or of any part that needs no rule.
  const std::string& of(Part part);
  /// Of what a definition stands for, with its suffix. For rules with attributes, and for what is ignored.
  std::string of(const LarkDefinition& definition);

  /// Says that a name stands where a terminal must, and is none.
  [[noreturn]] void fail_not_regular(const LarkNode& node) const;

 private:
  std::string make(const LarkNode& node);
  const std::string& named(const LarkNode& node);
  void translate_terminals();

  const LarkSyntax& syntax_;
  const front::Source& source_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  /// By node; empty = not made yet. (No pattern is empty: that of the empty text is a group.)
  std::vector<std::string> patterns_;
};

}  // namespace aici::lark
