// follow.hpp - constraints that a script's callbacks follow, by number.
#pragma once

#include <cstdint>

#include "aici/any_constraint.hpp"

namespace script {

/// Returns the constraint's number, from 1 on. Fails if there are too many.
std::uint32_t follow(aici::AnyConstraint constraint);
aici::AnyConstraint& followed(std::uint32_t number);
void unfollow(std::uint32_t number);

}  // namespace script
