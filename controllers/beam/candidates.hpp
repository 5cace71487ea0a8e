// candidates.hpp - the candidates that the branches exchange.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/types.hpp"

/// A candidate without a token: the text ends.
inline constexpr aici::TokenId kEnd = 0xffffffff;

struct Candidate {
  aici::SeqId branch;
  aici::TokenId token;
  float score;
};

/// Adds the candidates of one branch to those of a round.
void announce_candidates(std::uint32_t round, const std::vector<Candidate>& candidates);

/// Returns all candidates of a round so far, in the same order for every branch.
std::vector<Candidate> candidates(std::uint32_t round);

/// Returns the number of branches that they come from.
std::uint32_t branches_of(const std::vector<Candidate>& candidates);

/// Keeps the `count` best candidates, best first. Equal candidates keep their order.
void keep_best(std::vector<Candidate>* candidates, std::uint32_t count);
