// patterns.hpp - the terminals of a Lark grammar as regular expressions.
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
  /// Maximum number of chunks of %regex in one regular expression, in which they become nested groups.
  static constexpr std::size_t kMaxChunks = 90;

  /// Fails if a terminal is not regular (it names a rule or itself), or if it is too long when it is expanded.
  LarkPatterns(const LarkSyntax& syntax, const front::Source& source);

  bool has(std::string_view terminal) const { return numbers_.contains(terminal); }
  /// Returns the number of a terminal, in the order of the definitions.
  std::uint32_t number(std::string_view terminal) const { return numbers_.find(terminal)->second; }
  /// Returns the pattern of a terminal's body, or of any part without rules.
  const std::string& of(Part part);
  /// Returns the pattern of a definition with its suffix. For rules with attributes, and for ignored text.
  std::string of(const LarkDefinition& definition);

  /// Fails with the message that this name must be a terminal and is not one.
  [[noreturn]] void fail_not_regular(const LarkNode& node) const;

 private:
  std::string make(const LarkNode& node);
  const std::string& named(const LarkNode& node);
  void translate_terminals();

  const LarkSyntax& syntax_;
  const front::Source& source_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  /// By node; empty if not made yet. (No pattern is empty: the pattern of the empty text is a group.)
  std::vector<std::string> patterns_;
};

}  // namespace aici::lark
