// heap.hpp - where `new` gets its memory. Pages are what counts: each that is written to is a page fault, is copied into
// the snapshot of a template, and belongs to one sequence alone from then on. So blocks lie close to each other, in the
// order in which they were asked for, and the memory grows by much at once: what is not written to costs nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace aici::detail {

/// For one thread. Blocks are multiples of 16 bytes, the word before the first byte that is given out included; it says
/// of which size they are. Free blocks of a size are a list. Large ones are the C library's, which can use their memory
/// for other sizes afterwards: an array that grows would leave as much behind as it takes.
class Heap {
 public:
  /// Null if there is no more memory.
  void* take(std::size_t size) {
    const std::size_t wanted = size + kHeader;
    if (wanted > kLarge || wanted < size) return apart(size);
    std::uint32_t kind;
    std::size_t bytes;
    if (wanted <= kSmall) {
      kind = static_cast<std::uint32_t>((wanted + kAlign - 1) / kAlign);
      bytes = kind * kAlign;
    } else {
      // four sizes between a power of two and the next
      const auto shift = static_cast<std::uint32_t>(std::bit_width(wanted - 1) - 3);
      const std::size_t steps = ((wanted - 1) >> shift) + 1;
      kind = static_cast<std::uint32_t>(kSmallKinds + (shift - kFirstShift) * 4 + steps - 5);
      bytes = steps << shift;
    }
    if (Free* const block = free_[kind]; block != nullptr) {
      free_[kind] = block->next;
      return block;
    }
    std::byte* const block = make(bytes);
    if (block == nullptr) return apart(size);
    *header(block) = kind;
    return block;
  }

  void give_back(void* block) {
    if (block == nullptr) return;
    const std::uint32_t kind = *header(block);
    if (kind == kApart) return std::free(static_cast<std::byte*>(block) - kAlign);
    free_[kind] = new (block) Free{free_[kind]};
  }

 private:
  struct Free {
    Free* next;
  };
  static constexpr std::size_t kAlign = 16, kHeader = sizeof(std::uint32_t);
  /// The largest block of which every multiple of 16 has a list of its own; lists of those, the empty one included.
  static constexpr std::size_t kSmall = 1024, kSmallKinds = kSmall / kAlign + 1;
  static constexpr std::uint32_t kFirstShift = 8;
  static constexpr std::size_t kKinds = kSmallKinds + (8 * sizeof(std::size_t) - kFirstShift) * 4;
  /// What is asked of the C library at once: a number of its own pages, which are of 64 KiB.
  static constexpr std::size_t kChunk = (2 << 20) - 1024;
  /// What is larger, the header included, is the C library's.
  static constexpr std::size_t kLarge = kChunk / 4;
  /// Says so in the header; no list has this number.
  static constexpr std::uint32_t kApart = 0;

  static std::uint32_t* header(void* block) { return static_cast<std::uint32_t*>(block) - 1; }

  /// A new block: its first byte behind the header.
  std::byte* make(std::size_t bytes) {
    if (bytes > room_) {
      auto* const chunk = static_cast<std::byte*>(std::malloc(kChunk));
      if (chunk == nullptr) return nullptr;
      next_ = chunk + kAlign;
      room_ = kChunk - kAlign;
    }
    std::byte* const block = next_;
    next_ += bytes, room_ -= bytes;
    return block;
  }
  /// One that is the C library's.
  static std::byte* apart(std::size_t size) {
    if (size + kAlign < size) return nullptr;
    auto* const made = static_cast<std::byte*>(std::malloc(size + kAlign));
    if (made == nullptr) return nullptr;
    *header(made + kAlign) = kApart;
    return made + kAlign;
  }

  std::byte* next_ = nullptr;
  std::size_t room_ = 0;
  Free* free_[kKinds] = {};
};

}  // namespace aici::detail
