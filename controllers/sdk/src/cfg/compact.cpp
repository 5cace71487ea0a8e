// Compacts an engine: keeps the readings of one state, and drops all others.
#include <algorithm>
#include <utility>
#include <vector>

#include "aici/cfg/parser.hpp"

namespace aici::cfg {

/// Lists the readings of a state, with those inside arrays.
std::vector<Engine::Kept> Engine::keep(State state, Keeping& keeping) const {
  std::vector<Kept> kept;
  if (state == 0) return kept;
  for (const Reading reading : readings(state)) {
    if (in_array(reading)) {
      const Arrays::Id position = position_of(reading);
      kept.push_back({0, position, keep(arrays_.at(position).state, keeping)});
      continue;
    }
    kept.push_back({keeping.columns.size(), Arrays::kNone, {}});
    keeping.columns.push_back(column_of(reading));
    keeping.scanners.push_back(scanner_of(reading));
  }
  return kept;
}

Engine::State Engine::restore(const std::vector<Kept>& kept, const Keeping& keeping, const Arrays& old) {
  std::vector<Reading> readings;
  for (const Kept& one : kept)
    readings.push_back(one.position == Arrays::kNone
                           ? pack(keeping.columns[one.number], keeping.scanners[one.number])
                           : kInArray | arrays_.copy(old, one.position, restore(one.inside, keeping, old)));
  return state_of(readings);
}

bool Engine::compact(State* state) {
  const bool many = columns_->size() > kMaxColumns / 4 || scanner_.crowded() ||
                    several_.size() > kMaxSeveral / 4 || mixed_.size() > kMaxMixed / 4 ||
                    arrays_.size() > kMaxPositions / 4;
  // before the first byte, everything that is missing can be built again
  const bool anew = *state == initial_ && (full_ || columns_->failure() || network_.failure() || scanner_.failure());
  if (*state == 0 || (!many && !anew && bytes() < most_kept_)) return false;
  Keeping keeping;
  const std::vector<Kept> now = keep(*state, keeping), at_start = keep(initial_, keeping);
  if (anew) full_ = false, columns_->forget_failure();
  columns_->keep_only(keeping.columns);
  scanner_.keep_only(keeping.scanners);
  begin_plain();
  begins_.clear(), ends_.clear(), can_end_.clear(), exits_.clear(), loops_.clear(), readings_.clear();
  several_.clear(), rows_.clear(), ids_.clear(), mixed_.clear(), mixed_ids_.clear();
  inner_masks_.clear();
  const Arrays old = std::exchange(arrays_, {});
  *state = restore(now, keeping, old);
  initial_ = restore(at_start, keeping, old);
  most_kept_ = std::max<std::size_t>(limits_.kept_bytes, 2 * bytes());  // what is needed stays
  return true;
}

}  // namespace aici::cfg
