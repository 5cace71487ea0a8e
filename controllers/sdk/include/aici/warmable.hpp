// warmable.hpp - fills tables ahead of the requests that need them.
//
// After `aici_init`, which creates the controller, an idle runtime may warm it. Later sequences with the same argument
// start from the warmed memory. Constraints do this automatically (constraint.hpp). A controller with its own tables
// derives from Warmable, or has a member that does:
//
//   class Scores : public aici::Warmable {
//     bool warm() override {           // called repeatedly while it returns true
//       if (next_ == kRows) return false;
//       fill_row(next_++);             // about a millisecond of work
//       return true;
//     }
//   };
//
// `warm` may never be called, and may be interrupted: a controller's answers must not depend on it.
#pragma once

#include <cstdint>

namespace aici {

class Warmable;

namespace detail {

/// All Warmable objects, newest first.
struct WarmableList {
  static inline constinit Warmable* newest = nullptr;
  /// Number of Warmable objects created so far.
  static inline constinit std::uint32_t count = 0;

  static bool warm();
  /// Removes all objects but the first `number` that were created.
  static void forget_after(std::uint32_t number);
};

}  // namespace detail

class Warmable {
 public:
  /// Does some milliseconds of work ahead. Returns false if nothing is left to do. It sees no prompt, and its output is
  /// dropped. If it fails, its changes are dropped, too.
  virtual bool warm() = 0;

 protected:
  Warmable();
  /// Removes the moved-from object from the list.
  Warmable(Warmable&& other) : Warmable() { other.leave(); }
  Warmable& operator=(Warmable&&) { return *this; }
  virtual ~Warmable();

 private:
  friend struct detail::WarmableList;
  /// Removes this object from the list, if it is in it.
  void leave();

  Warmable* next_;
  /// Number of objects created up to this one.
  std::uint32_t number_;
};

}  // namespace aici
