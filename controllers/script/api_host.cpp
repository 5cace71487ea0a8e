// Functions of script.h for tokens, variables and the engine.
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "aici/host.hpp"
#include "aici/token_set.hpp"
#include "aici/text.hpp"
#include "aici/vocabulary.hpp"
#include "failure.hpp"
#include "script.h"
#include "session.hpp"

namespace {

std::string_view view(script_text text) { return {text.data, text.size}; }

constexpr std::array<std::pair<std::string_view, aici::Capability>, 14> kCapabilities{{
    {"fork", aici::Capability::fork},
    {"backtrack", aici::Capability::backtrack},
    {"ff_tokens", aici::Capability::ff_tokens},
    {"suspend", aici::Capability::suspend},
    {"logprobs", aici::Capability::logprobs},
    {"top_logprobs", aici::Capability::top_logprobs},
    {"dense", aici::Capability::dense},
    {"tokenizer", aici::Capability::tokenizer},
    {"max_forks", aici::Capability::max_forks},
    {"hold_end", aici::Capability::hold_end},
    {"calls", aici::Capability::calls},
    {"look", aici::Capability::look},
    {"follow", aici::Capability::follow},
    {"drafts", aici::Capability::drafts},
}};

void fill(std::uint32_t* mask, void (aici::TokenSet::*with)()) {
  aici::TokenSet set;
  (set.*with)();
  std::memcpy(mask, set.data(), set.size_in_words() * sizeof(std::uint32_t));
}

}  // namespace

uint32_t script_vocabulary_size(void) { return aici::vocabulary().size(); }
uint32_t script_mask_words(void) { return aici::vocabulary().mask_words(); }

script_text script_token_bytes(uint32_t token) {
  const std::string_view bytes = aici::vocabulary().token(token);
  return {bytes.data(), bytes.size()};
}

bool script_token_is_special(uint32_t token) { return aici::vocabulary().is_special(token); }

script_tokens script_eos_tokens(void) {
  const auto ends = aici::vocabulary().eos();
  return {ends.data(), ends.size()};
}

script_error script_tokenize(script_text text, script_tokens* tokens) {
  [[clang::no_destroy]] static std::vector<aici::TokenId> last;
  last = aici::tokenize(view(text));
  if (last.empty() && text.size != 0) return "the model's vocabulary has no tokens for this text";
  *tokens = {last.data(), last.size()};
  return nullptr;
}

script_error script_detokenize(script_tokens tokens, script_text* text) {
  [[clang::no_destroy]] static std::string last;
  for (size_t i = 0; i < tokens.size; i++)
    if (tokens.data[i] >= aici::vocabulary().size())
      return script::failure("there is no token " + std::to_string(tokens.data[i]) + ": the vocabulary has " +
                             std::to_string(aici::vocabulary().size()));
  last = aici::vocabulary().text({tokens.data, tokens.size});
  *text = {last.data(), last.size()};
  return nullptr;
}

void script_mask_all(uint32_t* mask) { fill(mask, &aici::TokenSet::allow_all); }
void script_mask_text(uint32_t* mask) { fill(mask, &aici::TokenSet::allow_text); }

uint32_t script_capability(script_text name, bool* known) {
  for (const auto& [own, which] : kCapabilities) {
    if (own == view(name)) {
      *known = true;
      return aici::capability(which);
    }
  }
  *known = false;
  return 0;
}

bool script_get_variable(script_text name, script_text* value, uint32_t* version) {
  [[clang::no_destroy]] static std::string last;
  auto found = aici::get_variable(view(name));
  if (!found) return false;
  last = std::move(found->value);
  *value = {last.data(), last.size()};
  *version = found->version;
  return true;
}

script_error script_set_variable(script_text name, script_text value, bool append, uint32_t when_version,
                                 uint32_t* version) {
  if (!script::session().has_begun)
    return "variables cannot be written at the top level of a script, which runs before any request: write them in "
           "main, or in a callback";
  *version = aici_var_write(name.data, static_cast<std::uint32_t>(name.size), value.data,
                            static_cast<std::uint32_t>(value.size), append ? AICI_APPEND : AICI_SET, when_version);
  return nullptr;
}

script_error script_call(script_text name, script_text arguments, script_text* result) {
  if (!script::session().has_begun)
    return "the top level of a script runs before any request, so nobody answers calls yet: make them in main, or in a "
           "callback";
  if (aici::capability(aici::Capability::calls) == 0)
    return "nobody answers calls of this request: give it functions (aici run --calls FILE.py, Request(calls=...), or "
           "\"calls\" of POST /v1/run), or start the server with tools (aici serve --mcp)";
  [[clang::no_destroy]] static std::string last;
  last = aici::call_result(aici::call(view(name), view(arguments)));
  *result = {last.data(), last.size()};
  return nullptr;
}

static_assert(SCRIPT_HURRY == AICI_ARG_HURRY);
const volatile uint32_t* script_flags(void) { return &aici::detail::present_step().arg()->flags; }

void script_log(script_text text) { aici::log(view(text)); }

void script_stop(void) {
  if (!script::session().has_begun || !interpreter_has(SCRIPT_MAIN)) aici::stop();
  script::session().is_stopped = true;
}

void script_fail(script_text message) { aici::fail(view(message)); }
