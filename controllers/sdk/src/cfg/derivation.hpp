// derivation.hpp - finds one reading of a complete text by Earley's algorithm, and the captures in it.
//
// The engine keeps no reading: its columns are sets, shared by all texts. The text is read again when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/detail/cfg/scanner.hpp"
#include "aici/detail/hash_index.hpp"
#include "aici/functional.hpp"

namespace aici::cfg {

class Derivation {
 public:
  /// Both must outlive this object. Terminals build their states lazily.
  Derivation(Grammar& grammar, std::string_view text);

  /// Reads the text from the start rule. Returns false if that takes too many items, or the text is not of the grammar.
  bool read(Rule start);
  /// Returns the captures, in the order of their ends.
  std::vector<Capture> captures();

 private:
  /// The number of an item.
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xffffffff;
  /// The expression of the item that stands for the whole text: a call of the start rule.
  static constexpr Expr kWhole = 0xffffffff;
  /// Maximum number of items, which limits memory and time: some 60 bytes and 0.5 us each. The last step of a sequence
  /// has 20 ms.
  static constexpr std::size_t kMaxItems = 40'000;

  /// A part of an expression that has been read, from `origin` to `end`. `dot` is its progress (each_next).
  struct Item {
    Expr expr;
    std::uint32_t dot, origin, end;
    Id before;  ///< the item that this one continues, or kNone
    Id inside;  ///< the item of the part that was read last; kNone for terminals
    Id next = kNone;  ///< the next one with the same end
    bool same(const Item& other) const {
      return expr == other.expr && dot == other.dot && origin == other.origin && end == other.end;
    }
  };
  /// An item that waits for an expression, and its progress after that.
  struct Waiting {
    Id item;
    std::uint32_t dot, next;
  };
  /// An expression that may begin at a position: the first item that waits for it, and one that has no text.
  struct Wanted {
    std::uint32_t at;
    Expr expr;
    std::uint32_t waiting = kNone;
    Id empty = kNone;
  };

  /// Calls `visit(expression, dot after it)` for each expression that may come next.
  template <class Visit>
  void each_next(Expr expr, std::uint32_t dot, Visit visit) const;
  bool complete(Expr expr, std::uint32_t dot) const;
  /// Replaces calls of rules that are not captured by their bodies.
  Expr resolve(Expr expr) const;
  void mark_longest();
  bool longest(const Item& item) const;

  void add(const Item& item);
  /// Adds the items of all that wait for `expr` since `origin`, which ends at `end`.
  void advance(Expr expr, std::uint32_t origin, std::uint32_t end, Id inside);
  void wait(Id item, Expr expr, std::uint32_t dot);
  /// Returns the number in `wanted_`, or kNone.
  std::uint32_t find_wanted(std::uint32_t at, Expr expr) const;
  template <class Visit>
  void each_ending(std::uint32_t at, Visit visit);
  void process(Id item);
  /// Returns the item of the whole text, or kNone.
  Id whole() const;
  void scan(std::uint32_t at);
  void scan_longest(std::uint32_t at);
  void ignore(std::uint32_t at, std::uint32_t end);
  void emit(const Item& item, std::vector<Capture>& found);
  std::string text_of(std::uint32_t from, std::uint32_t to) const;

  Grammar& grammar_;
  std::string_view text_;
  Rule start_ = 0;
  Expr whole_ = 0;  ///< a call of the start rule, if that is captured
  Scanner scanner_;
  std::vector<bool> longest_;  ///< by expression: whether rules of kLongest have it
  std::vector<Item> items_;
  HashIndex ids_;
  /// By position: the items that end there.
  std::vector<Id> first_, last_;
  std::vector<Waiting> waiting_;
  std::vector<Wanted> wanted_;
  HashIndex wanted_ids_;
  /// Terminals that may begin at the present position.
  std::vector<Expr> expected_;
  bool too_many_ = false;
};

}  // namespace aici::cfg
