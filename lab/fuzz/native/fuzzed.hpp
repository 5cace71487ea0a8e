// fuzzed.hpp - what host.cpp, which is compiled once, calls of the controller that a program fuzzes.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "aici/sdk.hpp"

struct Fuzzed {
  virtual ~Fuzzed() = default;
  virtual aici::MidResult mid_process(std::span<const aici::SeqId> group) = 0;
};

/// Creates the controller from its argument.
std::unique_ptr<Fuzzed> create(std::string_view argument);
