// rules.hpp - the rules of a grammar that is being read, by name.
//
// Names may be used before they are defined. `check` reports undefined names with their position.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "source.hpp"

namespace aici::front {

class Rules {
 public:
  struct Named {
    cfg::Rule rule;
    bool defined = false;
    std::size_t at;  ///< position of the definition, or else of the first use
    std::vector<cfg::Rule> calls{};
    bool quiet = false;  ///< no warning about it is logged
  };

  Rules(const Source& source, cfg::Grammar& grammar) : source_(source), grammar_(grammar) {}

  /// Enters the rule with this name, to which the following calls refer. Entering it again adds alternatives.
  void enter(std::string_view name, std::size_t at, bool quiet = false);
  /// Adds an alternative to the current rule.
  void define(cfg::Expr body) { grammar_.define(current_->rule, body); }
  /// Returns a call of the rule with this name from the current rule.
  cfg::Expr call(std::string_view name, std::size_t at);
  const Named* find(std::string_view name) const;
  /// Returns "; did you mean x?", or an empty string.
  std::string suggestion(std::string_view name) const;

  /// Fails if a rule is used and not defined, or if there is no rule `start`.
  void check_names(std::string_view start) const;
  /// Fails if `start` has no text. Logs the rules that are not used, and those without a text.
  void check_texts(std::string_view start) const;

 private:
  using Entry = std::pair<const std::string, Named>;

  std::vector<const Entry*> in_order() const;
  Named& named(std::string_view name, std::size_t at);
  /// Returns, by number, the rules that texts of `start` may use.
  std::vector<bool> used_by(const Named& start) const;
  const Source& source_;
  cfg::Grammar& grammar_;
  std::map<std::string, Named, std::less<>> rules_;
  Named* current_ = nullptr;
};

/// Returns the element of `names` that is most similar to `name`; empty if none is similar.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace aici::front
