// fuzzed.cpp - the controller of a program.
#include "fuzzed.hpp"

#undef AICI_REGISTER
#define AICI_REGISTER(C, ...) using Registered = C
#include AICI_FUZZ_CONTROLLER

namespace {

struct Adapter final : Fuzzed {
  explicit Adapter(std::string_view argument) : controller(argument) {}
  aici::MidResult mid_process(std::span<const aici::SeqId> group) override { return controller.mid_process(group); }

  Registered controller;
};

}  // namespace

std::unique_ptr<Fuzzed> create(std::string_view argument) { return std::make_unique<Adapter>(argument); }
