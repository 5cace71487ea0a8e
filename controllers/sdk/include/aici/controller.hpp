// controller.hpp - the controller interface.
//
//   class Shout : public aici::Controller {
//    public:
//     explicit Shout(std::string_view arg);                                   // the controller argument
//     void init_prompt(std::span<const aici::TokenId> prompt);                // optional, about 1000 ms
//     aici::PreResult pre_process();                                          // optional, about 1 ms
//     aici::MidResult mid_process(std::span<const aici::SeqId> fork_group);   // about 20 ms
//     aici::PostResult post_process(std::span<const aici::TokenId> tokens);   // optional, about 1 ms
//   };
//   AICI_REGISTER(Shout, init_prompt, pre_process, post_process)
//
// Each sequence has one object; a fork copies it. The constructor sees no prompt, since the object may serve many
// requests with the same argument. Call `aici::fail` to refuse an argument.
//
// In each step the host calls post_process with the appended tokens, then pre_process, and then, while the model
// computes, mid_process. The engine waits for the first two, so omit them if you can. A controller without them adds no
// time between tokens; it reads the tokens with `aici::step().tokens()`.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici.h"
#include "aici/host.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"

namespace aici {

/// A variable for which a sequence waits: until its version is above `version` (0: until it exists).
struct Wait {
  std::string_view name;
  std::uint32_t version = 0;
};

class PreResult {
 public:
  static PreResult stop() { return {AICI_STOP, 0}; }
  static PreResult go_on() { return {AICI_CONTINUE, 1}; }
  /// Skips this step: the sequence gets no token.
  static PreResult suspend() { return {AICI_SUSPEND, 0}; }
  /// Suspends the sequence until one of these holds, or for so many milliseconds (0: without a limit); pre_process is
  /// not called before. The names must stay valid until it is called again.
  static PreResult suspend_until(std::span<const Wait> waits, std::uint32_t milliseconds = 0) {
    static_assert(sizeof(Wait) == sizeof(aici_wait));
    PreResult result{AICI_SUSPEND, 0};
    result.raw_.size = sizeof(aici_pre_result);
    result.raw_.waits = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(waits.data()));
    result.raw_.num_waits = static_cast<std::uint32_t>(waits.size());
    result.raw_.wait_ms = milliseconds;
    return result;
  }
  /// Continues as `count` sequences: 0 is stop, 1 is go_on. All see the same fork group in mid_process, which is called
  /// for each of them in this step. A parent that waits for its children returns `MidResult::splice(0, {})` there, and
  /// can `suspend` from the next step on.
  static PreResult fork(std::uint32_t count) { return {AICI_FORK, count}; }

  aici_pre_result raw() const { return raw_; }

 private:
  /// The host reads the fields behind only if the size includes them.
  PreResult(std::uint32_t verb, std::uint32_t forks) {
    raw_.size = offsetof(aici_pre_result, waits);
    raw_.verb = verb;
    raw_.num_forks = forks;
  }
  aici_pre_result raw_;
};

class PostResult {
 public:
  static PostResult stop() { return PostResult(AICI_STOP); }
  static PostResult go_on() { return PostResult(AICI_CONTINUE); }

  aici_post_result raw() const { return raw_; }

 private:
  explicit PostResult(std::uint32_t verb) : raw_{.size = sizeof(aici_post_result), .verb = verb} {}
  aici_post_result raw_;
};

/// Added to the logit of one token; -infinity forbids it.
using Bias = aici_bias;

/// Options that leave out unlikely tokens; docs/abi.md defines them. 0: not set.
struct Truncation {
  float top_p = 0;
  std::uint32_t top_k = 0;
  float min_p = 0;
  float typical_p = 0;
  float top_n_sigma = 0;

  bool operator==(const Truncation&) const = default;
};

inline constexpr float kForbidden = -std::numeric_limits<float>::infinity();

namespace detail {
/// Destroys the object that a MidResult owns.
struct Drop {
  void (*drop)(void*) = nullptr;
  void operator()(void* held) const { drop(held); }
};
}  // namespace detail

/// The next change of the sequence: a token sampled under a row, a splice, or the end.
///
/// The host reads sets, biases and tokens after `mid_process` has returned and before it calls any callback of this
/// sequence again. The result owns objects that are moved into it, without a copy. Objects that are passed by reference
/// (`sample` of a set that is not moved, `bits`, `dense` of a span) must stay valid and unchanged for that time: keep
/// them in the controller.
class MidResult {
 public:
  static MidResult stop() { return MidResult(AICI_STOP); }

  /// Samples one of these tokens.
  static MidResult sample(const TokenSet& allowed) { return bits(allowed.data(), allowed.size_in_words()); }
  static MidResult sample(TokenSet&& allowed);
  /// Samples a token of a mask of the vocabulary's `mask_words()`.
  static MidResult bits(const std::uint32_t* mask, std::uint32_t words);
  /// Samples any token.
  static MidResult sample_any() { return row(AICI_ROW_ALL, 0, 0); }
  /// Samples under the row of this sequence's last sample; cheaper for the host than passing the same set again.
  static MidResult sample_same() { return row(AICI_ROW_SAME, 0, 0); }
  /// Samples a token of a mask with a number, not 0. Masks of a sequence with the same number must be equal: such a mask
  /// is not passed to the host twice in a row.
  static MidResult bits(const std::uint32_t* mask, std::uint32_t words, std::uint32_t number);
  /// Returns a new number for `bits`.
  static std::uint32_t new_number();
  /// Forces this token, as the only one allowed.
  static MidResult force(TokenId token) { return row(AICI_ROW_TOKEN, token, 0); }
  /// Adds these biases to the logits of these tokens, and `others` (0 or kForbidden) to all others.
  static MidResult biases(std::vector<Bias> biases, float others = 0);
  /// Adds `biases[t]` to the logit of token t, for every token of the vocabulary.
  static MidResult dense(std::span<const float> biases);
  static MidResult dense(std::vector<float>&& biases);

  /// Removes `backtrack` tokens, then appends `tokens`; samples nothing. `splice(0, {})` changes nothing, so that the
  /// sequence waits for a step: see PreResult::fork.
  static MidResult splice(std::uint32_t backtrack, std::vector<TokenId> tokens);

  /// Shows the distribution of the next token before this sequence decides: mid_process is called again once the model
  /// has computed it, without new tokens. Then `step().looked()` is true, and `step().logits()` are the logits, or, with
  /// a `top`, `step().top()` the most likely tokens at temperature 1. The token costs a pass of the model as ever, but
  /// the engine waits for the second call. `own`: without the logits of sequences that follow this one. Requires
  /// `Capability::look`.
  static MidResult look(std::uint32_t top = 0, bool own = false);
  /// From now on this sequence gets the tokens of another one of its request, the leader, and no function is called any
  /// more. The leader's tokens are sampled from the sum of the logits of both, and of others that follow it, each times
  /// its weight; the leader's own weight makes the sum of all weights 1. A leader that must not go on without it waits
  /// for the variable `follows_name` of this sequence. `model`: the name of a second model of the engine, which computes
  /// the logits of this sequence. Requires `Capability::follow`.
  static MidResult follow(SeqId leader, float weight, std::string model = {});

  // The following functions change this result and return it, so that calls can be chained:
  // `return MidResult::sample_any().skipping_pre();`, or `result.skipping_pre();` for a result with a name.

  /// Samples this token at another temperature; AICI_GREEDY takes the most likely token.
  MidResult&& with_temperature(float temperature) {
    raw_.temperature = temperature;
    return std::move(*this);
  }
  /// Leaves out tokens that these options do not keep, for this token. 0: the request's own option.
  MidResult&& with_truncation(const Truncation& truncation) {
    raw_.size = truncation == Truncation{} ? offsetof(aici_mid_result, top_p) : sizeof(aici_mid_result);
    raw_.top_p = truncation.top_p;
    raw_.top_k = truncation.top_k;
    raw_.min_p = truncation.min_p;
    raw_.typical_p = truncation.typical_p;
    raw_.top_n_sigma = truncation.top_n_sigma;
    return std::move(*this);
  }
  /// Requests the `count` most likely tokens, which the next step's `top()` returns.
  MidResult&& with_top_logprobs(std::uint32_t count) {
    raw_.top_logprobs = count;
    return std::move(*this);
  }
  /// Names tokens that this controller expects after the sampled one. If the engine samples them indeed, it needs fewer
  /// passes of the model; they do not change what is sampled. At most `Capability::drafts`. They are kept until the next
  /// call of this function.
  MidResult&& with_drafts(std::vector<TokenId> drafts);
  /// Lets an end-of-sequence token from this result not end the sequence: the next step reports it like any other
  /// token. Requires `Capability::hold_end`; otherwise it has no effect.
  MidResult&& holding_end() { return with_flag(AICI_MID_HOLD_END); }
  /// Skips pre_process in the next step. If post_process is skipped, too, or does not exist, the engine does not wait
  /// for this sequence.
  MidResult&& skipping_pre() { return with_flag(AICI_MID_SKIP_PRE); }
  /// Skips post_process in the next step; mid_process reads the tokens with `step().tokens()`.
  MidResult&& skipping_post() { return with_flag(AICI_MID_SKIP_POST); }

  bool is_stop() const { return raw_.verb == AICI_STOP; }
  const aici_mid_result& raw() const { return raw_; }
  /// Refers to the sequence's last row if this one has the same number. `last` is the number of the last result's row, or
  /// 0, and becomes that of this one.
  void refer_to(std::uint32_t& last);

 private:
  explicit MidResult(std::uint32_t verb) { raw_.verb = verb; }
  MidResult&& with_flag(std::uint32_t flag) {
    raw_.flags |= flag;
    return std::move(*this);
  }
  static MidResult row(std::uint32_t kind, std::uint32_t row, std::uint32_t length);
  template <class T>
  void hold(T&& thing) {
    held_ = {new T(std::move(thing)), {[](void* held) { delete static_cast<T*>(held); }}};
  }

  aici_mid_result raw_ = {.size = offsetof(aici_mid_result, top_p)};
  std::uint32_t number_ = 0;
  /// The set or vector that was moved in; `raw_` points to its contents.
  std::unique_ptr<void, detail::Drop> held_;
};

/// Base of all controllers. The callbacks are found by name and are not virtual.
class Controller {};

namespace detail {

template <class C>
concept HasInitPrompt = requires(C& c, std::span<const TokenId> prompt) { c.init_prompt(prompt); };
template <class C>
concept HasPreProcess = requires(C& c) {
  { c.pre_process() } -> std::same_as<PreResult>;
};
template <class C>
concept HasPostProcess = requires(C& c, std::span<const TokenId> tokens) {
  { c.post_process(tokens) } -> std::same_as<PostResult>;
};
template <class C>
concept HasMidProcess = requires(C& c, std::span<const SeqId> group) {
  { c.mid_process(group) } -> std::same_as<MidResult>;
};

// One bit for each optional callback, by the name in AICI_REGISTER.
inline constexpr unsigned kOptional_init_prompt = 1, kOptional_pre_process = 2, kOptional_post_process = 4;
template <class C>
inline constexpr unsigned kDeclared = (HasInitPrompt<C> ? kOptional_init_prompt : 0) |
                                      (HasPreProcess<C> ? kOptional_pre_process : 0) |
                                      (HasPostProcess<C> ? kOptional_post_process : 0);

Step& present_step();
std::string read_argument(std::uint32_t size);
std::vector<TokenId> read_prompt(std::uint32_t count);
const aici_pre_result* keep(const PreResult& result);
const aici_post_result* keep(const PostResult& result);
const aici_mid_result* keep(MidResult&& result);

/// The only controller of this instance. It is never destroyed, since the host drops the instance as a whole.
template <class C>
class Only {
 public:
  static void make(std::uint32_t argument_size) {
    const std::string argument = read_argument(argument_size);
    if constexpr (std::constructible_from<C, std::string_view>) {
      new (place_) C(std::string_view(argument));
    } else {
      static_assert(std::default_initializable<C>, "a controller is made from a std::string_view, or from nothing");
      if (!argument.empty()) fail("this controller takes no argument");
      new (place_) C();
    }
  }
  static C& get() { return *std::launder(reinterpret_cast<C*>(place_)); }

 private:
  alignas(C) static inline unsigned char place_[sizeof(C)];
};

}  // namespace detail
}  // namespace aici

#define AICI_REGISTER_init_prompt(C)                                                       \
  extern "C" AICI_EXPORT(aici_init_prompt) int aici_init_prompt(std::uint32_t count) {     \
    aici::detail::Only<C>::get().init_prompt(aici::detail::read_prompt(count));            \
    return 0;                                                                              \
  }
#define AICI_REGISTER_pre_process(C)                                                       \
  extern "C" AICI_EXPORT(aici_pre_process) const aici_pre_result* aici_pre_process(void) {       \
    return aici::detail::keep(aici::detail::Only<C>::get().pre_process());                 \
  }
#define AICI_REGISTER_post_process(C)                                                      \
  extern "C" AICI_EXPORT(aici_post_process) const aici_post_result* aici_post_process(void) {    \
    return aici::detail::keep(aici::detail::Only<C>::get().post_process(aici::step().tokens())); \
  }

#define AICI_DETAIL_BITS_1(name, ...) aici::detail::kOptional_##name __VA_OPT__(| AICI_DETAIL_BITS_2(__VA_ARGS__))
#define AICI_DETAIL_BITS_2(name, ...) aici::detail::kOptional_##name __VA_OPT__(| AICI_DETAIL_BITS_3(__VA_ARGS__))
#define AICI_DETAIL_BITS_3(name) aici::detail::kOptional_##name
#define AICI_DETAIL_EACH_1(C, name, ...) AICI_REGISTER_##name(C) __VA_OPT__(AICI_DETAIL_EACH_2(C, __VA_ARGS__))
#define AICI_DETAIL_EACH_2(C, name, ...) AICI_REGISTER_##name(C) __VA_OPT__(AICI_DETAIL_EACH_3(C, __VA_ARGS__))
#define AICI_DETAIL_EACH_3(C, name) AICI_REGISTER_##name(C)

/// Put once in a controller's source: exports it. The class is followed by the names of those of the
/// optional callbacks that it has; the host does not call what is not named.
#define AICI_REGISTER(C, ...)                                                                               \
  static_assert(aici::detail::HasMidProcess<C>, "a controller needs MidResult mid_process(fork_group)");    \
  static_assert(aici::detail::kDeclared<C> == (0u __VA_OPT__(| AICI_DETAIL_BITS_1(__VA_ARGS__))),           \
                "AICI_REGISTER must name init_prompt, pre_process and post_process exactly where they exist"); \
  extern "C" {                                                                                              \
  AICI_CONTROLLER                                                                                           \
  AICI_EXPORT(aici_arg) aici_step_arg* aici_arg(void) { return aici::detail::present_step().arg(); }        \
  AICI_EXPORT(aici_init) int aici_init(std::uint32_t size) {                                                \
    aici::detail::Only<C>::make(size);                                                                      \
    return 0;                                                                                               \
  }                                                                                                         \
  AICI_EXPORT(aici_mid_process) const aici_mid_result* aici_mid_process(void) {                                   \
    return aici::detail::keep(aici::detail::Only<C>::get().mid_process(aici::step().fork_group()));         \
  }                                                                                                         \
  }                                                                                                         \
  __VA_OPT__(AICI_DETAIL_EACH_1(C, __VA_ARGS__))                                                            \
  static_assert(true)
