// Exports `aici_warm`. A linker takes this file only for controllers that have warmable objects.
#include "aici/warmable.hpp"

#include "aici.h"

namespace aici {

using detail::WarmableList;

bool WarmableList::warm() {
  for (Warmable* each = newest; each != nullptr; each = each->next_)
    if (each->warm()) return true;
  return false;
}

Warmable::Warmable() : next_(WarmableList::newest), number_(++WarmableList::count) { WarmableList::newest = this; }

Warmable::~Warmable() { leave(); }

void Warmable::leave() {
  Warmable** at = &WarmableList::newest;
  while (*at != nullptr && *at != this) at = &(*at)->next_;
  if (*at != nullptr) *at = next_;
}

}  // namespace aici

extern "C" AICI_EXPORT(aici_warm) int aici_warm(void) { return aici::detail::WarmableList::warm() ? 1 : 0; }
