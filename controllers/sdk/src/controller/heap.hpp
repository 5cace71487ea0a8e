// heap.hpp - the allocator behind `new`, which minimizes the number of written pages. Each written page causes a page
// fault, is copied into the snapshot of a template, and then belongs to one sequence. So blocks are adjacent, in the
// order of allocation, and the memory grows in large steps, since unwritten pages cost nothing.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace aici::detail {

/// For one thread. Blocks are multiples of 16 bytes, including a header word in front with the block's size. Free
/// blocks of each size form a list. Large blocks come from the C library, which can reuse their memory for other
/// sizes; otherwise a growing array would leave as much unused memory behind as it takes.
class Heap {
 public:
  /// Returns null if memory runs out.
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
  /// The largest size up to which every multiple of 16 has its own list; the number of these lists, including one for
  /// 0.
  static constexpr std::size_t kSmall = 1024, kSmallKinds = kSmall / kAlign + 1;
  static constexpr std::uint32_t kFirstShift = 8;
  static constexpr std::size_t kKinds = kSmallKinds + (8 * sizeof(std::size_t) - kFirstShift) * 4;
  /// The step by which memory grows: a number of WebAssembly pages of 64 KiB.
  static constexpr std::size_t kChunk = (2 << 20) - 1024;
  /// Larger blocks, including the header, come from the C library.
  static constexpr std::size_t kLarge = kChunk / 4;
  /// The header of a block from the C library; no list has this number.
  static constexpr std::uint32_t kApart = 0;

  static std::uint32_t* header(void* block) { return static_cast<std::uint32_t*>(block) - 1; }

  /// Allocates a new block; returns the address after the header.
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
  /// Allocates a block from the C library.
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
