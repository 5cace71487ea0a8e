#include "aici/vocabulary.hpp"

#include "aici/host.hpp"

namespace aici {

namespace {
constexpr std::uint32_t kNone = 0xffffffff;
}

std::optional<TokenId> Vocabulary::special_token(SpecialToken which) const {
  std::uint32_t id = kNone;
  switch (which) {
    case SpecialToken::eos:
      if (header().num_eos != 0) id = eos()[0];
      break;
    case SpecialToken::bos:
      id = header().bos;
      break;
    case SpecialToken::pad:
      id = header().pad;
      break;
    case SpecialToken::unk:
      id = header().unk;
      break;
  }
  if (id == kNone) return std::nullopt;
  return id;
}

std::string Vocabulary::text(std::span<const TokenId> tokens) const {
  std::string text;
  for (TokenId each : tokens)
    if (!is_special(each)) text.append(token(each));
  return text;
}

const Vocabulary& vocabulary() {
  static constinit Vocabulary mapped(nullptr);
  static constinit bool ready = false;
  if (!ready) {
    const auto* header = static_cast<const aici_vocabulary_header*>(aici_vocabulary());
    if (header->magic != AICI_VOCABULARY_MAGIC || header->version != AICI_VOCABULARY_VERSION)
      fail(
          "the host's vocabulary image has another format than this controller's SDK: rebuild the "
          "controller");
    mapped = Vocabulary(header);
    ready = true;
  }
  return mapped;
}

}  // namespace aici
