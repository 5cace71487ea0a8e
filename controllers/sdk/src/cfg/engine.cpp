// The context-free engine: reads a text byte by byte, in all ways that the grammar allows.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"
#include "aici/vocabulary.hpp"
#include "../regex/unicode.hpp"

namespace aici::cfg {

Engine::Engine(Grammar grammar, const Limits& limits) : Engine(grammar.take_known(), std::move(grammar), limits) {}

Engine::Engine(std::shared_ptr<KnownTerminals> known, Grammar&& grammar, const Limits& limits)
    : grammar_(std::move(grammar)),
      limits_(limits),
      scanner_(known ? Scanner(std::move(known->scanner), &grammar_.terminals()) : Scanner(&grammar_.terminals())),
      well_formed_(grammar_.terminals().well_formed()) {
  if (known) inner_masks_ = std::move(known->inner_masks);
  begin_plain();
  constexpr std::size_t kUsual = 8192;
  rows_.reserve(), readings_.reserve(kUsual), several_.reserve(kUsual / 8);
}

const char* Engine::start(Rule rule) {
  start_ = rule;
  if (const char* problem = network_.build(grammar_, rule, limits_)) return problem;
  columns_ = std::make_unique<Columns>(&network_, &grammar_, limits_);
  if (!grammar_.ignored().empty()) find_blank();
  initial_ = begin(columns_->initial());
  return failure();
}

Grammar Engine::take_terminals() {
  grammar_.forget_rules(std::make_shared<KnownTerminals>(std::move(scanner_), std::move(inner_masks_)));
  return std::move(grammar_);
}

/// A byte that continues no terminal makes the text invalid, unless a lexeme may end before it.
void Engine::begin_plain() {
  set_plain(Scanner::kDead, grammar_.terminals().any_longest() ? Plain::kNo : Plain::kDead);
}

Engine::State Engine::begin(Column column) {
  if (column >= kMaxColumns) {
    full_ = true;
    return 0;
  }
  if (column >= begins_.size()) begins_.resize(std::max<std::size_t>(64, column * 3 / 2 + 1));
  if (begins_[column] == 0) {
    std::vector<Reading> readings;
    for (const Lexemes lexemes : {Lexemes::kAnywhere, Lexemes::kLongest}) {
      const std::span<const Terminal> viable = columns_->viable(column, lexemes);
      // where no terminal can follow, the text may still end
      if (viable.empty() && (lexemes == Lexemes::kAnywhere || !readings.empty())) continue;
      const Scanner::State scanner = scanner_.start(viable);
      if (scanner != Scanner::kDead) readings.push_back(pack(column, scanner));
    }
    const State state = state_of(readings);
    begins_[column] = state;
  }
  return begins_[column];
}

Engine::State Engine::begin(Column column, Scanner::State before) {
  const State state = begin(column);
  if (!scanner_.longest(before) && !scanner_.guarded(before)) return state;
  std::vector<Reading> readings;
  for (const Reading reading : this->readings(state)) {
    const Scanner::State scanner = reading != 0 ? scanner_.follow(scanner_of(reading), before) : Scanner::kDead;
    if (scanner != Scanner::kDead) readings.push_back(pack(column, scanner));
  }
  return state_of(readings);
}

bool Engine::is_plain(Scanner::State scanner) {
  if (plain(scanner) == Plain::kUnknown) {
    const bool yes = scanner_.longest(scanner) ? !scanner_.overshot(scanner) && has_exit(scanner)
                                               : !scanner_.accepting(scanner);
    set_plain(scanner, yes ? Plain::kYes : Plain::kNo);
  }
  return plain(scanner) == Plain::kYes;
}

void Engine::go_on(Column column, Scanner::State next, std::vector<Reading>& readings) {
  if (scanner_.accepting(next)) {
    columns_->add(column, scanner_.accepted(next));
    if (!scanner_.goes_on(next)) return;
    next = scanner_.silent(next);
  }
  readings.push_back(pack(column, next));
}

void Engine::begin_joined(std::vector<Reading>& readings, Scanner::State before) {
  Column arrays = 0;
  if (const Column column = columns_->join(&arrays); column != 0) {
    const State state = begin(column, before);
    const auto begun = this->readings(state);
    readings.insert(readings.end(), begun.begin(), begun.end());
  }
  if (arrays == 0 || array_level_ == kMaxArrayLevels) return;
  if (const State state = begin(arrays, before); state != 0) readings.push_back(kInArray | arrays_.begin(state));
}

Engine::State Engine::append_one(Reading from, std::uint8_t byte, Scanner::State next) {
  if (is_longest(from)) return append_longest(from, byte, next);
  if (next == Scanner::kDead) return 0;
  const Column column = column_of(from);
  if (is_plain(next)) return pack(column, next);
  const auto [at, is_new] = ends_.try_emplace(pack(column, next), 0);
  if (is_new) {
    std::vector<Reading> readings;
    go_on(column, next, readings);
    begin_joined(readings, next);
    at->second = state_of(readings);
  }
  return at->second;
}

/// Makes the state's row: most bytes end all readings.
void Engine::narrow(State state) {
  ByteSet next;
  for (const Reading reading : readings(state)) {
    if (may_end_lexeme(reading)) {
      next = ByteSet::all();
      break;
    }
    next.add(scanner_.next_bytes(scanner_of(reading)));
  }
  rows_.narrow(state & ~kSeveral, next);
}

/// Returns whether a byte that continues no terminal may be allowed.
bool Engine::may_end_lexeme(Reading reading) const {
  if (in_array(reading)) return true;
  const Scanner::State scanner = scanner_of(reading);
  return scanner_.longest(scanner) && scanner_.accepting(scanner);
}

Engine::State Engine::append_several(State state, std::uint8_t byte) {
  const auto all = readings(state);
  if (state < kMixed && !rows_.narrowed(state & ~kSeveral)) {
    narrow(state);
    if (rows_.find(state & ~kSeveral, byte) == 0) return 0;
  }
  const auto ends = [&](Reading reading) {
    return !may_end_lexeme(reading) && scanner_.append(scanner_of(reading), byte) == Scanner::kDead;
  };
  if (std::ranges::all_of(all, ends)) {
    if (state < kMixed) rows_.set(state & ~kSeveral, byte, 0);
    return 0;
  }
  std::vector<Reading> now(all.begin(), all.end()), next;
  const auto add = [&](State state) {
    const auto found = readings(state);
    if (state != 0) next.insert(next.end(), found.begin(), found.end());
  };
  end_lexemes(now, byte);
  // kLongest first: these readings use the columns, which then collect the ends of the others
  for (const bool longest : {true, false})
    for (const Reading reading : now) {
      if (in_array(reading) || is_guarded(reading)) continue;
      const Scanner::State scanner = scanner_.append(scanner_of(reading), byte);
      if (scanner == Scanner::kDead || is_longest(reading) != longest) continue;
      if (!longest)
        go_on(column_of(reading), scanner, next);
      else if (scanner_.overshot(scanner))
        read_lexeme(reading, byte, next);
      else if (goes_on_from(pack(column_of(reading), scanner)))
        next.push_back(pack(column_of(reading), scanner));
    }
  begin_joined(next);
  for (const Reading reading : now)
    if (is_guarded(reading) && is_longest(reading))
      read_lexeme(reading, byte, next);
    else if (in_array(reading) || is_guarded(reading))
      add(append(reading, byte));
  const State made = settle(next);
  if (state < kMixed) rows_.set(state & ~kSeveral, byte, made);
  return made;
}

Engine::State Engine::state_of(std::vector<Reading>& readings) {
  std::ranges::sort(readings);
  readings.erase(std::unique(readings.begin(), readings.end()), readings.end());
  if (readings.empty()) return 0;
  if (readings.size() == 1) return readings.front();
  Hasher hash;
  for (const Reading reading : readings) hash.add(reading);
  const bool mixed = in_array(readings.back());
  const State kind = mixed ? kMixed : kSeveral;
  std::vector<Several>& all = mixed ? mixed_ : several_;
  HashIndex& ids = mixed ? mixed_ids_ : ids_;
  const auto same = [&](std::uint32_t i) {
    return std::ranges::equal(std::span(readings_).subspan(all[i].first, all[i].count), readings);
  };
  if (const std::uint32_t known = ids.find(hash.bits(), same); known != HashIndex::kNone) return kind | known;
  if (all.size() >= (mixed ? kMaxMixed : kMaxSeveral)) {
    full_ = true;
    return 0;
  }
  const auto number = static_cast<std::uint32_t>(all.size());
  all.push_back({static_cast<std::uint32_t>(readings_.size()), static_cast<std::uint32_t>(readings.size())});
  readings_.insert(readings_.end(), readings.begin(), readings.end());
  if (!mixed) rows_.add();
  ids.insert(hash.bits(), number);
  return kind | number;
}

std::span<const Engine::Reading> Engine::readings(const State& state) const {
  if (state < kSeveral || (in_array(state) && state < kMixed)) return {&state, 1};
  const Several& several = this->several(state);
  return std::span(readings_).subspan(several.first, several.count);
}

bool Engine::accepting(State state) {
  if (state == 0) return false;
  return std::ranges::any_of(readings(state), [&](Reading reading) {
    if (in_array(reading)) return false;
    const bool fresh = scanner_.fresh(scanner_of(reading));
    const Column column = fresh ? column_of(reading) : is_longest(reading) ? after_lexeme(reading) : 0;
    return column != 0 && columns_->accepting(column);
  });
}

float Engine::temperature(State state) {
  float highest = 0;
  if (!grammar_.terminals().any_temperature()) return highest;
  const auto add = [&](Reading reading) {
    const float one = in_array(reading) ? 0 : scanner_.temperature(scanner_of(reading));
    if (one != 0 && (highest == 0 || one > highest)) highest = one;
  };
  const auto all = readings(state);
  for (const Reading reading : std::vector<Reading>(all.begin(), all.end())) {
    add(reading);
    if (const Column after = is_longest(reading) ? after_lexeme(reading) : 0; after != 0) {
      const State next = begin(after);
      for (const Reading begun : readings(next)) add(begun);
    }
  }
  return highest;
}

Engine::Loop Engine::loop(State state) {
  Loop found{0, kUnlimited};
  if (state == 0) return found;
  if (state < kSeveral) {
    found.signature = scanner_.loop_signature(scanner_of(state), &found.length);
    if (is_longest(state) && found.signature != 0 && !loop_lives(state, found.signature)) found.signature = 0;
    return found;
  }
  if (in_array(state) && state < kMixed) return loop_in_array(position_of(state));
  Several& several = this->several(state);
  if (!several.has_loop) {
    for (std::uint32_t i = 0; i < several.count; i++) {
      const Loop one = loop(readings_[several.first + i]);
      if (std::popcount(one.signature) > std::popcount(found.signature)) found = one;
    }
    several.has_loop = true;
    several.loop = found;
  }
  return several.loop;
}

Engine::Loop Engine::inner_loop(Scanner::State scanner) {
  Loop found{0, kUnlimited};
  found.signature = scanner_.loop_signature(scanner, &found.length);
  const bool lives = !scanner_.longest(scanner) || found.signature == 0 || loop_lives(pack(0, scanner), found.signature);
  if (!lives) found.signature = 0;
  return found;
}

const char* Engine::failure() const {
  if (full_) return "the grammar has too many states for one mask";
  if (const char* problem = columns_->failure()) return problem;
  if (const char* problem = network_.failure()) return problem;
  if (const char* problem = scanner_.failure()) return problem;
  return grammar_.terminals().failure();
}

std::size_t Engine::bytes() const {
  return network_.bytes() + columns_->bytes() + scanner_.bytes() + rows_.bytes() +
         readings_.size() * sizeof(Reading) + (ends_.size() + can_end_.size() + exits_.size() + loops_.size()) * 16 +
         arrays_.bytes() + mixed_.size() * sizeof(Several) + mixed_ids_.bytes();
}

// Between masks: keeps the readings of one state, and drops all others.

/// Lists the readings of a state, with those inside arrays.
std::vector<Engine::Kept> Engine::keep(State state, Keeping& keeping) const {
  std::vector<Kept> kept;
  if (state == 0) return kept;
  for (const Reading reading : readings(state)) {
    if (in_array(reading)) {
      const Arrays::Id position = position_of(reading);
      kept.push_back({0, position, keep(arrays_.at(position).state, keeping)});
      continue;
    }
    kept.push_back({keeping.columns.size(), Arrays::kNone, {}});
    keeping.columns.push_back(column_of(reading));
    keeping.scanners.push_back(scanner_of(reading));
  }
  return kept;
}

Engine::State Engine::restore(const std::vector<Kept>& kept, const Keeping& keeping, const Arrays& old) {
  std::vector<Reading> readings;
  for (const Kept& one : kept)
    readings.push_back(one.position == Arrays::kNone
                           ? pack(keeping.columns[one.number], keeping.scanners[one.number])
                           : kInArray | arrays_.copy(old, one.position, restore(one.inside, keeping, old)));
  return state_of(readings);
}

bool Engine::compact(State* state) {
  const bool many = columns_->size() > kMaxColumns / 4 || scanner_.crowded() ||
                    several_.size() > kMaxSeveral / 4 || mixed_.size() > kMaxMixed / 4 ||
                    arrays_.size() > kMaxPositions / 4;
  // before the first byte, everything that is missing can be built again
  const bool anew = *state == initial_ && (full_ || columns_->failure() || network_.failure() || scanner_.failure());
  if (*state == 0 || (!many && !anew && bytes() < most_kept_)) return false;
  Keeping keeping;
  const std::vector<Kept> now = keep(*state, keeping), at_start = keep(initial_, keeping);
  if (anew) full_ = false, columns_->forget_failure();
  columns_->keep_only(keeping.columns);
  scanner_.keep_only(keeping.scanners);
  begin_plain();
  begins_.clear(), ends_.clear(), can_end_.clear(), exits_.clear(), loops_.clear(), readings_.clear();
  several_.clear(), rows_.clear(), ids_.clear(), mixed_.clear(), mixed_ids_.clear();
  inner_masks_.clear();
  const Arrays old = std::exchange(arrays_, {});
  *state = restore(now, keeping, old);
  initial_ = restore(at_start, keeping, old);
  most_kept_ = std::max<std::size_t>(limits_.kept_bytes, 2 * bytes());  // what is needed stays
  return true;
}

namespace {

/// A set of characters, by their bytes in UTF-8 as a number. Most numbers that are not in it are found out at once.
class Characters {
 public:
  explicit Characters(const std::vector<std::uint32_t>& codepoints) {
    for (const std::uint32_t codepoint : codepoints) {
      std::string text;
      regex::encode_utf8(codepoint, &text);
      std::uint32_t number = 0;
      for (const char c : text) number = number << 8 | static_cast<std::uint8_t>(c);
      numbers_.push_back(number);
      maybe_[slot(number)] = true;
    }
    std::ranges::sort(numbers_);
  }
  bool has(std::uint32_t number) const { return maybe_[slot(number)] && std::ranges::binary_search(numbers_, number); }

 private:
  static std::uint32_t slot(std::uint32_t number) { return number * 0x9E3779B1u >> 22; }

  bool maybe_[1 << 10] = {};
  std::vector<std::uint32_t> numbers_;
};

}  // namespace

/// Finds the nodes at which rare characters end, by one pass over the nodes that have bytes from 0x80 on below them. Keeps
/// the last ones: most patterns have the same rare characters.
void Engine::find_rare_nodes() {
  [[clang::no_destroy]] static constinit std::vector<std::uint32_t> last, last_nodes;
  rare_known_ = true;
  const std::vector<std::uint32_t>& characters = grammar_.terminals().rare_characters();
  if (characters.empty()) return;
  if (characters == last) {
    rare_nodes_ = last_nodes;
    return;
  }
  const Characters rare(characters);
  const Vocabulary& vocab = vocabulary();
  std::uint32_t path[256] = {};  // the bytes of the character that a node is in
  const TrieNode* const nodes = vocab.nodes();
  for (std::uint32_t i = 1; i < vocab.num_nodes();) {
    const TrieNode& node = nodes[i];
    if ((node.signature & (kWellFormedUtf8 | kOtherBytes)) == 0) {
      i += node.subtree_size();
      continue;
    }
    const unsigned depth = node.depth();
    const std::uint32_t byte = node.byte(), number = byte < 0xC0 ? path[depth - 1] << 8 | byte : byte;
    path[depth] = number;
    if (rare.has(number)) rare_nodes_.push_back(i);
    i++;
  }
  last = characters, last_nodes = rare_nodes_;
}

std::optional<Parser> Parser::make(Grammar grammar, Rule start, std::string* problem, const Limits& limits) {
  auto engine = std::make_unique<Engine>(std::move(grammar), limits);
  if (const char* refused = engine->start(start)) {
    *problem = refused;
    return std::nullopt;
  }
  return Parser(std::move(engine));
}

Parser make_or_fail(Grammar grammar, Rule start) {
  grammar.terminals().set_byte_classes(vocabulary().classes());
  std::string problem;
  std::optional<Parser> made = Parser::make(std::move(grammar), start, &problem);
  if (!made) fail(problem);
  made->rare_nodes();  // now, once for all sequences
  return std::move(*made);
}

}  // namespace aici::cfg
