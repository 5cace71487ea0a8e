#include "aici/constraint.hpp"

namespace aici::detail {

void fail_forbidden(TokenId token) {
  std::string message = "the token \"";
  message.append(vocabulary().token(token));
  fail(message + "\" was appended, but the constraint does not allow it here");
}

void fail_stuck() {
  fail("the constraint allows no token here: it cannot end, and no token of the vocabulary continues it");
}

namespace {
/// Limits of the kept answers, and of the bytes of the recognizer's states.
constexpr std::size_t kMaxKept = 2048, kMaxStates = 1 << 20;
}  // namespace

bool Warmth::has_room(const AnswerCache& cache, std::size_t states, unsigned times) const {
  return cache.kept_bytes() < times * bytes_ && cache.num_kept() < times * kMaxKept && states < times * kMaxStates;
}

bool tokenizer_is_exact() { return capability(Capability::tokenizer) != 0; }

MidResult forced(std::span<const TokenId> tokens) {
  if (tokens.size() == 1 || capability(Capability::ff_tokens) == 0) return MidResult::force(tokens[0]);
  return MidResult::splice(0, {tokens.begin(), tokens.end()});
}

}  // namespace aici::detail
