#include "aici/detail/captures.hpp"

#include <cstddef>
#include <map>
#include <string_view>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

namespace aici::detail {

namespace {

/// Maximum number of captures, since a request has a limited number of variables.
constexpr std::size_t kMax = 256;

}  // namespace

void write_captures(std::span<const Capture> captures) {
  if (captures.size() > kMax) {
    log("warning: only the first " + std::to_string(kMax) + " captures of " + std::to_string(captures.size()) +
        " are written to variables\n");
    captures = captures.first(kMax);
  }
  std::map<std::string_view, std::size_t> counts, done;
  for (const Capture& capture : captures) counts[capture.name]++;
  for (const Capture& capture : captures) {
    set_variable(capture.name, capture.text);
    if (counts[capture.name] > 1)
      set_variable(capture.name + "[" + std::to_string(done[capture.name]++) + "]", capture.text);
  }
}

void append_token_text(TokenId token, std::string& text) {
  const Vocabulary& vocab = vocabulary();
  if (!vocab.is_special(token))
    text += vocab.token(token);
  else if (!vocab.is_eos(token))
    text += token_bytes(token);
}

}  // namespace aici::detail
