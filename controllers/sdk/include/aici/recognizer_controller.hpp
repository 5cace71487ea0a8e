// recognizer_controller.hpp - makes a controller of a recognizer.
//
//   class Digits1to9 : public aici::RecognizerController<MyRecognizer> {
//    public:
//     explicit Digits1to9(std::string_view arg) : RecognizerController(MyRecognizer(arg)) {}
//   };
//   AICI_REGISTER(Digits1to9);
#pragma once

#include <span>
#include <utility>

#include "aici/constraint.hpp"
#include "aici/controller.hpp"

namespace aici {

/// The whole output matches the recognizer: every token is sampled under its masks, forced text is spliced
/// in, and the sequence stops where nothing can follow. It has no pre_process and no
/// post_process, so it never keeps the engine waiting.
template <class R>
class RecognizerController : public Controller {
 public:
  explicit RecognizerController(R recognizer, ConstraintOptions options = {})
      : constraint_(std::move(recognizer), options) {
    constraint_.prepare();
  }

  MidResult mid_process(std::span<const SeqId>) {
    if (step().backtrack() != 0) fail("tokens were taken back, which this controller does not follow");
    constraint_.append(step().tokens());
    return constraint_.next();
  }

 protected:
  Constraint<R>& constraint() { return constraint_; }

 private:
  Constraint<R> constraint_;
};

}  // namespace aici
