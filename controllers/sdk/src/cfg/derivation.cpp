// Finds the captures of a complete text. The engine keeps no reading: its columns are sets, shared by all texts. So the
// text is read again when it is complete.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"

namespace aici::cfg {

namespace {

using Kind = Grammar::Node::Kind;

/// Finds one reading of a complete text by Earley's algorithm, and the captures in it.
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

std::uint32_t hash_of(std::initializer_list<std::uint32_t> words) {
  Hasher hash;
  for (const std::uint32_t word : words) hash.add(word);
  return hash.bits();
}

/// Length of token_bytes.
constexpr std::size_t kTokenBytes = 5;

Derivation::Derivation(Grammar& grammar, std::string_view text) : grammar_(grammar), text_(text), scanner_(&grammar.terminals()) {
  mark_longest();
}

/// The parts of AnyOrder are read in any number: the text is known to be valid.
template <class Visit>
void Derivation::each_next(Expr expr, std::uint32_t dot, Visit visit) const {
  if (expr == kWhole) {
    if (dot == 0) visit(grammar_.captured(start_) != nullptr ? whole_ : grammar_.body(start_), 1);
    return;
  }
  const Grammar::Node& node = grammar_.node(expr);
  switch (node.kind) {
    case Kind::kSequence:
      if (dot < 2) visit(dot == 0 ? node.a : node.b, dot + 1);
      break;
    case Kind::kChoice:
      for (Expr rest = expr; dot == 0; rest = grammar_.node(rest).b) {
        visit(grammar_.node(rest).kind == Kind::kChoice ? grammar_.node(rest).a : rest, 1);
        if (grammar_.node(rest).kind != Kind::kChoice) break;
      }
      break;
    case Kind::kRepeat: {
      const std::uint32_t most = node.most == kNoLimit ? std::max(node.least, 1u) : node.most;
      if (dot < most || node.most == kNoLimit) visit(node.a, std::min(dot + 1, most));
      break;
    }
    case Kind::kCall:
      if (dot == 0) visit(grammar_.body(node.a), 1);
      break;
    case Kind::kAnyOrder: {
      const AnyOrder& order = grammar_.order(node.a);
      if (dot == 1) visit(grammar_.body(order.separator), 0);
      for (std::size_t i = 0; dot == 0 && i < order.parts.size(); i++) visit(grammar_.body(order.parts[i].rule), 1);
      break;
    }
    default: break;
  }
}

bool Derivation::complete(Expr expr, std::uint32_t dot) const {
  if (expr == kWhole) return dot == 1;
  const Grammar::Node& node = grammar_.node(expr);
  switch (node.kind) {
    case Kind::kEmpty: return true;
    case Kind::kSequence: return dot == 2;
    case Kind::kRepeat: return dot >= node.least;
    case Kind::kChoice:
    case Kind::kCall:
    case Kind::kAnyOrder: return dot == 1;
    default: return false;
  }
}

Expr Derivation::resolve(Expr expr) const {
  for (std::size_t i = 0; i <= grammar_.num_rules(); i++) {
    const Grammar::Node& node = grammar_.node(expr);
    if (node.kind != Kind::kCall || grammar_.captured(node.a) != nullptr) return expr;
    expr = grammar_.body(node.a);
  }
  return grammar_.never();  // rules that call only each other
}

void Derivation::mark_longest() {
  std::vector<Expr> open;
  for (Rule rule = 0; rule < grammar_.num_rules(); rule++)
    if (grammar_.lexemes(rule) == Lexemes::kLongest) open.push_back(grammar_.body(rule));
  while (!open.empty()) {
    const Expr expr = open.back();
    open.pop_back();
    if (expr >= longest_.size()) longest_.resize(expr + 1);
    if (longest_[expr]) continue;
    longest_[expr] = true;
    const Grammar::Node& node = grammar_.node(expr);
    if (node.kind == Kind::kSequence || node.kind == Kind::kChoice) open.push_back(node.b);
    if (node.kind == Kind::kSequence || node.kind == Kind::kChoice || node.kind == Kind::kRepeat) open.push_back(node.a);
  }
}

bool Derivation::longest(const Item& item) const {
  if (item.expr == kWhole) return grammar_.lexemes(start_) == Lexemes::kLongest;
  return item.expr < longest_.size() && longest_[item.expr];
}

void Derivation::add(const Item& item) {
  const std::uint32_t hash = hash_of({item.expr, item.dot, item.origin, item.end});
  if (ids_.find(hash, [&](Id id) { return items_[id].same(item); }) != HashIndex::kNone) return;
  if (items_.size() >= kMaxItems) {
    too_many_ = true;
    return;
  }
  const auto id = static_cast<Id>(items_.size());
  items_.push_back(item);
  ids_.insert(hash, id);
  (first_[item.end] == kNone ? first_[item.end] : items_[last_[item.end]].next) = id;
  last_[item.end] = id;
}

/// Visits the items that end at a position, also those that are added meanwhile.
template <class Visit>
void Derivation::each_ending(std::uint32_t at, Visit visit) {
  for (Id id = first_[at]; id != kNone && !too_many_; id = items_[id].next) visit(id);
}

std::uint32_t Derivation::find_wanted(std::uint32_t at, Expr expr) const {
  return wanted_ids_.find(hash_of({at, expr}), [&](std::uint32_t i) { return wanted_[i].at == at && wanted_[i].expr == expr; });
}

void Derivation::advance(Expr expr, std::uint32_t origin, std::uint32_t end, Id inside) {
  const std::uint32_t wanted = find_wanted(origin, expr);
  if (wanted == kNone) return;
  if (origin == end && wanted_[wanted].empty == kNone) wanted_[wanted].empty = inside;
  for (std::uint32_t i = wanted_[wanted].waiting; i != kNone; i = waiting_[i].next) {
    const Item& item = items_[waiting_[i].item];
    add({item.expr, waiting_[i].dot, item.origin, end, waiting_[i].item, inside});
  }
}

void Derivation::wait(Id id, Expr expr, std::uint32_t dot) {
  const Item item = items_[id];
  expr = resolve(expr);
  std::uint32_t number = find_wanted(item.end, expr);
  const bool is_new = number == kNone;
  if (is_new) {
    number = static_cast<std::uint32_t>(wanted_.size());
    wanted_.push_back({item.end, expr});
    wanted_ids_.insert(hash_of({item.end, expr}), number);
  }
  Wanted& wanted = wanted_[number];
  waiting_.push_back({id, dot, wanted.waiting});
  wanted.waiting = static_cast<std::uint32_t>(waiting_.size() - 1);
  if (wanted.empty != kNone) add({item.expr, dot, item.origin, item.end, id, wanted.empty});
  if (!is_new) return;
  if (grammar_.node(expr).kind == Kind::kTerminal)
    expected_.push_back(expr);
  else
    add({expr, 0, item.end, item.end, kNone, kNone});
}

void Derivation::process(Id id) {
  const Item item = items_[id];
  if (item.expr != kWhole && complete(item.expr, item.dot)) advance(item.expr, item.origin, item.end, id);
  each_next(item.expr, item.dot, [&](Expr next, std::uint32_t dot) { wait(id, next, dot); });
}

void Derivation::scan(std::uint32_t at) {
  Terminals& terminals = grammar_.terminals();
  for (const Expr expr : expected_) {
    const Terminal terminal = grammar_.node(expr).a;
    if (terminals.longest(terminal)) continue;
    Terminals::State state = terminals.initial(terminal);
    for (std::uint32_t end = at; end < text_.size() && !too_many_; end++) {
      state = terminals.append(terminal, state, static_cast<std::uint8_t>(text_[end]));
      if (state == Terminals::kDead) break;
      if (terminals.accepting(terminal, state)) advance(expr, at, end + 1, kNone);
    }
  }
  scan_longest(at);
}

/// Reads the lexeme that begins here, as the engine does: all terminals that may follow compete.
void Derivation::scan_longest(std::uint32_t at) {
  const std::vector<Terminal>& ignored = grammar_.ignored();
  std::vector<Terminal> terminals;
  for (const Expr expr : expected_)
    if (const Terminal terminal = grammar_.node(expr).a; grammar_.terminals().longest(terminal)) terminals.push_back(terminal);
  bool may_ignore = false;
  if (!ignored.empty()) each_ending(at, [&](Id id) { may_ignore = may_ignore || longest(items_[id]); });
  if (may_ignore) terminals.insert(terminals.end(), ignored.begin(), ignored.end());
  if (terminals.empty()) return;
  std::ranges::sort(terminals);
  terminals.erase(std::unique(terminals.begin(), terminals.end()), terminals.end());
  Scanner::State state = scanner_.start(terminals), last = Scanner::kDead;
  std::uint32_t end = at;
  for (std::uint32_t i = at; i < text_.size() && state != Scanner::kDead; i++) {
    state = scanner_.append(state, static_cast<std::uint8_t>(text_[i]));
    if (scanner_.accepting(state)) last = state, end = i + 1;
  }
  if (last == Scanner::kDead) return;
  const auto accepted = scanner_.accepted(last);
  for (const Expr expr : expected_)
    if (std::ranges::find(accepted, grammar_.node(expr).a) != accepted.end()) advance(expr, at, end, kNone);
  if (std::ranges::any_of(accepted, [&](Terminal it) { return std::ranges::find(ignored, it) != ignored.end(); }))
    ignore(at, end);
}

/// Carries all items over ignored text, except those that begin or are complete before it.
void Derivation::ignore(std::uint32_t at, std::uint32_t end) {
  each_ending(at, [&](Id id) {
    Item item = items_[id];
    bool goes_on = item.expr == kWhole;
    if (item.before != kNone && item.origin != at) each_next(item.expr, item.dot, [&](Expr, std::uint32_t) { goes_on = true; });
    if (!goes_on || !longest(item)) return;
    item.end = end;
    item.next = kNone;
    add(item);
  });
}

bool Derivation::read(Rule start) {
  start_ = start;
  if (grammar_.captured(start) != nullptr) whole_ = grammar_.call(start);
  first_.assign(text_.size() + 1, kNone), last_ = first_;
  add({kWhole, 0, 0, 0, kNone, kNone});
  for (std::uint32_t at = 0; at <= text_.size() && !too_many_; at++) {
    expected_.clear();
    each_ending(at, [&](Id id) { process(id); });
    if (first_[at] != kNone) scan(at);
  }
  return !too_many_ && whole() != kNone;
}

Derivation::Id Derivation::whole() const {
  Id id = first_.back();
  while (id != kNone && !(items_[id].expr == kWhole && items_[id].dot == 1)) id = items_[id].next;
  return id;
}

std::vector<Capture> Derivation::captures() {
  std::vector<Capture> found;
  std::vector<Id> open{whole()}, inside;
  while (!open.empty()) {
    const Item item = items_[open.back()];
    open.pop_back();
    if (item.expr != kWhole && grammar_.node(item.expr).kind == Kind::kCall) emit(item, found);
    // from the last part to the first; the last one is looked at first
    inside.clear();
    for (Item part = item; part.before != kNone; part = items_[part.before])
      if (part.inside != kNone) inside.push_back(part.inside);
    open.insert(open.end(), inside.rbegin(), inside.rend());
  }
  std::ranges::reverse(found);
  return found;
}

/// Adds the captures of a rule, the last one first.
void Derivation::emit(const Item& item, std::vector<Capture>& found) {
  const Grammar::Captured& captured = *grammar_.captured(grammar_.node(item.expr).a);
  std::uint32_t middle = item.end;
  if (captured.suffix != nullptr) {
    // the first place at which the body may end before the suffix
    regex::Regex &body = *captured.body, &suffix = *captured.suffix;
    regex::Regex::State state = body.initial();
    for (middle = item.origin; middle < item.end; middle++) {
      if (body.accepting(state)) {
        regex::Regex::State rest = suffix.initial();
        for (std::uint32_t at = middle; at < item.end && !suffix.dead(rest); at++)
          rest = suffix.append(rest, static_cast<std::uint8_t>(text_[at]));
        if (suffix.accepting(rest)) break;
      }
      state = body.append(state, static_cast<std::uint8_t>(text_[middle]));
    }
    if (!captured.suffix_name.empty()) found.push_back({captured.suffix_name, text_of(middle, item.end)});
  }
  if (!captured.name.empty()) found.push_back({captured.name, text_of(item.origin, middle)});
}

/// Returns a part of the text without special tokens.
std::string Derivation::text_of(std::uint32_t from, std::uint32_t to) const {
  std::string text;
  for (std::uint32_t at = from; at < to;)
    if (text_[at] == kTokenMark && !grammar_.tokens().empty())
      at += kTokenBytes;
    else
      text += text_[at++];
  return text;
}

}  // namespace

std::vector<Capture> Engine::captures(std::string_view text) {
  Derivation derivation(grammar_, text);
  if (derivation.read(start_)) return derivation.captures();
  log("warning: the text is too long to find its captures\n");
  return {};
}

}  // namespace aici::cfg
