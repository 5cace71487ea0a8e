#include "aici/controller.hpp"

#include <algorithm>

#include "aici/tokenwise.hpp"

namespace aici {

namespace {

constinit Step the_step;

/// Reads a whole list, whose first entries may be in the argument already.
template <class T>
std::span<const T> whole_list(const T* inline_items, std::uint32_t inline_count, std::uint32_t count,
                              std::uint32_t source, std::vector<T>* buffer) {
  if (count <= inline_count) return {inline_items, count};
  buffer->resize(count);
  aici_read(source, 0, buffer->data(), static_cast<std::uint32_t>(count * sizeof(T)));
  return *buffer;
}

// The host drops instances as a whole, so nothing is ever destroyed.
[[clang::no_destroy]] constinit std::vector<TokenId> long_tokens;
[[clang::no_destroy]] constinit std::vector<SeqId> long_group;
[[clang::no_destroy]] constinit std::vector<Top> tops;
[[clang::no_destroy]] constinit std::vector<float> all_logits;
[[clang::no_destroy]] MidResult last_result = MidResult::stop();
constinit std::uint32_t last_row = 0;

std::uint32_t address(const void* p) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(p));
}

}  // namespace

const Step& step() { return the_step; }

std::span<const TokenId> Step::tokens() const {
  return whole_list(arg_.tokens, AICI_INLINE_TOKENS, arg_.num_tokens, AICI_TOKENS, &long_tokens);
}

std::span<const SeqId> Step::fork_group() const {
  return whole_list(arg_.group, AICI_INLINE_GROUP, arg_.num_group, AICI_GROUP, &long_group);
}

std::span<const Top> Step::top() const { return whole_list<Top>(nullptr, 0, arg_.num_top, AICI_TOP, &tops); }

std::span<const float> Step::logits() const {
  return whole_list<float>(nullptr, 0, looked() && arg_.num_top == 0 ? vocabulary().size() : 0, AICI_LOGITS, &all_logits);
}

MidResult MidResult::row(std::uint32_t kind, std::uint32_t row, std::uint32_t length) {
  MidResult result(AICI_SAMPLE);
  result.raw_.row_kind = kind;
  result.raw_.row = row;
  result.raw_.row_len = length;
  return result;
}

MidResult MidResult::bits(const std::uint32_t* mask, std::uint32_t words) {
  return row(AICI_ROW_BITMASK, address(mask), words);
}

MidResult MidResult::bits(const std::uint32_t* mask, std::uint32_t words, std::uint32_t number) {
  MidResult result = bits(mask, words);
  result.number_ = number;
  return result;
}

std::uint32_t MidResult::new_number() {
  static constinit std::uint32_t numbers = 0;
  return ++numbers;
}

void MidResult::refer_to(std::uint32_t& last) {
  if (number_ != 0 && number_ == last) raw_.row_kind = AICI_ROW_SAME, raw_.row = raw_.row_len = 0;
  last = number_;
}

MidResult MidResult::sample(TokenSet&& allowed) {
  MidResult result = sample(allowed);
  result.hold(std::move(allowed));
  return result;
}

MidResult MidResult::biases(std::vector<Bias> biases, float others) {
  MidResult result = row(AICI_ROW_SPARSE, address(biases.data()), static_cast<std::uint32_t>(biases.size()));
  result.raw_.row_default = others;
  result.hold(std::move(biases));
  return result;
}

MidResult MidResult::dense(std::span<const float> biases) {
  return row(AICI_ROW_DENSE, address(biases.data()), static_cast<std::uint32_t>(biases.size()));
}

MidResult MidResult::dense(std::vector<float>&& biases) {
  MidResult result = dense(std::span<const float>(biases));
  result.hold(std::move(biases));
  return result;
}

MidResult MidResult::splice(std::uint32_t backtrack, std::vector<TokenId> tokens) {
  MidResult result(AICI_SPLICE);
  result.raw_.backtrack = backtrack;
  result.raw_.ff_tokens = address(tokens.data());
  result.raw_.num_ff_tokens = static_cast<std::uint32_t>(tokens.size());
  result.hold(std::move(tokens));
  return result;
}

MidResult&& MidResult::with_drafts(std::vector<TokenId> drafts) {
  [[clang::no_destroy]] static std::vector<TokenId> kept;
  kept = std::move(drafts);
  raw_.ff_tokens = address(kept.data());
  raw_.num_ff_tokens = static_cast<std::uint32_t>(kept.size());
  return with_flag(AICI_MID_DRAFTS);
}

MidResult MidResult::look(std::uint32_t top, bool own) {
  MidResult result(AICI_LOOK);
  result.raw_.top_logprobs = top;
  result.raw_.flags = own ? AICI_MID_OWN : 0;
  return result;
}

MidResult MidResult::follow(SeqId leader, float weight, std::string model) {
  MidResult result(AICI_FOLLOW);
  result.raw_.row = leader;
  result.raw_.temperature = weight;
  std::vector<char> name(model.begin(), model.end());
  result.raw_.ff_tokens = address(name.data());
  result.raw_.num_ff_tokens = static_cast<std::uint32_t>(name.size());
  result.hold(std::move(name));
  return result;
}

namespace detail {

void link_runtime();

Step& present_step() {
  link_runtime();  // runtime.cpp
  return the_step;
}

std::string read_argument(std::uint32_t size) {
  std::string argument(size, '\0');
  aici_read(AICI_ARG, 0, argument.data(), size);
  return argument;
}

std::vector<TokenId> read_prompt(std::uint32_t count) {
  std::vector<TokenId> prompt(count);
  aici_read(AICI_PROMPT, 0, prompt.data(), static_cast<std::uint32_t>(count * sizeof(TokenId)));
  return prompt;
}

const aici_pre_result* keep(const PreResult& result) {
  static constinit aici_pre_result kept = {};
  kept = result.raw();
  return &kept;
}

const aici_post_result* keep(const PostResult& result) {
  static constinit aici_post_result kept = {};
  kept = result.raw();
  return &kept;
}

const aici_mid_result* keep(MidResult&& result) {
  last_result = std::move(result);
  last_result.refer_to(last_row);
  return &last_result.raw();
}

MidResult as_result(std::vector<float>&& biases) {
  if (biases.size() != vocabulary().size())
    fail("a controller must give one bias for every token of the vocabulary");
  if (!std::all_of(biases.begin(), biases.end(), [](float bias) { return bias == 0 || bias == kForbidden; }))
    return MidResult::dense(std::move(biases));
  TokenSet allowed;
  for (TokenId token = 0; token < biases.size(); token++)
    if (biases[token] == 0) allowed.allow(token);
  return MidResult::sample(std::move(allowed));
}

}  // namespace detail
}  // namespace aici
