// vocabulary.hpp - the tokenizer's vocabulary: an image (docs/vocabulary.md) that the host maps into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "aici.h"
#include "aici/signature.hpp"
#include "aici/types.hpp"

namespace aici {

/// A node of the trie of all tokens. The nodes are in depth-first order, with children sorted by byte.
struct TrieNode {
  static constexpr std::uint32_t kNoToken = 0xffffff;

  std::uint32_t token_byte;
  std::uint32_t size_depth;
  Signature signature;  ///< kinds of bytes on the edges into this node and below
  std::uint32_t first_height;

  std::uint32_t token() const { return token_byte & 0xffffff; }
  std::uint8_t byte() const { return static_cast<std::uint8_t>(token_byte >> 24); }
  std::uint32_t subtree_size() const { return size_depth & 0xffffff; }
  std::uint32_t depth() const { return size_depth >> 24; }
  /// Returns the number of tokens before this node.
  std::uint32_t first() const { return first_height & 0xffffff; }
  /// Returns the length in bytes of the longest path down from the edge into this node, including the edge.
  std::uint32_t height() const { return first_height >> 24; }
};
static_assert(sizeof(TrieNode) == 16);

/// The children of one node.
class Children {
 public:
  class Iterator {
   public:
    explicit Iterator(const TrieNode* node) : node_(node) {}
    const TrieNode& operator*() const { return *node_; }
    Iterator& operator++() {
      node_ += node_->subtree_size();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return node_ != other.node_; }

   private:
    const TrieNode* node_;
  };

  explicit Children(const TrieNode* node) : node_(node) {}
  Iterator begin() const { return Iterator(node_ + 1); }
  Iterator end() const { return Iterator(node_ + node_->subtree_size()); }

 private:
  const TrieNode* node_;
};

/// A view of the image. `vocabulary()` returns that of this controller.
class Vocabulary {
 public:
  explicit constexpr Vocabulary(const aici_vocabulary_header* header) : header_(header) {}

  /// Returns the number of token ids, including unused ids.
  std::uint32_t size() const { return header().vocab_size; }
  /// Returns the number of 32-bit words in a mask.
  std::uint32_t mask_words() const { return header().mask_words; }
  std::uint32_t max_token_len() const { return header().max_token_len; }

  /// Returns the bytes of a token; for a special token, its name. `token` < size().
  std::string_view token(TokenId token) const {
    const std::uint32_t* offsets = section<std::uint32_t>(header().token_offsets);
    return {section<char>(header().token_bytes) + offsets[token], offsets[token + 1] - offsets[token]};
  }
  /// Returns the concatenated text of tokens. Special tokens have none.
  std::string text(std::span<const TokenId> tokens) const;
  bool is_special(TokenId token) const { return flags(token) & 1; }
  bool is_eos(TokenId token) const { return flags(token) & 2; }

  /// Returns the end-of-sequence tokens; a model may have several.
  std::span<const TokenId> eos() const { return {section<TokenId>(header().eos), header().num_eos}; }
  /// Returns the id of a special token (the first one for `eos`), if it exists.
  std::optional<TokenId> special_token(SpecialToken which) const;

  const TrieNode* nodes() const { return section<TrieNode>(header().nodes); }
  std::uint32_t num_nodes() const { return header().num_nodes; }
  /// Returns the tokens in the order of their nodes.
  const TokenId* order() const { return section<TokenId>(header().order); }
  /// Returns pairs of tokens with the same bytes: a token without a node, and the token with the node.
  std::span<const std::uint32_t> duplicates() const {
    return {section<std::uint32_t>(header().duplicates), header().num_duplicates * 2};
  }
  /// Returns the tokens that are too long for the trie.
  std::span<const TokenId> long_tokens() const {
    return {section<TokenId>(header().long_tokens), header().num_long};
  }
  /// Return masks of `mask_words` words: all tokens with text; the tokens in which a signature bit occurs.
  const std::uint32_t* text_mask() const { return section<std::uint32_t>(header().text_mask); }
  const std::uint32_t* class_mask(unsigned bit) const {
    return section<std::uint32_t>(header().class_masks) + bit * header().mask_stride;
  }
  /// Returns sets of kinds. `slice_mask` has, in the same order, the tokens with text that have no other kinds.
  std::span<const Signature> slices() const {
    return {section<Signature>(header().slices), header().num_slices};
  }
  const std::uint32_t* slice_mask(std::size_t number) const {
    return section<std::uint32_t>(header().slice_masks) + number * header().mask_stride;
  }
  /// Returns what turns.hpp reads; empty if the vocabulary does not say.
  std::span<const std::uint32_t> turns() const {
    return {section<std::uint32_t>(header().turns), header().num_turns};
  }
  ByteClasses classes() const { return {section<std::uint8_t>(header().byte_class), header().num_classes}; }

 private:
  const aici_vocabulary_header& header() const { return *header_; }
  std::uint8_t flags(TokenId token) const { return section<std::uint8_t>(header().flags)[token]; }
  template <class T>
  const T* section(std::uint32_t offset) const {
    return static_cast<const T*>(aici_section(header_, offset));
  }

  const aici_vocabulary_header* header_;
};

/// Returns the vocabulary of this controller's model. The first call maps it.
const Vocabulary& vocabulary();

}  // namespace aici
