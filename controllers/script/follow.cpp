#include "follow.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aici/host.hpp"

namespace script {
namespace {

/// Each has its own tables of some tens of KiB.
constexpr std::size_t kMax = 64;

[[clang::no_destroy]] std::vector<std::unique_ptr<aici::AnyConstraint>> all;

}  // namespace

std::uint32_t follow(aici::AnyConstraint constraint) {
  auto made = std::make_unique<aici::AnyConstraint>(std::move(constraint));
  for (std::size_t i = 0; i < all.size(); i++) {
    if (all[i] == nullptr) {
      all[i] = std::move(made);
      return static_cast<std::uint32_t>(i + 1);
    }
  }
  if (all.size() == kMax)
    aici::fail("a script can follow at most " + std::to_string(kMax) +
               " constraints at a time: close() those that are no longer needed");
  all.push_back(std::move(made));
  return static_cast<std::uint32_t>(all.size());
}

aici::AnyConstraint& followed(std::uint32_t number) { return *all[number - 1]; }

void unfollow(std::uint32_t number) { all[number - 1].reset(); }

}  // namespace script
