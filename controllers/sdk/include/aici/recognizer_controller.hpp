// recognizer_controller.hpp - makes a controller from a recognizer.
//
//   class Digits1to9 : public aici::RecognizerController<MyRecognizer> {
//    public:
//     explicit Digits1to9(std::string_view arg) : RecognizerController(MyRecognizer(arg)) {}
//   };
//   AICI_REGISTER(Digits1to9);
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "aici/constraint.hpp"
#include "aici/controller.hpp"

namespace aici {

namespace detail {

struct NoFinder {};
template <class R>
using FinderOf = std::conditional_t<Reports<R>, Finder, NoFinder>;

}  // namespace detail

/// Restricts the whole output to a recognizer. Every token is sampled under its masks, forced text is spliced in, and
/// the sequence stops where nothing can follow. It has no pre_process and no post_process, so the engine never waits
/// for it.
template <class R>
class RecognizerController : public Controller, private detail::FinderOf<R> {
 public:
  explicit RecognizerController(R recognizer, ConstraintOptions options = {})
      : constraint_(std::move(recognizer), recording(options)) {
    constraint_.prepare();
  }

  MidResult mid_process(std::span<const SeqId>) {
    if (step().backtrack() != 0) fail("tokens were backtracked, which this controller does not support");
    constraint_.append(step().tokens());
    return constraint_.next();
  }

 protected:
  Constraint<R>& constraint() { return constraint_; }

 private:
  static ConstraintOptions recording(ConstraintOptions options) {
    options.records = true;
    return options;
  }
  detail::FoundTexts found() { return constraint_.found(); }  // overrides Finder's, if there is one

  Constraint<R> constraint_;
};

}  // namespace aici
