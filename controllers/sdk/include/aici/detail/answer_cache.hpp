// answer_cache.hpp - a constraint's cache of answers by state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aici/detail/hash_index.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"

namespace aici {

/// The answer in a state: a mask of allowed tokens, forced tokens, or the end.
struct Answer {
  enum class Kind : std::uint8_t { mask, tokens, stop };
  Kind kind = Kind::stop;
  /// The mask, of the vocabulary's `mask_words()` words, or the tokens.
  std::span<const std::uint32_t> words;
};

/// Caches answers under 64-bit keys, and evicts the least recently used ones beyond `budget` bytes. Answers that were
/// computed ahead, in memory that sequences share, can be pinned (`keep`): they stay, outside the budget.
///
/// A mask of a large vocabulary has 16 KiB and more, but most masks of a constraint are similar, allow few tokens, or
/// forbid few. So if the differences are few, a mask is stored as the tokens in which it differs from another mask,
/// from the empty set, or from all text, 2 bytes each. Masks that are used often are stored whole.
class AnswerCache {
 public:
  explicit AnswerCache(std::size_t budget) : budget_(budget) {}

  /// Returns the answer, or null. A mask is valid until the next call of `find` or `put`, and may be in `scratch`.
  const Answer* find(std::uint64_t key, TokenSet& scratch);
  void put(std::uint64_t key, const Answer& answer);
  void clear();
  /// Pins all current answers. Masks that are slow to reconstruct are stored whole while less than `room` bytes are
  /// pinned.
  void keep(std::size_t room, TokenSet& scratch);
  /// Returns whether an answer is pinned.
  bool keeps(std::uint64_t key) const { return look_kept(key) != nullptr; }
  bool has(std::uint64_t key) const { return const_cast<AnswerCache*>(this)->look(key) != nullptr; }

  /// Returns the used bytes of the budget.
  std::size_t bytes() const { return bytes_; }
  /// Return the bytes and the number of pinned answers.
  std::size_t kept_bytes() const { return kept_bytes_; }
  std::size_t num_kept() const { return kept_.size(); }

 private:
  /// A whole mask that several entries may share. (std::shared_ptr would link 20 kB of the C++ library.)
  struct Whole {
    std::uint32_t users;
    std::unique_ptr<std::uint32_t[]> words;
  };

  enum class Form : std::uint8_t { stop, tokens, mask };
  enum class Base : std::uint8_t { nothing, text, whole };
  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t last_use = 0;
    std::uint32_t uses = 0;
    Form form = Form::stop;
    Base base = Base::nothing;
    /// Which one of `wholes_` is the base.
    std::uint32_t whole = 0;
    /// Tokens, or tokens in which the mask differs from its base.
    std::uint32_t count = 0;
    std::uint32_t data_words = 0;
    /// Tokens. Or differences: how many there are in each 65 536 tokens, then the low halves of all.
    std::unique_ptr<std::uint32_t[]> data;
  };

  const Entry* look_kept(std::uint64_t key) const;
  bool is_kept(const Entry& entry) const { return &entry >= kept_.data() && &entry < kept_.data() + kept_.size(); }
  Entry* look(std::uint64_t key);
  const std::uint32_t* base_of(const Entry& entry) const;
  Entry pack(std::span<const std::uint32_t> mask);
  void unpack(const Entry& entry, TokenSet& out) const;
  void make_whole(Entry& entry, const TokenSet& mask);
  void keep_whole(Entry* entry, std::span<const std::uint32_t> mask);
  void release_base(const Entry& entry);
  void drop_oldest();

  std::size_t budget_, bytes_ = 0, kept_bytes_ = 0;
  std::uint32_t now_ = 0;
  std::uint32_t mask_words_ = 0;
  std::vector<Entry> entries_;
  std::vector<Entry> kept_;
  HashIndex kept_index_;
  std::vector<Whole> wholes_;  ///< those without users have no words and are reusable
  Answer found_;
};

}  // namespace aici
