// patterns.hpp - what generated texts have to be like: patterns that scripts name, each compiled once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "aici/any_constraint.hpp"
#include "script.h"

namespace script {

/// A new constraint for a pattern; fails if the source is none.
aici::AnyConstraint make_constraint(script_kind kind, std::string_view source);

/// All patterns of a script. One that is used again starts over with the masks that it has found.
class Patterns {
 public:
  /// Its number, from 1 on. Fails if the source is no pattern.
  std::uint32_t find(script_kind kind, std::string_view source);
  /// Its constraint, at the start of a text. It is the caller's until it asks again.
  aici::AnyConstraint& start(std::uint32_t number);
  /// Another constraint for the same pattern.
  aici::AnyConstraint make(std::uint32_t number) const;

  bool has(std::uint32_t number) const { return number > 0 && number <= patterns_.size(); }

 private:
  /// So many patterns keep their constraint, beside those that were made before there was a prompt.
  static constexpr std::size_t kMostAlive = 16;

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
