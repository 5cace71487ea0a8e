// any_constraint.hpp - a constraint whose recognizer is chosen while the program runs.
//
//   aici::AnyConstraint choose(std::string_view argument) {
//     if (argument == "digits") return Digits();
//     return aici::regex::compile_or_fail(argument);
//   }
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "aici/constraint.hpp"

namespace aici {

/// A Constraint (constraint.hpp) on any recognizer, with the same functions. Each function is one virtual call; the
/// walk inside makes no virtual calls and uses all optional functions of the recognizer.
class AnyConstraint {
 public:
  template <class R>
    requires FunctionalRecognizer<R> || ByteStack<R>
  AnyConstraint(R recognizer, ConstraintOptions options = {})
      : chosen_(std::make_unique<Of<R>>(std::move(recognizer), options)) {}

  void prepare() { chosen_->prepare(); }
  void append(std::span<const TokenId> tokens) { chosen_->append(tokens); }
  bool ended() const { return chosen_->ended(); }
  bool may_end() { return chosen_->may_end(); }
  std::size_t longest_end(std::string_view text) { return chosen_->longest_end(text); }
  MidResult next() { return chosen_->next(); }
  void restart() { chosen_->restart(); }
  std::size_t cached_bytes() const { return chosen_->cached_bytes(); }
  bool has_captures() const { return chosen_->has_captures(); }
  void write_captures(std::string_view text) { chosen_->write_captures(text); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual void prepare() = 0;
    virtual void append(std::span<const TokenId> tokens) = 0;
    virtual bool ended() const = 0;
    virtual bool may_end() = 0;
    virtual std::size_t longest_end(std::string_view text) = 0;
    virtual MidResult next() = 0;
    virtual void restart() = 0;
    virtual std::size_t cached_bytes() const = 0;
    virtual bool has_captures() = 0;
    virtual void write_captures(std::string_view text) = 0;
  };

  template <class R>
  struct Of final : Interface {
    Of(R recognizer, ConstraintOptions options) : constraint(std::move(recognizer), options) {}
    void prepare() override { constraint.prepare(); }
    void append(std::span<const TokenId> tokens) override { constraint.append(tokens); }
    bool ended() const override { return constraint.ended(); }
    bool may_end() override { return constraint.may_end(); }
    std::size_t longest_end(std::string_view text) override { return constraint.longest_end(text); }
    MidResult next() override { return constraint.next(); }
    void restart() override { constraint.restart(); }
    std::size_t cached_bytes() const override { return constraint.cached_bytes(); }
    bool has_captures() override { return constraint.has_captures(); }
    void write_captures(std::string_view text) override { constraint.write_captures(text); }

    Constraint<R> constraint;
  };

  std::unique_ptr<Interface> chosen_;
};

}  // namespace aici
