// Removes look-arounds from an automaton, and the assertions beside them.
//
// A look-ahead is a condition on the rest of the text, as the match itself is. So a new state is a set of conditions
// that hold together: from this old state on, the end can be reached, or it cannot. (This makes a nondeterministic
// automaton of an alternating one.) A look-ahead that is passed adds a condition. A condition that is met, such as a
// look-ahead whose body has ended, is dropped.
//
// A look-behind runs from the start of the text: the new state has the old states that the body may be in, and when the
// look-behind is passed, it is known whether one of them is the end. Where a look-ahead inside its body is passed, both
// results are tried: the one that is tried becomes a condition, too.
//
// As in assertions.cpp, the sides of a position are known, so it is known which assertions hold.
#include <algorithm>
#include <span>

#include "passes.hpp"
#include "sort.hpp"

namespace aici::regex {
namespace {

using Op = NfaState::Op;

/// Twice the number of an old state from which the end can be reached; one more if it cannot be reached.
using Condition = std::uint32_t;
constexpr Condition condition(NfaId state, bool negated) { return state * 2u + (negated ? 1 : 0); }
constexpr Condition opposite(Condition c) { return c ^ 1; }
constexpr NfaId state_of(Condition c) { return static_cast<NfaId>(c / 2); }
constexpr bool is_negated(Condition c) { return c % 2 != 0; }

/// Sorted, each item once.
using List = std::vector<std::uint32_t>;

bool contains(const List& list, std::uint32_t item) { return std::ranges::binary_search(list, item); }

/// Returns false if the list has the item.
bool insert(List* list, std::uint32_t item) {
  const auto at = std::lower_bound(list->begin(), list->end(), item);
  if (at != list->end() && *at == item) return false;
  list->insert(at, item);
  return true;
}

/// The work after which a pattern is too large: less than a second. What is stored counts more, which bounds memory.
constexpr std::size_t kMaxSteps = 12'000'000;
/// The same for combinations of conditions at one position, and for the edges of a new state.
constexpr std::size_t kMaxCombinations = 30'000;

class LookResolver {
 public:
  LookResolver(const Nfa& nfa, Sides sides, KindSets* sets, std::uint32_t most)
      : nfa_(nfa), sides_(std::move(sides)), sets_(*sets), states_(sets, most) {}

  bool run(Nfa* out);

 private:
  /// What is known about an old state without any text.
  struct Facts {
    bool met = false;          ///< the end of a look-around can be reached without a condition
    bool sensitive = false;    ///< depends on the character before it
    std::uint64_t needs = 0;   ///< the look-behinds that can be passed from it, and those inside them
    std::uint16_t behind = 0;  ///< the look-behind that it belongs to
  };
  /// What a new state stands for.
  struct Place {
    std::size_t side = Sides::kEdge;
    std::uint64_t needs = 0;  ///< of the conditions
    List conditions;
    List threads;  ///< the states that look-behinds are in
    bool operator==(const Place&) const = default;
    std::uint32_t hash() const {
      Hasher hash;
      hash.add(static_cast<std::uint32_t>(side));
      for (const Condition c : conditions) hash.add(c);
      for (const std::uint32_t thread : threads) hash.add(~thread);
      return hash.bits();
    }
    /// Returns whether each text that is allowed from `other` is allowed from here: there are fewer conditions.
    bool covers(const Place& other) const {
      return conditions.size() < other.conditions.size() && side == other.side && threads == other.threads &&
             std::ranges::includes(other.conditions, conditions);
    }
  };
  /// Characters, as bits, and where they lead.
  struct Edge {
    Place place;
    List kinds;
  };
  /// A position between two characters: the sides of it, and the look-behinds that match up to it.
  struct Position {
    Side left;
    std::size_t right = Sides::kEdge;
    std::uint64_t behind = 0;
  };
  /// A way through states without characters to `state`, on which further conditions have to hold.
  struct Way {
    NfaId state;
    List held;
    std::uint32_t before;  ///< the previous way to the same state
  };
  /// Conditions of a position that are being resolved, and those on the next character that result: each of `must` has
  /// to take it, and if one of `never` takes it, its next state must not reach the end.
  struct Task {
    List open, done, must, never;
  };
  /// Characters with the same next place.
  struct Part {
    List kinds;  ///< as bits
    List conditions, threads;
  };

  static std::uint64_t bit(std::uint16_t look) { return std::uint64_t{1} << (look - 1); }

  void find_facts();
  bool make_place(const List& conditions, const List& threads, std::size_t side, Place* place) const;
  NfaId get(const Place& place);
  void resolve(const Place& place, NfaId into);
  void drop_covered();
  void resolve_tried(const Place& place, std::size_t right, const List& tried, std::vector<List>* others);
  bool follow_behinds(const Place& place, const List& tried, Position* at, List* next, NfaId* ask);
  void find_ways(NfaId from, const Position& at);
  void add_way(NfaId state, const List& held);
  void work_on(Task task, const Position& at, std::vector<Task>* tasks);
  void take(const Task& task, std::size_t right, const List& threads);
  void divide(std::vector<Part>* parts, NfaId state, Condition next, bool is_thread);
  bool meets(KindSetId kinds, std::size_t right) const;
  bool too_large() const { return steps_ > kMaxSteps || states_.overflow() || sets_.overflow(); }

  const Nfa& nfa_;
  const Sides sides_;
  KindSets& sets_;
  NfaStates states_;
  std::vector<Facts> facts_;
  std::vector<NfaId> bodies_;  ///< of look-behinds
  std::vector<Place> places_;
  std::vector<NfaId> made_;  ///< the new state of each place
  HashIndex ids_;
  std::vector<Way> ways_;
  std::vector<std::uint32_t> last_way_;  ///< per old state, one more than its last way; 0: none
  std::size_t steps_ = 0;
  /// What resolve() has found, and whether the text may end.
  std::vector<Edge> edges_;
  HashIndex edge_ids_;
  bool matches_ = false;
};

void LookResolver::find_facts() {
  facts_.resize(nfa_.states.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t id = 0; id < nfa_.states.size(); id++) {
      if (!nfa_.live[id]) continue;
      const NfaState& s = nfa_.states[id];
      const Facts &out = facts_[s.out], &alt = facts_[s.alt], old = facts_[id];
      Facts& now = facts_[id];
      switch (s.op) {
        case Op::kMatch: break;
        case Op::kKinds: now.needs = out.needs, now.behind = out.behind; break;
        case Op::kSplit:
          now.met = out.met || alt.met, now.sensitive = out.sensitive || alt.sensitive;
          now.needs = out.needs | alt.needs, now.behind = std::max(out.behind, alt.behind);
          break;
        case Op::kAssert: now.sensitive = true, now.needs = out.needs, now.behind = out.behind; break;
        case Op::kAhead:
        case Op::kNotAhead:
          now.sensitive = out.sensitive || alt.sensitive, now.needs = out.needs | alt.needs, now.behind = out.behind;
          break;
        case Op::kBehind:
        case Op::kNotBehind:
          now.sensitive = out.sensitive, now.needs = out.needs | alt.needs | bit(s.look()), now.behind = out.behind;
          bodies_.resize(std::max<std::size_t>(bodies_.size(), s.look() + 1u));
          bodies_[s.look()] = s.alt;
          break;
        case Op::kLookEnd: now.met = true, now.behind = s.look(); break;
      }
      changed |= now.met != old.met || now.sensitive != old.sensitive || now.needs != old.needs ||
                 now.behind != old.behind;
    }
  }
}

bool LookResolver::run(Nfa* out) {
  find_facts();
  last_way_.resize(nfa_.states.size());
  Place first;
  make_place({condition(nfa_.start, false)}, {}, Sides::kEdge, &first);
  const NfaId start = get(first);
  for (std::size_t i = 0; i < places_.size() && !too_large(); i++) resolve(Place(places_[i]), made_[i]);
  if (too_large()) return false;
  *out = states_.finish(start);
  return true;
}

/// Makes the place with some conditions and `side` to their left. Returns false if they cannot hold together.
bool LookResolver::make_place(const List& conditions, const List& threads, std::size_t side, Place* out) const {
  Place& place = *out;
  bool sensitive = false;
  for (const Condition c : conditions) {
    const NfaId state = state_of(c);
    const Facts& facts = facts_[state];
    if (!nfa_.live[state] || facts.met) {
      if (nfa_.live[state] == is_negated(c)) return false;
      continue;
    }
    if (!place.conditions.empty() && place.conditions.back() == opposite(c)) return false;
    place.conditions.push_back(c);
    place.needs |= facts.needs, sensitive |= facts.sensitive;
  }
  for (std::uint16_t look = 1; look < bodies_.size(); look++)
    if (place.needs & bit(look)) sensitive |= facts_[bodies_[look]].sensitive;
  for (const NfaId thread : threads)
    if (nfa_.live[thread] && (place.needs & bit(facts_[thread].behind)) != 0) {
      place.threads.push_back(thread);
      sensitive |= facts_[thread].sensitive;
    }
  if (sensitive) place.side = side;
  return true;
}

/// Returns the new state for a place.
NfaId LookResolver::get(const Place& place) {
  const std::uint32_t hash = place.hash();
  const std::uint32_t known = ids_.find(hash, [&](std::uint32_t i) { return places_[i] == place; });
  if (known != HashIndex::kNone) return made_[known];
  steps_ += 8 * (place.conditions.size() + place.threads.size());
  ids_.insert(hash, static_cast<std::uint32_t>(places_.size()));
  places_.push_back(place);
  made_.push_back(states_.open());
  return made_.back();
}

void LookResolver::resolve(const Place& place, NfaId into) {
  edges_.clear();
  edge_ids_.clear();
  matches_ = false;
  for (std::size_t right = 0; right < sides_.sides.size(); right++) {
    std::vector<List> tried(1);
    while (!tried.empty() && !too_large()) {
      const List now = std::move(tried.back());
      tried.pop_back();
      resolve_tried(place, right, now, &tried);
    }
  }
  NfaId out = matches_ ? Nfa::kMatch : states_.kinds(kNoKinds, Nfa::kMatch);
  drop_covered();
  for (const auto& [next, kinds] : edges_) {
    const KindSetId set = sets_.add(kinds);
    if (set != kNoKinds) out = states_.split(states_.kinds(set, get(next)), out);
  }
  states_.fill(into, out);
}

/// A character that leads to a place need not lead to one with more conditions, too.
void LookResolver::drop_covered() {
  std::size_t least = SIZE_MAX;
  for (const Edge& edge : edges_) least = std::min(least, edge.place.conditions.size());
  for (Edge& edge : edges_) {
    if (edge.place.conditions.size() == least) continue;
    for (const Edge& other : edges_) {
      steps_++;
      if (!other.place.covers(edge.place)) continue;
      for (std::size_t w = 0; w < edge.kinds.size(); w++) edge.kinds[w] &= ~other.kinds[w];
    }
  }
}

/// Resolves a place with a certain side to its right, and with `tried` look-aheads inside look-behinds. If one more has
/// to be tried, adds both of its results to `others`.
void LookResolver::resolve_tried(const Place& place, std::size_t right, const List& tried, std::vector<List>* others) {
  Position at{.left = sides_.sides[place.side], .right = right};
  List threads;
  NfaId ask = 0;
  if (!follow_behinds(place, tried, &at, &threads, &ask)) {
    steps_ += 16 + 8 * tried.size();
    for (const bool negated : {true, false}) {
      others->push_back(tried);
      insert(&others->back(), condition(ask, negated));
    }
    return;
  }
  std::vector<Task> tasks(1);
  tasks[0].open = place.conditions;
  for (const Condition c : tried) insert(&tasks[0].open, c);
  while (!tasks.empty() && tasks.size() <= kMaxCombinations && !too_large()) {
    Task task = std::move(tasks.back());
    tasks.pop_back();
    if (!task.open.empty())
      work_on(std::move(task), at, &tasks);
    else if (right == Sides::kEdge)
      matches_ = true;
    else
      take(task, right, threads);
  }
  if (!tasks.empty()) steps_ = kMaxSteps + 1;
}

/// Finds out which look-behinds match up to here, and the states in which they take the next character. Returns false
/// and sets `ask` if that depends on a look-ahead that has not been tried.
bool LookResolver::follow_behinds(const Place& place, const List& tried, Position* at, List* next, NfaId* ask) {
  // inner ones, which the outer ones pass, have higher numbers
  for (auto look = static_cast<std::uint16_t>(bodies_.size() - 1); look >= 1 && !bodies_.empty(); look--) {
    if ((place.needs & bit(look)) == 0) continue;
    List seen;
    std::vector<NfaId> stack{bodies_[look]};
    for (const NfaId thread : place.threads)
      if (facts_[thread].behind == look) stack.push_back(thread);
    while (!stack.empty()) {
      const NfaId id = stack.back();
      stack.pop_back();
      if (!nfa_.live[id] || !insert(&seen, id)) continue;
      steps_++;
      const NfaState& s = nfa_.states[id];
      switch (s.op) {
        case Op::kMatch: break;
        case Op::kKinds: insert(next, id); break;
        case Op::kSplit: stack.push_back(s.out), stack.push_back(s.alt); break;
        case Op::kAssert:
          if (assertion_holds(s.assertion, at->left, sides_.sides[at->right])) stack.push_back(s.out);
          break;
        case Op::kAhead:
        case Op::kNotAhead:
          if (contains(tried, condition(s.alt, s.op == Op::kNotAhead))) {
            stack.push_back(s.out);
          } else if (!contains(tried, condition(s.alt, s.op == Op::kAhead))) {
            *ask = s.alt;
            return false;
          }
          break;
        case Op::kBehind:
        case Op::kNotBehind:
          if (((at->behind & bit(s.look())) != 0) == (s.op == Op::kBehind)) stack.push_back(s.out);
          break;
        case Op::kLookEnd: at->behind |= bit(look); break;
      }
    }
  }
  return true;
}

/// Adds a way unless another one to the same state has no further conditions.
void LookResolver::add_way(NfaId state, const List& held) {
  if (!nfa_.live[state]) return;
  for (std::uint32_t i = last_way_[state]; i != 0; i = ways_[i - 1].before) {
    steps_++;
    if (std::ranges::includes(held, ways_[i - 1].held)) return;
  }
  steps_ += 16 + 4 * held.size();
  ways_.push_back({state, held, last_way_[state]});
  last_way_[state] = static_cast<std::uint32_t>(ways_.size());
}

/// Sets ways_ to those from a state to states that end or take the next character.
void LookResolver::find_ways(NfaId from, const Position& at) {
  ways_.clear();
  add_way(from, {});
  for (std::size_t i = 0; i < ways_.size() && !too_large(); i++) {
    const NfaState& s = nfa_.states[ways_[i].state];
    List held = ways_[i].held;
    switch (s.op) {
      case Op::kSplit: add_way(s.out, held), add_way(s.alt, held); break;
      case Op::kAssert:
        if (assertion_holds(s.assertion, at.left, sides_.sides[at.right])) add_way(s.out, held);
        break;
      case Op::kAhead:
      case Op::kNotAhead:
        insert(&held, condition(s.alt, s.op == Op::kNotAhead));
        add_way(s.out, held);
        break;
      case Op::kBehind:
      case Op::kNotBehind:
        if (((at.behind & bit(s.look())) != 0) == (s.op == Op::kBehind)) add_way(s.out, held);
        break;
      default: break;
    }
  }
  for (const Way& way : ways_) last_way_[way.state] = 0;
  std::erase_if(ways_, [&](const Way& way) {
    const NfaState& s = nfa_.states[way.state];
    const bool ends = s.op == Op::kLookEnd || (s.op == Op::kMatch && at.right == Sides::kEdge);
    return !ends && !(s.op == Op::kKinds && meets(s.kinds, at.right));
  });
}

/// Resolves one open condition of a task, and adds the tasks that are left.
void LookResolver::work_on(Task task, const Position& at, std::vector<Task>* tasks) {
  const Condition c = task.open.back();
  task.open.pop_back();
  if (contains(task.done, opposite(c))) return;
  if (!insert(&task.done, c)) return tasks->push_back(std::move(task));
  find_ways(state_of(c), at);
  const auto cost = [](const Task& t) { return 12 + t.open.size() + t.done.size() + t.must.size() + t.never.size(); };
  if (!is_negated(c)) {
    for (const Way& way : ways_) {
      steps_ += cost(task);
      Task& one = tasks->emplace_back(task);
      if (nfa_.states[way.state].op == Op::kKinds) insert(&one.must, way.state);
      for (const Condition further : way.held) insert(&one.open, further);
    }
    return;
  }
  // each way has to fail: at its state, or at one of its further conditions
  std::vector<Task> left{std::move(task)};
  for (const Way& way : ways_) {
    const bool takes = nfa_.states[way.state].op == Op::kKinds;
    std::vector<Task> next;
    for (Task& before : left) {
      if (next.size() > kMaxCombinations) steps_ = kMaxSteps + 1;
      if (too_large()) return;
      const auto has = [&](Condition c) { return contains(before.open, c) || contains(before.done, c); };
      steps_ += cost(before);
      if ((takes && contains(before.never, way.state)) ||
          std::ranges::any_of(way.held, [&](Condition further) { return has(opposite(further)); })) {
        next.push_back(std::move(before));  // it fails already
        continue;
      }
      for (const Condition further : way.held) {
        if (has(further)) continue;
        steps_ += cost(before);
        insert(&next.emplace_back(before).open, opposite(further));
      }
      if (!takes) continue;
      insert(&before.never, way.state);
      next.push_back(std::move(before));
    }
    left = std::move(next);
  }
  for (Task& one : left) tasks->push_back(std::move(one));
}

bool LookResolver::meets(KindSetId kinds, std::size_t right) const {
  const auto a = sets_[kinds], b = sets_[sides_.kinds[right]];
  for (std::size_t i = 0; i < a.size(); i++)
    if (a[i] & b[i]) return true;
  return false;
}

/// Divides the parts by whether a character is taken by `state`; if it is, `next` is added.
void LookResolver::divide(std::vector<Part>* parts, NfaId state, std::uint32_t next, bool is_thread) {
  const auto kinds = sets_[nfa_.states[state].kinds];
  for (std::size_t i = parts->size(); i-- > 0;) {
    Part taken = (*parts)[i];
    steps_ += kinds.size() + taken.conditions.size() + taken.threads.size();
    bool any = false, all = true;
    for (std::size_t w = 0; w < kinds.size(); w++) {
      taken.kinds[w] &= kinds[w];
      any |= taken.kinds[w] != 0, all &= taken.kinds[w] == (*parts)[i].kinds[w];
    }
    if (!any) continue;
    insert(is_thread ? &taken.threads : &taken.conditions, next);
    if (all) {
      (*parts)[i] = std::move(taken);
    } else {
      for (std::size_t w = 0; w < kinds.size(); w++) (*parts)[i].kinds[w] &= ~kinds[w];
      parts->push_back(std::move(taken));
    }
  }
}

/// Adds to edges_ where the characters of a side lead.
void LookResolver::take(const Task& task, std::size_t right, const List& threads) {
  std::vector<Part> parts(1);
  append(&parts[0].kinds, sets_[sides_.kinds[right]]);
  std::uint64_t needs = 0;
  for (const NfaId state : task.must) {
    const NfaState& s = nfa_.states[state];
    for (std::size_t w = 0; w < parts[0].kinds.size(); w++) parts[0].kinds[w] &= sets_[s.kinds][w];
    insert(&parts[0].conditions, condition(s.out, false));
    needs |= facts_[s.out].needs;
  }
  steps_ += (1 + task.must.size()) * parts[0].kinds.size();
  if (std::ranges::all_of(parts[0].kinds, [](std::uint32_t word) { return word == 0; })) return;
  for (const NfaId state : task.never) {
    divide(&parts, state, condition(nfa_.states[state].out, true), false);
    needs |= facts_[nfa_.states[state].out].needs;
  }
  for (const NfaId thread : threads)
    if ((needs & bit(facts_[thread].behind)) != 0) divide(&parts, thread, nfa_.states[thread].out, true);
  for (const Part& part : parts) {
    Place next;
    if (!make_place(part.conditions, part.threads, right, &next)) continue;
    const std::uint32_t hash = next.hash();
    std::uint32_t edge = edge_ids_.find(hash, [&](std::uint32_t i) { return edges_[i].place == next; });
    if (edge == HashIndex::kNone) {
      edge = static_cast<std::uint32_t>(edges_.size());
      edge_ids_.insert(hash, edge);
      edges_.push_back({std::move(next), List(part.kinds.size())});
      if (edges_.size() > kMaxCombinations) steps_ = kMaxSteps + 1;
    }
    for (std::size_t w = 0; w < part.kinds.size(); w++) edges_[edge].kinds[w] |= part.kinds[w];
  }
}

}  // namespace

bool resolve_looks(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets, std::uint32_t most,
                   Nfa* nfa) {
  const Nfa from = std::move(*nfa);
  return LookResolver(from, find_sides(classes, alphabet, sets), sets, most).run(nfa);
}

}  // namespace aici::regex
