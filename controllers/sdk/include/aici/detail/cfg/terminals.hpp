// terminals.hpp - the terminals of a grammar: literal bytes, regular expressions, substrings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/functional.hpp"
#include "aici/regex/regex.hpp"
#include "aici/substring.hpp"

namespace aici::cfg {

/// The texts of a regular expression with a number of characters between two bounds.
///
/// The expanded product of a pattern and a length is large. Counted keeps both side by side: the place in the regex, and
/// the number of characters so far. Without an upper bound it counts no further than to the lower one, so that states
/// repeat. A state is alive if an end can be reached from it with an allowed number of
/// characters. All bounds share the tables that do not depend on them.
class Counted {
 public:
  /// 0 is dead, 1 the first.
  using State = std::uint32_t;

  /// Returns the texts of any length, or nothing if the regex has too many states. With `escapes`, the texts are in
  /// JSON's spelling, and an escape such as \n or \u001f is one character.
  static std::optional<Counted> make(std::shared_ptr<regex::Regex> regex, bool escapes);
  /// Returns the texts with `least` to `most` characters; `most` may be kUnlimited. Returns nothing if the bounds are too
  /// large, or if the distance to the nearest end does not decide about a lower bound: from a place in
  /// (..)*, not all lengths are possible.
  std::optional<Counted> between(std::uint32_t least, std::uint32_t most) const;

  /// Returns whether there is no text.
  bool empty() const { return least_ > most_ || !lives(kFirst, 0); }
  State append(State state, std::uint8_t byte) const;
  bool accepting(State state) const { return shape_->places[place_of(state)].accepting && count_of(state) >= least_; }
  bool ended(State state) const;
  /// As in functional.hpp, for *length bytes.
  Signature loop_signature(State state, std::uint32_t* length) const;
  /// Returns the number of characters for which the regex alone decides what may follow, and where the text may end
  /// unless it is too short; 0 if it does not.
  std::uint32_t free_length(State state) const;
  regex::Regex& regex() const { return *shape_->regex; }
  const std::shared_ptr<regex::Regex>& shared_regex() const { return shape_->regex; }
  regex::Regex::State regex_state(State state) const { return shape_->places[place_of(state)].regex; }
  const char* failure() const { return shape_->regex->failure(); }

 private:
  using PlaceId = std::uint16_t;
  static constexpr PlaceId kNowhere = 0, kFirst = 1;
  /// Maximum number of pairs of a regex state and an escape state; about 2 us and 600 bytes each.
  static constexpr std::size_t kMaxPlaces = 8192;
  static constexpr std::uint32_t kFar = 0xffffffff, kMaxStates = 1u << 31;
  /// The state of a text, except for its length.
  struct Place {
    regex::Regex::State regex;
    std::uint8_t escape;         ///< 0: none, 1: after the backslash, n > 1: n - 1 digits are missing
    bool accepting = false;
    std::uint32_t rest = kFar;  ///< characters to the nearest end
    /// The next places, separately for bytes that begin a character and for others.
    struct Way {
      PlaceId to;
      bool begins;
      bool operator==(const Way&) const = default;
    };
    std::vector<Way> ways;
  };
  struct Shape {
    Shape(std::shared_ptr<regex::Regex> it, bool with_escapes) : regex(std::move(it)), escapes(with_escapes) {}

    std::shared_ptr<regex::Regex> regex;
    bool escapes;
    std::vector<Place> places;
    std::vector<PlaceId> next;  ///< 256 for each place
    std::uint32_t farthest = 0;
    /// Whether any text can be extended by each number of characters, except at its end.
    bool stretches = false;
    /// Whether no text can be extended at its end, as with a closing quote.
    bool closes = false;

    bool find_places();
    void find_rests();
    bool can_stretch() const;
  };

  explicit Counted(std::shared_ptr<Shape> shape) : shape_(std::move(shape)) {}
  /// Returns whether the byte begins a character.
  static bool begins(std::uint8_t escape, std::uint8_t byte) { return escape == 0 && (byte & 0xC0) != 0x80; }
  static std::uint8_t escape_after(std::uint8_t escape, std::uint8_t byte);
  PlaceId place_of(State state) const { return static_cast<PlaceId>(state % shape_->places.size()); }
  std::uint32_t count_of(State state) const { return state / static_cast<std::uint32_t>(shape_->places.size()); }
  bool lives(PlaceId place, std::uint32_t count) const;
  std::uint32_t room(std::uint32_t count) const;

  std::shared_ptr<Shape> shape_;
  std::uint32_t least_ = 0, most_ = 0;
};

/// The texts of a regular expression except those in a list, such as names: the regex and, in parallel, a
/// trie of the excluded texts. Excluded texts that the regex does not match have no effect.
class Except {
 public:
  /// 0 is dead, 1 the first.
  using State = std::uint32_t;

  Except(std::shared_ptr<regex::Regex> regex, std::span<const std::string> texts);

  State append(State state, std::uint8_t byte);
  bool accepting(State state) const;
  bool ended(State state);
  /// Returns the regex if no excluded text can follow, otherwise null.
  const regex::Regex* free(State state) const { return pairs_[state].node == kNone ? regex_.get() : nullptr; }
  /// Returns the state outside the excluded texts.
  State outside(regex::Regex::State regex) { return intern(regex, kNone); }
  /// Returns whether no excluded text can follow after a byte from 0x80 on.
  bool free_after_multibyte(State state) const {
    const auto& children = trie_[pairs_[state].node].children;
    return children.empty() || children.back().first < 0x80;
  }
  /// Returns the state after another text as far as the regex goes. It adds the bytes after which they differ.
  State without_names(State state, ByteSet& differ) {
    for (const auto& [byte, node] : trie_[pairs_[state].node].children) differ.add(byte);
    return outside(pairs_[state].regex);
  }
  regex::Regex::State regex_state(State state) const { return pairs_[state].regex; }
  regex::Regex& regex() const { return *regex_; }
  const char* failure() const { return regex_->failure(); }

 private:
  static constexpr std::uint32_t kNone = 0, kRoot = 1;
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;
    bool ends = false;
  };
  struct Pair {
    regex::Regex::State regex;
    std::uint32_t node;
    /// Whether a text can still be completed; -1: not computed yet.
    std::int8_t alive;
  };

  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  State intern(regex::Regex::State regex, std::uint32_t node);
  bool alive(State state);

  std::shared_ptr<regex::Regex> regex_;
  std::vector<Node> trie_{2};
  std::vector<Pair> pairs_;
  HashIndex ids_;
};

/// The number of a terminal.
using Terminal = std::uint32_t;

/// How a part of a grammar is read.
enum class Lexemes : std::uint8_t {
  /// A terminal ends wherever it is complete, and nothing stands between terminals: the texts are exactly those of
  /// the rules.
  kAnywhere,
  /// As in a lexer: a terminal ends where none of the terminals that were possible at its start can continue. Ignored
  /// text may stand between terminals. A terminal that ends early ends for all of them.
  kLongest,
};

/// All terminals of a grammar, each with a deterministic automaton.
class Terminals {
 public:
  /// 0 is dead.
  using State = std::uint32_t;
  static constexpr State kDead = 0;

  Terminal add_literal(std::string_view bytes);
  /// With `early`, a text ends where it first matches, and has at least one byte.
  Terminal add_regex(std::shared_ptr<regex::Regex> regex, bool early);
  /// Returns the terminal of all texts of a regex that is read in this way, without a temperature, if there is one.
  std::optional<Terminal> find(const regex::Regex& regex, Lexemes lexemes) const;
  Terminal add_substring(Substrings substrings);
  Terminal add_except(Except except);
  Terminal add_counted(Counted counted);

  /// Sets how a terminal is read; the default is kAnywhere.
  void set_lexemes(Terminal terminal, Lexemes lexemes) {
    longest_.resize(size());
    longest_[terminal] = lexemes == Lexemes::kLongest;
  }
  bool any_longest() const { return std::ranges::find(longest_, true) != longest_.end(); }
  bool longest(Terminal terminal) const { return terminal < longest_.size() && longest_[terminal]; }

  /// Sets the temperature at which its tokens are sampled; the default, 0, is that of the request.
  void set_temperature(Terminal terminal, float temperature) {
    temperatures_.resize(size());
    temperatures_[terminal] = temperature;
  }
  float temperature(Terminal terminal) const { return terminal < temperatures_.size() ? temperatures_[terminal] : 0; }
  bool any_temperature() const { return !temperatures_.empty(); }

  /// Sets the byte classes that `loop_signature` needs.
  void set_byte_classes(ByteClasses classes);
  /// Returns the kinds of bytes that this byte may belong to; 0 before `set_byte_classes`.
  Signature kinds(std::uint8_t byte) const {
    if (byte >= 0x80) return kWellFormedUtf8 | kOtherBytes;
    return classes_ != nullptr ? Signature{1} << classes_[byte] : 0;
  }
  /// Returns the characters, sorted, that kWellFormedUtf8 in loop signatures does not stand for.
  const std::vector<std::uint32_t>& rare_characters() const { return rare_; }

  std::size_t size() const { return all_.size(); }
  bool early(Terminal terminal) const {
    const auto* pattern = std::get_if<Pattern>(&all_[terminal]);
    return pattern != nullptr && pattern->early;
  }
  State initial(Terminal terminal) const;
  State append(Terminal terminal, State state, std::uint8_t byte);
  /// Returns whether the text so far is a text of the terminal; for the initial state, whether the empty text is.
  bool accepting(Terminal terminal, State state) const;
  /// Returns whether no byte can follow.
  bool ended(Terminal terminal, State state);
  /// As in functional.hpp: kinds of bytes that may follow in any number, or for *length bytes.
  Signature loop_signature(Terminal terminal, State state, std::uint32_t* length) const;
  /// Returns kinds of bytes, any text of which may follow if it begins with a character of several bytes.
  Signature multibyte_signature(Terminal terminal, State state) const;
  /// Returns whether all texts of all terminals are well-formed UTF-8.
  bool well_formed() const;
  /// Adds the bytes that may continue the terminal, and perhaps others.
  void add_next_bytes(Terminal terminal, State state, ByteSet& bytes) const;
  /// Returns a state that continues like this one, or kDead if nothing continues, but for texts that begin with a byte
  /// of `differ`, to which it adds. It is fit for more states than this one: the known names that differ from an
  /// unknown one, for example, are left out.
  State without_names(Terminal terminal, State state, ByteSet& differ);
  /// Returns the state of the regex alone and its first terminal, which continue in the same way for *length bytes; `own`
  /// if there are none.
  struct Place {
    Terminal terminal;
    State state;
  };
  Place twin(Place own, std::uint32_t* length);
  /// Returns why the answers are invalid, or null.
  const char* failure() const;

 private:
  /// The state of a literal is the number of bytes read, plus one.
  using Literal = std::string;
  /// The state is that of the regex; kStopped where a pattern has ended early.
  struct Pattern {
    std::shared_ptr<regex::Regex> regex;
    bool early;
  };
  static constexpr State kStopped = 0xffffffff;

  std::vector<std::variant<Literal, Pattern, Substrings, Except, Counted>> all_;
  std::vector<bool> longest_;
  std::vector<float> temperatures_;
  const std::uint8_t* classes_ = nullptr;
  std::vector<std::uint32_t> rare_;
  std::unordered_map<const regex::Regex*, Terminal> first_of_regex_;
};

}  // namespace aici::cfg
