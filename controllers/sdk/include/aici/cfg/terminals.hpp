// terminals.hpp - what the texts of a grammar are made of: literal bytes, regular expressions, substrings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "aici/cfg/counted.hpp"
#include "aici/cfg/except.hpp"
#include "aici/functional.hpp"
#include "aici/regex/regex.hpp"
#include "aici/substring.hpp"

namespace aici::cfg {

/// The number of a terminal.
using Terminal = std::uint32_t;

/// How a part of a grammar is read.
enum class Lexemes : std::uint8_t {
  /// A terminal ends wherever it is complete, and nothing stands between two: the texts are exactly those of the rules.
  kAnywhere,
  /// As lexers read: of all such terminals that are possible where one begins none can go on where it ends, and what is
  /// ignored may stand between. One that ends early ends there for all.
  kLongest,
};

/// All terminals of a grammar, each with a deterministic automaton.
class Terminals {
 public:
  /// 0 is dead.
  using State = std::uint32_t;
  static constexpr State kDead = 0;

  Terminal add_literal(std::string_view bytes);
  /// `early`: a text ends where it first matches, and has a byte at least.
  Terminal add_regex(regex::Regex regex, bool early);
  Terminal add_substring(Substrings substrings);
  Terminal add_except(Except except);
  Terminal add_counted(Counted counted);

  /// How a terminal is read; kAnywhere unless this was called.
  void set_lexemes(Terminal terminal, Lexemes lexemes) {
    longest_.resize(size());
    longest_[terminal] = lexemes == Lexemes::kLongest;
  }
  bool any_longest() const { return std::ranges::find(longest_, true) != longest_.end(); }
  bool longest(Terminal terminal) const { return terminal < longest_.size() && longest_[terminal]; }

  /// Lets `loop_signature` answer.
  void set_byte_classes(ByteClasses classes);

  std::size_t size() const { return all_.size(); }
  bool early(Terminal terminal) const {
    const auto* pattern = std::get_if<Pattern>(&all_[terminal]);
    return pattern != nullptr && pattern->early;
  }
  State initial(Terminal terminal) const;
  State append(Terminal terminal, State state, std::uint8_t byte);
  /// Is what has been read a text of the terminal? (Of the initial state: is the empty text one?)
  bool accepting(Terminal terminal, State state) const;
  /// Can no byte follow?
  bool ended(Terminal terminal, State state);
  /// As in functional.hpp: kinds of bytes that may follow for ever, or for *length bytes.
  Signature loop_signature(Terminal terminal, State state, std::uint32_t* length) const;
  /// Why answers are not to be used, or null.
  const char* failure() const;

 private:
  /// A literal is in the state after as many bytes, and one more.
  using Literal = std::string;
  /// Where it ends early the state is kStopped; before, and of other patterns, that of the regex.
  struct Pattern {
    regex::Regex regex;
    bool early;
  };
  static constexpr State kStopped = 0xffffffff;

  std::vector<std::variant<Literal, Pattern, Substrings, Except, Counted>> all_;
  std::vector<bool> longest_;
};

}  // namespace aici::cfg
