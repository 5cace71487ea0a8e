#include "aici/constraint.hpp"

namespace aici::detail {

void fail_forbidden(TokenId token) {
  std::string message = "the token \"";
  message.append(vocabulary().token(token));
  fail(message + "\" was appended, but the constraint does not allow it here");
}

void fail_stuck() {
  fail(
      "the constraint allows no token here: its text cannot end, and no token of the vocabulary continues "
      "it");
}

namespace {
/// Limits of the kept answers and of the memory's growth in pages of 64 KiB, most of which are a recognizer's own
/// states. Tables double, so one more state can take dozens of pages, of which few are written to.
constexpr std::size_t kMostKept = 1024, kMostPages = 64;
}  // namespace

bool Warmth::has_room(const AnswerCache& cache, unsigned times) {
  const std::size_t pages = __builtin_wasm_memory_size(0);
  if (first_pages_ == 0) first_pages_ = pages;
  return cache.kept_bytes() < times * bytes_ && cache.num_kept() < times * kMostKept &&
         pages - first_pages_ < times * kMostPages;
}

bool tokenizer_is_exact() { return capability(Capability::tokenizer) != 0; }

MidResult forced(std::span<const TokenId> tokens) {
  if (tokens.size() == 1 || capability(Capability::ff_tokens) == 0) return MidResult::force(tokens[0]);
  return MidResult::splice(0, {tokens.begin(), tokens.end()});
}

}  // namespace aici::detail
