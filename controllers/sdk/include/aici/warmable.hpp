// warmable.hpp - tables that are filled ahead of the requests that will need them.
//
// After `aici_init`, which makes the controller, the runtime may go on with it while it has nothing else to do, and
// start later sequences with the same argument from what is in memory then. Constraints use this by themselves
// (constraint.hpp). A controller with tables of its own derives from Warmable, or has a member that does:
//
//   class Scores : public aici::Warmable {
//     bool warm() override {           // called again and again, while it says true
//       if (next_ == kRows) return false;
//       fill_row(next_++);             // about a millisecond of work
//       return true;
//     }
//   };
//
// `warm` may never be called, or be given up in the middle: what a controller answers must not depend on it.
#pragma once

#include <cstdint>

namespace aici {

class Warmable;

namespace detail {

/// Everything that is warmable, the newest first.
struct WarmableList {
  static inline constinit Warmable* newest = nullptr;
  /// Of all that there have ever been.
  static inline constinit std::uint32_t count = 0;

  static bool warm();
  /// Forgets all but the first so many that there have ever been.
  static void forget_after(std::uint32_t number);
};

}  // namespace detail

class Warmable {
 public:
  /// Does a little of what later calls will need; at most some milliseconds. False = there is nothing left to do. It
  /// sees no prompt; what it prints is dropped; and if it fails, what it did is dropped, too.
  virtual bool warm() = 0;

 protected:
  Warmable();
  /// What was moved from is not warmed any more.
  Warmable(Warmable&& other) : Warmable() { other.leave(); }
  Warmable& operator=(Warmable&&) { return *this; }
  virtual ~Warmable();

 private:
  friend struct detail::WarmableList;
  /// Leaves the list, if it is there.
  void leave();

  Warmable* next_;
  /// How many there have been, this one included.
  std::uint32_t number_;
};

}  // namespace aici
