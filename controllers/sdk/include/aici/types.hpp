// types.hpp - the types that all layers of the SDK share.
#pragma once

#include <cstdint>

namespace aici {

using TokenId = std::uint32_t;
using SeqId = std::uint32_t;

/// Tokens without text. A vocabulary may have several end-of-sequence tokens; `eos` means all of them.
enum class SpecialToken : std::uint8_t { eos, bos, pad, unk };

inline constexpr SpecialToken kSpecialTokens[] = {SpecialToken::eos, SpecialToken::bos, SpecialToken::pad,
                                                  SpecialToken::unk};

/// A set of signature bits (docs/vocabulary.md, "Signatures"): which kinds of bytes occur in some text.
using Signature = std::uint32_t;

/// Bits 0..29 are classes of ASCII bytes; these two stand for the bytes from 0x80 on.
inline constexpr Signature kWellFormedUtf8 = 1u << 30;  ///< multi-byte characters; the last one may be incomplete
inline constexpr Signature kOtherBytes = 1u << 31;      ///< everything else, in any order

}  // namespace aici
