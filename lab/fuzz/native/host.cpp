// host.cpp - a controller as a fuzz target of libFuzzer, with a host around it.
//
// An input is the controller's argument, then a zero byte and bytes that choose what the model samples. Without a zero
// byte the choices come from the argument itself. The host creates the controller from the argument, requests masks and
// delivers tokens that the masks allow. The controller may end in any way, also with aici_fail, except that it must
// accept the tokens that it has allowed.
//
// The program is built for 32 bits, as guests are: sizes overflow where theirs do, and addresses fit into results.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzzed.hpp"

extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void* block);

__asm__(
    ".section .rodata\n.balign 4096\n.global aici_fuzz_vocabulary\naici_fuzz_vocabulary:\n.incbin \"" AICI_FUZZ_VOCABULARY
    "\"\n.byte 0\n.previous\n");
extern "C" const char aici_fuzz_vocabulary[];

namespace {

/// Thrown by aici_fail and aici_stop, which end a sequence.
struct Ended {
  std::string message;
};

/// The limit on a guest's memory (aicirt/settings.py), here for its allocations.
constexpr std::ptrdiff_t kMemory = 64 << 20;
constexpr int kSteps = 24;
/// Processor time after which an input gets no further step. The runtime stops guests, too.
constexpr std::clock_t kTime = 2 * CLOCKS_PER_SEC;

/// Bytes allocated since the controller began to run. Memory from before may be freed, too.
std::ptrdiff_t allocated = 0;
/// Whether the controller runs, so that its allocations count.
bool counting = false;
std::string argument;
std::vector<aici::TokenId> appended;
std::vector<aici::TokenId> tokenized;
bool exact_tokenizer = false, takes_tokens = false;

/// The choices in an input, followed by those of a random generator.
class Choices {
 public:
  Choices(std::string_view bytes, std::string_view seed) : bytes_(bytes) {
    for (const char c : seed) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }

  std::uint32_t next() {
    if (!bytes_.empty()) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      return byte * 0x01010101u;
    }
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 16);
  }

 private:
  std::string_view bytes_;
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

/// Returns a token that a mask allows, if any.
std::optional<aici::TokenId> pick(const aici_mid_result& result, std::uint32_t choice) {
  if (result.row_kind == AICI_ROW_TOKEN) return result.row;
  if (result.row_kind != AICI_ROW_BITMASK) std::abort();
  const auto* mask = reinterpret_cast<const std::uint32_t*>(static_cast<std::uintptr_t>(result.row));
  if (result.row_len != aici::vocabulary().mask_words()) std::abort();
  std::vector<aici::TokenId> allowed;
  for (std::uint32_t token = 0; token < result.row_len * 32; token++)
    if (mask[token / 32] >> (token % 32) & 1) {
      if (token >= aici::vocabulary().size()) std::abort();
      allowed.push_back(token);
    }
  if (allowed.empty()) return std::nullopt;
  return allowed[choice % allowed.size()];
}

void show(std::vector<aici::TokenId> tokens) {
  appended = std::move(tokens);
  aici_step_arg& step = *aici::detail::present_step().arg();
  step.num_tokens = static_cast<std::uint32_t>(appended.size());
  for (std::size_t i = 0; i < appended.size() && i < AICI_INLINE_TOKENS; i++) step.tokens[i] = appended[i];
  step.step++;
}

void run(std::string_view choice_bytes) {
  Choices choices(choice_bytes, argument);
  const std::uint32_t setting = choices.next();
  exact_tokenizer = setting & 1;
  takes_tokens = setting & 2;
  show({});
  const std::unique_ptr<Fuzzed> controller = create(argument);
  for (std::uint32_t more = setting >> 2 & 7; more > 0 && aici::detail::WarmableList::warm(); more--) {
  }
  const aici::SeqId group[] = {0};
  bool may_fail = true;
  const std::clock_t end = std::clock() + kTime;
  for (int i = 0; i < kSteps && std::clock() < end; i++) {
    aici::MidResult result = aici::MidResult::stop();
    try {
      result = controller->mid_process(group);
    } catch (const Ended& end) {
      if (!may_fail && end.message.find("the constraint does not allow it here") != std::string::npos) {
        std::fprintf(stderr, "a token that was allowed is refused: %s\n", end.message.c_str());
        std::abort();
      }
      throw;
    }
    const aici_mid_result& raw = result.raw();
    if (raw.verb == AICI_STOP) return;
    may_fail = false;
    if (raw.verb == AICI_SPLICE) {
      const auto* tokens = reinterpret_cast<const std::uint32_t*>(static_cast<std::uintptr_t>(raw.ff_tokens));
      if (raw.backtrack != 0 || raw.num_ff_tokens == 0) std::abort();
      for (std::uint32_t t = 0; t < raw.num_ff_tokens; t++)
        if (tokens[t] >= aici::vocabulary().size()) std::abort();
      show({tokens, tokens + raw.num_ff_tokens});
    } else if (raw.verb == AICI_SAMPLE) {
      const std::optional<aici::TokenId> token = pick(raw, choices.next());
      if (!token) std::abort();  // the mask allows nothing, but the controller does not stop
      show({*token});
    } else {
      std::abort();
    }
  }
}

}  // namespace

namespace aici::detail {
void link_runtime() {}
}  // namespace aici::detail

void* operator new(std::size_t size) {
  const auto more = static_cast<std::ptrdiff_t>(size);
  if (counting && (more < 0 || more > kMemory - allocated))
    aici::fail("out of memory: the controller has reached its memory limit");
  void* const block = std::malloc(size);
  if (block == nullptr) std::abort();
  allocated += static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(block));
  return block;
}
void operator delete(void* block) noexcept {
  if (block == nullptr) return;
  allocated -= static_cast<std::ptrdiff_t>(__sanitizer_get_allocated_size(block));
  std::free(block);
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* block, std::size_t) noexcept { operator delete(block); }
void operator delete[](void* block) noexcept { operator delete(block); }
void operator delete[](void* block, std::size_t) noexcept { operator delete(block); }

extern "C" {

void aici_fail(const char* message, std::uint32_t size) {
  counting = false;  // memory for the error itself
  throw Ended{std::string(message, size)};
}
void aici_stop(void) { throw Ended{}; }
const void* aici_vocabulary(void) { return aici_fuzz_vocabulary; }

std::uint32_t aici_read(std::uint32_t source, std::uint32_t offset, void* to, std::uint32_t size) {
  std::string_view bytes;
  if (source == AICI_TOKENS)
    bytes = {reinterpret_cast<const char*>(appended.data()), appended.size() * sizeof(aici::TokenId)};
  else if (source == AICI_TOKENIZED)
    bytes = {reinterpret_cast<const char*>(tokenized.data()), tokenized.size() * sizeof(aici::TokenId)};
  if (offset < bytes.size()) std::memcpy(to, bytes.data() + offset, std::min<std::size_t>(size, bytes.size() - offset));
  return static_cast<std::uint32_t>(bytes.size());
}

/// Tokenizes greedily, longest token first, as a host without the model's tokenizer does.
std::uint32_t aici_tokenize(const void* text, std::uint32_t size) {
  tokenized.clear();
  std::string_view rest(static_cast<const char*>(text), size);
  const aici::Vocabulary& vocabulary = aici::vocabulary();
  while (!rest.empty()) {
    std::uint32_t best = 0;
    std::size_t length = 0;
    for (std::uint32_t token = 0; token < vocabulary.size(); token++) {
      if (vocabulary.is_special(token)) continue;
      const std::string_view bytes = vocabulary.token(token);
      if (bytes.size() > length && rest.starts_with(bytes)) best = token, length = bytes.size();
    }
    if (length == 0) return AICI_NO_TOKENS;
    tokenized.push_back(best);
    rest.remove_prefix(length);
  }
  return static_cast<std::uint32_t>(tokenized.size());
}

std::uint32_t aici_var_get(const char*, std::uint32_t, std::uint32_t*) { return 0; }
std::uint32_t aici_var_write(const char*, std::uint32_t, const void*, std::uint32_t, std::uint32_t, std::uint32_t) {
  return 0;
}
std::uint32_t aici_call(const char*, std::uint32_t, const char*, std::uint32_t) { return 1; }
std::uint32_t aici_capability(std::uint32_t which) {
  if (which == AICI_CAP_TOKENIZER) return exact_tokenizer;
  if (which == AICI_CAP_FF_TOKENS) return takes_tokens;
  return 0;
}

/// libFuzzer's own allocations come from here as well, but are freed in other ways.
const char* __asan_default_options() { return "alloc_dealloc_mismatch=0:detect_leaks=0:quarantine_size_mb=16"; }

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.rfind('\0');
  argument = input.substr(0, end);
  const std::string_view choices = end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  allocated = 0;
  counting = true;
  try {
    run(choices);
  } catch (const Ended&) {
  }
  counting = false;
  return 0;
}

}  // extern "C"
