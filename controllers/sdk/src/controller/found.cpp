// Exports `aici_found`. A linker takes this file only for controllers that report what they found.
#include "aici/detail/answer_cache.hpp"

#include <cstring>

#include "aici.h"
#include "aici/detail/containers.hpp"

namespace aici::detail {

namespace {
/// Not inlined, like `insert` of the vector, which is larger.
[[gnu::noinline]] void append(std::vector<char>& to, const void* from, std::size_t size) {
  const std::size_t before = to.size();
  to.resize(before + size);
  std::memcpy(to.data() + before, from, size);
}
}  // namespace

void FoundTexts::add(std::span<const char> text) {
  const std::size_t most = std::min(text.size(), last_.size());
  std::size_t same = 0;
  while (same < most && text[same] == last_[same]) same++;
  const std::uint16_t head[] = {static_cast<std::uint16_t>(same), static_cast<std::uint16_t>(text.size() - same)};
  if (bytes_.size() + sizeof head + head[1] > kMaxBytes) return;
  append(bytes_, head, sizeof head);
  append(bytes_, text.data() + same, head[1]);
  last_.resize(same);
  append(last_, text.data() + same, head[1]);
  count_++;
}

FoundTexts FoundTexts::of_host() {
  FoundTexts found;
  found.bytes_.resize(aici_read(AICI_FOUND, 0, nullptr, 0));
  if (!found.bytes_.empty())
    aici_read(AICI_FOUND, 0, found.bytes_.data(), static_cast<std::uint32_t>(found.bytes_.size()));
  return found;
}

bool FoundTexts::next() {
  std::uint16_t head[2];
  if (bytes_.size() - at_ < sizeof head) return false;
  std::memcpy(head, bytes_.data() + at_, sizeof head);
  at_ += sizeof head;
  if (head[0] > last_.size() || head[1] > bytes_.size() - at_) return false;
  last_.resize(head[0]);
  append(last_, bytes_.data() + at_, head[1]);
  at_ += head[1];
  return true;
}

std::uint64_t FoundTexts::hash() const {
  Hasher first, second;
  second.add(1);
  for (const char byte : bytes_)
    first.add(static_cast<std::uint8_t>(byte)), second.add(static_cast<std::uint8_t>(byte));
  return static_cast<std::uint64_t>(first.bits()) << 32 | second.bits();
}

Finder::Finder() { only = this; }

}  // namespace aici::detail

extern "C" AICI_EXPORT(aici_found) const aici_found_result* aici_found(void) {
  static constinit aici_found_result result = {.size = sizeof(aici_found_result)};
  [[clang::no_destroy]] static constinit aici::detail::FoundTexts found;
  found = aici::detail::Finder::only->found();
  result.data = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(found.bytes().data()));
  result.data_len = static_cast<std::uint32_t>(found.bytes().size());
  return &result;
}
