// nest.hpp - the open brackets of a grammar and their contents so far, without recursion, since the call stack is
// small.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "source.hpp"

namespace aici::front {

/// Alternatives of sequences of items, in nested brackets. The outermost level is the body of a rule.
template <class Item>
class Nest {
 public:
  using Sequence = std::vector<Item>;
  struct Level {
    char close = '\0';     ///< the bracket that ends it; '\0' of the outermost one
    std::size_t at = 0;    ///< where it begins
    std::vector<Sequence> alternatives{Sequence()};
  };
  static constexpr std::size_t kMaxLevels = 10'000;

  Nest() : levels_(1) {}

  bool inside() const { return levels_.size() > 1; }
  char close() const { return levels_.back().close; }
  Sequence& sequence() { return levels_.back().alternatives.back(); }
  void next_alternative() { levels_.back().alternatives.emplace_back(); }
  void open(const Source& source, char close, std::size_t at) {
    if (levels_.size() > kMaxLevels)
      source.fail(at, "brackets are nested deeper than " + std::to_string(kMaxLevels) + ": move some into a rule");
    levels_.push_back({close, at});
  }
  /// Ends the innermost level.
  Level pop() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }
  /// Returns whether the contents of the bracket that has just ended must become a rule. Some must, since the passes
  /// over expressions recurse.
  bool is_deep() const { return levels_.size() % kLevelsOfRule == 0; }
  /// Fails with the message that the innermost bracket is not closed here.
  [[noreturn]] void fail_open(const Source& source) const {
    const Level& level = levels_.back();
    source.fail_here(std::string("`") + level.close + "` for the bracket of " + source.place(level.at));
  }

 private:
  static constexpr std::size_t kLevelsOfRule = 50;

  std::vector<Level> levels_;
};

}  // namespace aici::front
