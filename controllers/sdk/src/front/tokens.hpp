// tokens.hpp - tokens of the vocabulary in a grammar, by name or number.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/types.hpp"
#include "source.hpp"

namespace aici::front {

/// Maximum number of special tokens in a list, and in a grammar, since each is tried for each mask.
inline constexpr std::size_t kMaxTokens = 256;

/// Reads a token, such as <think> or <[12,20-24]>. Returns the special tokens that it stands for; for one token of text,
/// stores its text instead. Fails if the vocabulary has no such token.
std::vector<TokenId> take_tokens(Source& source, std::string* text);
/// Returns any of these special tokens. Fails if the grammar then has too many.
cfg::Expr one_of(cfg::Grammar& grammar, const Source& source, const std::vector<TokenId>& tokens, std::size_t at);

}  // namespace aici::front
