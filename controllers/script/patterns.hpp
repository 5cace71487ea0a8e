// patterns.hpp - the patterns of generated texts, each compiled once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "aici/any_constraint.hpp"
#include "script.h"

namespace script {

/// Makes a constraint from a pattern; fails if the source is invalid.
aici::AnyConstraint make_constraint(script_kind kind, std::string_view source);

/// All patterns of a script. A pattern that is used again keeps its cached masks.
class Patterns {
 public:
  /// Returns the pattern's number, from 1 on. Fails if the source is invalid.
  std::uint32_t find(script_kind kind, std::string_view source);
  /// Returns the pattern's constraint, at the start of a text. It is valid until the next call.
  aici::AnyConstraint& start(std::uint32_t number);
  /// Makes another constraint for the same pattern.
  aici::AnyConstraint make(std::uint32_t number) const;

  bool has(std::uint32_t number) const { return number > 0 && number <= patterns_.size(); }

 private:
  /// Number of patterns that keep their constraint, in addition to those compiled before the prompt.
  static constexpr std::size_t kMaxAlive = 16;

  struct Pattern {
    script_kind kind;
    std::string source;
    std::unique_ptr<aici::AnyConstraint> constraint;
    std::uint64_t used = 0;
  };
  void make_room();

  std::vector<Pattern> patterns_;
  std::uint64_t clock_ = 0;
};

}  // namespace script
