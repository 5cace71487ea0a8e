// answer_cache.hpp - what a constraint answered in states where it has been before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aici/token_set.hpp"
#include "aici/types.hpp"

namespace aici {

/// What may come in a state: a token out of a mask; these tokens and no others; or nothing (the end).
struct Answer {
  enum class Kind : std::uint8_t { mask, tokens, stop };
  Kind kind = Kind::stop;
  /// The mask, of the vocabulary's `mask_words()`, or the tokens.
  std::span<const std::uint32_t> words;
};

/// Remembers answers under 64-bit keys, the least recently used ones going first when `budget` bytes are
/// full. A mask that has little in it, or lacks little of all text, is kept as its differences: of the masks of
/// a typical constraint most are of this sort, and take some hundred bytes instead of 16 KiB.
class AnswerCache {
 public:
  explicit AnswerCache(std::size_t budget) : budget_(budget) {}

  /// The answer, or null. A mask is valid until the next call of `find` or `put` and may lie in `scratch`.
  const Answer* find(std::uint64_t key, TokenSet& scratch);
  void put(std::uint64_t key, const Answer& answer);

  void clear() { entries_.clear(), bytes_ = 0; }

  std::size_t bytes() const { return bytes_; }

 private:
  enum class Form : std::uint8_t { whole, over_nothing, over_text, tokens, stop };
  struct Entry {
    std::uint64_t key;
    std::uint32_t last_use;
    std::uint32_t count;  ///< words, or differences
    Form form;
    /// `count` words; of differences: the words, then the 16-bit numbers of their places.
    std::unique_ptr<std::uint32_t[]> data;

    std::size_t bytes() const;
  };

  Entry pack_mask(std::span<const std::uint32_t> mask) const;
  void make_room(std::size_t bytes);

  std::size_t budget_, bytes_ = 0;
  std::uint32_t now_ = 0;
  std::vector<Entry> entries_;
  Answer found_;
};

}  // namespace aici
