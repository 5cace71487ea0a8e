// Exports `aici_warm`. A linker takes this file for those controllers only that have something warmable.
#include "aici/warmable.hpp"

#include "aici.h"

namespace aici {

namespace {
constinit Warmable* newest = nullptr;
}

struct WarmableList {
  static bool warm() {
    for (Warmable* each = newest; each != nullptr; each = each->next_)
      if (each->warm()) return true;
    return false;
  }
};

Warmable::Warmable() : next_(newest) {
  if (newest != nullptr) newest->previous_ = this;
  newest = this;
}

Warmable::~Warmable() {
  (previous_ != nullptr ? previous_->next_ : newest) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

}  // namespace aici

extern "C" AICI_EXPORT(aici_warm) int aici_warm(void) { return aici::WarmableList::warm() ? 1 : 0; }
