// emitter.hpp - emits goals as rules of a grammar.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "expander.hpp"

namespace aici::json_schema {

/// The punctuation of JSON with optional blanks around it. The blanks are a terminal of their own, whose states all places
/// share.
class Marks {
 public:
  Marks(cfg::Grammar& grammar, Whitespace whitespace) : grammar_(grammar), whitespace_(whitespace) {}

  cfg::Expr comma();
  /// A property: its name in JSON, a colon and its value.
  cfg::Expr property(const std::string& name, cfg::Expr value);
  cfg::Expr property(cfg::Expr name, cfg::Expr value);
  cfg::Expr open_array() { return grammar_.sequence({grammar_.literal("["), grammar_.optional(blanks())}); }
  cfg::Expr close_array() { return grammar_.sequence({grammar_.optional(blanks()), grammar_.literal("]")}); }
  cfg::Expr empty_array() { return grammar_.sequence({open_array(), grammar_.literal("]")}); }
  cfg::Expr open_object() { return grammar_.sequence({grammar_.literal("{"), grammar_.optional(blanks())}); }
  cfg::Expr close_object() { return grammar_.sequence({grammar_.optional(blanks()), grammar_.literal("}")}); }
  cfg::Expr empty_object() { return grammar_.sequence({open_object(), grammar_.literal("}")}); }
  /// At least one blank, or never.
  cfg::Expr blanks();

 private:
  /// After a colon.
  cfg::Expr space();

  cfg::Grammar& grammar_;
  Whitespace whitespace_;
  std::optional<cfg::Expr> blanks_, comma_, space_;
};

class Emitter {
 public:
  Emitter(cfg::Grammar& grammar, const Schemas& schemas, Expander& expander, Strings& strings, Problems& problems,
          const Options& options)
      : grammar_(grammar),
        document_(schemas.document()),
        expander_(expander),
        strings_(strings),
        problems_(problems),
        limits_(options.limits),
        warn_(options.warn),
        plain_(options.plain),
        order_(options.order),
        marks_(grammar, options.whitespace) {}

  /// Returns the texts of all values that satisfy the whole schema.
  cfg::Expr run();
  /// Returns the innermost schema that is the reason why no value satisfies the whole one.
  Value cause();

 private:
  using Expr = cfg::Expr;
  using Kind = Document::Kind;

  // emitter.cpp
  Expr value(Goal goal);
  bool only_strings(const Shape& shape) const;
  Expr build(const Shape& shape);
  Expr build(const Branch& branch);
  Expr if_possible(const Branch& branch, Expr (Emitter::*build)(const Branch&));
  Expr literal(Value value, std::uint32_t depth);
  Expr rule(std::string_view name, Expr body);
  Expr joined(const std::vector<Expr>& parts, Expr open, Expr close, Expr empty);
  Expr pattern(const std::string& pattern, Value where);
  Expr exactly(Expr expr, std::uint32_t count);
  Expr at_most(Expr expr, std::uint32_t count);
  /// Repeats `expr` between `least` and `most` times, with a moderate number of rules.
  Expr between(Expr expr, std::uint32_t least, std::uint32_t most);

  // emitter.cpp: strings and numbers
  /// A pattern with counted characters.
  struct Countable {
    /// Whether no text matches the pattern, of any length.
    bool empty = false;
    /// The pattern without bounds; nothing if it is too large.
    std::optional<cfg::Counted> texts;
    /// Expressions made so far, by their bounds.
    std::map<std::pair<std::uint32_t, std::uint32_t>, Expr> made;
  };
  Expr string(const Branch& branch);
  std::optional<Expr> pattern_except(const std::string& pattern, const std::vector<std::string_view>& texts,
                                     bool unquoted, std::string* problem);
  std::shared_ptr<regex::Regex> regex(const std::string& pattern, bool* empty, std::string* problem);
  std::optional<Expr> counted_pattern(const std::string& pattern, std::uint32_t least, std::uint32_t most,
                                      std::string* problem);
  Expr number(const Branch& branch);

  // emitter.cpp: multiples
  Expr multiples(const Branch& branch, const std::string& pattern);

  // emit_arrays.cpp
  Expr array(const Branch& branch);
  Expr plain_array(const Branch& branch);
  Expr counted_array(const Branch& branch);
  std::optional<Expr> array_of_few_values(const Branch& branch);
  Expr different_items(std::string_view bracket, Expr text);
  bool can_always_end(const Branch& branch);
  bool has_many(const Goal& goal, std::uint32_t least, std::uint32_t levels);
  bool has_many_strings(const Branch& branch, std::uint64_t least);
  std::uint32_t last_named_item(const Branch& branch) const;

  // emit_objects.cpp
  /// A set of numbers in Branch::some.
  using Met = std::uint32_t;
  struct Member {
    std::string_view name;
    /// What the property meets of Branch::some, with the texts for that.
    std::vector<std::pair<Met, Expr>> ways;
    bool required;
  };
  /// The properties that are not named, sorted by the patterns that their names match.
  struct Free {
    std::vector<std::string_view> names;  ///< the names of other properties
    std::vector<std::pair<std::string_view, Value>> patterns;
    std::vector<std::vector<bool>> sorts;
    /// Expressions made so far, by the last arguments of free_member and of rest_of_free.
    std::map<std::pair<Met, std::pair<Met, Met>>, Expr> made;
    std::map<std::pair<std::pair<Met, Met>, std::pair<std::uint32_t, std::uint32_t>>, Expr> rests;
  };
  Expr object(const Branch& branch);
  bool members(const Branch& branch, std::vector<std::string_view>* names, std::vector<Member>* out);
  bool sort_free(const Branch& branch, Free* free);
  Expr free_member(const Branch& branch, Free& free, Met open, Met met, Met kept);
  static bool reorder(const Branch& branch, std::vector<Member>* members);
  Expr in_any_order(const Branch& branch, const std::vector<Member>& members, Expr free, bool names_differ);
  Expr uncounted(const std::vector<Member>& members, Expr free);
  Expr counted(const Branch& branch, const std::vector<Member>& members, Free& free, bool names_differ);
  Expr rest_of_free(const Branch& branch, Free& free, Met open, Met kept, std::uint32_t least, std::uint32_t room);
  bool has_free_names(const Branch& branch, const Free& free, std::uint32_t least);
  Met by_value(const Branch& branch, Met met) const;
  bool may_be_named(const Goal& goal, std::string_view name);
  bool meets_name(const Branch::Some& some, std::string_view name);
  bool has_any_value(const Branch::Some& some) const { return expander_.simplify(some.values).empty(); }
  struct Names {
    std::vector<Value> literals;
    std::vector<Branch> branches;
  };
  Names names_of(const Branch& like, const Goal& goal, const std::vector<std::string_view>& except);
  Expr keys(const Branch& like, const Goal& goal, const std::vector<std::string_view>& except);

  cfg::Grammar& grammar_;
  const Document& document_;
  Expander& expander_;
  Strings& strings_;
  Problems& problems_;
  const Limits& limits_;
  /// Ignore constraints that cannot be enforced.
  bool warn_;
  /// Write strings without quotes and escapes.
  bool plain_;
  Order order_;
  Marks marks_;
  std::map<Goal, Expr> known_;
  /// Rules for the parts of cfg::AnyOrder.
  std::map<Expr, cfg::Rule> property_rules_;
  std::map<std::string, Expr> patterns_;
  /// By pattern; null if it cannot be compiled, or no text matches.
  std::map<std::string, std::shared_ptr<regex::Regex>> regexes_;
  std::map<std::string, Countable> counted_;
  std::vector<std::pair<Goal, cfg::Rule>> work_;
};

}  // namespace aici::json_schema
