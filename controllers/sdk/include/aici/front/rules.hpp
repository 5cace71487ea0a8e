// rules.hpp - the rules of a grammar that is being read, by name.
//
// Names may be used before they are defined, and never defined at all: `check` says so, with the place.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/front/source.hpp"

namespace aici::front {

class Rules {
 public:
  struct Named {
    cfg::Rule rule;
    bool defined = false;
    std::size_t at;  ///< where it is defined, or else where it is used first
    std::vector<cfg::Rule> calls{};
  };

  Rules(const Source& source, cfg::Grammar& grammar) : source_(source), grammar_(grammar) {}

  /// There is a rule with this name, and what follows is in it. (Again: there are more alternatives.)
  void enter(std::string_view name, std::size_t at);
  /// One more alternative of the rule that was entered.
  void define(cfg::Expr body) { grammar_.define(current_->rule, body); }
  /// A use of the rule with this name in the one that was entered.
  cfg::Expr call(std::string_view name, std::size_t at);
  const Named* find(std::string_view name) const;

  /// Fails if a rule is used and not defined, or if there is no rule `start`.
  void check_names(std::string_view start) const;
  /// Fails if no text comes of `start`, and logs which rules are not used, and of which no text comes.
  void check_texts(std::string_view start) const;

 private:
  using Entry = std::pair<const std::string, Named>;

  std::vector<const Entry*> in_order() const;
  Named& named(std::string_view name, std::size_t at);
  /// By number: the rules that texts of `start` may need.
  std::vector<bool> used_by(const Named& start) const;
  /// "; did you mean x?", or nothing.
  std::string suggestion(std::string_view name) const;

  const Source& source_;
  cfg::Grammar& grammar_;
  std::map<std::string, Named, std::less<>> rules_;
  Named* current_ = nullptr;
};

/// The one of `names` that was probably meant by `name`; empty if none is near.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace aici::front
