// row.hpp - the allowed tokens, the biases and the sampling options for the next token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aici/controller.hpp"
#include "script.h"

namespace script {

inline bool has(const std::uint32_t* mask, aici::TokenId token) { return (mask[token / 32] >> token % 32 & 1) != 0; }

/// How a token is sampled: a copy of script_options.
struct Options {
  Options() = default;
  /// `from` has no flaw.
  explicit Options(const script_options& from);

  bool has_biases() const { return !favoured.empty() || !biases.empty(); }
  /// Returns a row with these options, and with these biases if it has none of its own. Its own temperature holds.
  /// The expected tokens are its drafts.
  aici::MidResult apply(aici::MidResult row) const;

  /// 0: the request's temperature.
  float temperature = 0;
  aici::Truncation truncation;
  /// Number of most likely tokens to report.
  std::uint32_t top_logprobs = 0;
  /// A mask of the tokens whose logits get `bias`; empty: none.
  std::vector<std::uint32_t> favoured;
  float bias = 0;
  std::vector<aici::Bias> biases;
  /// The tokens that are expected, beginning with the one that is sampled; none if the engine takes no drafts.
  std::vector<aici::TokenId> prediction;
  std::size_t max_drafts = 0;

 private:
  /// Returns a row of the biases; `mask`: the allowed tokens, or null for all.
  aici::MidResult biased(const std::uint32_t* mask) const;
};

struct Row {
  /// Empty: any token is allowed.
  std::vector<std::uint32_t> mask;
  Options options;

  /// Valid as long as the mask is.
  aici::MidResult result() const {
    return options.apply(mask.empty()
                             ? aici::MidResult::sample_any()
                             : aici::MidResult::bits(mask.data(), static_cast<std::uint32_t>(mask.size())));
  }
};

}  // namespace script
