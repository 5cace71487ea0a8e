#include "aici/detail/cfg/columns.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace aici::cfg {

Columns::Columns(Network* network, const Grammar* grammar, const Limits& limits)
    : network_(network), grammar_(grammar), ignored_(grammar->ignored()), most_threads_(limits.threads),
      callers_(network->num_rules()) {
  constexpr std::size_t kUsual = 2048;
  threads_.reserve(4 * kUsual), steps_.reserve(8 * kUsual), columns_.reserve(kUsual), frames_.reserve(kUsual);
  std::ranges::sort(ignored_);
  frames_.push_back({0, 0});
  columns_.push_back({{0, 0}, 0});
}

/// Returns the number of a sorted set.
template <class Sets, class SetOf>
std::uint32_t Columns::intern(std::span<const Thread> wanted, HashIndex& ids, Sets& sets, SetOf set_of) {
  Hasher hash;
  for (const Thread& thread : wanted) hash.add(thread.place), hash.add(thread.frame);
  const auto same = [&](std::uint32_t i) { return std::ranges::equal(threads(set_of(sets[i])), wanted); };
  if (const std::uint32_t known = ids.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const auto number = static_cast<std::uint32_t>(sets.size());
  const Set set{static_cast<std::uint32_t>(threads_.size()), static_cast<std::uint32_t>(wanted.size())};
  threads_.insert(threads_.end(), wanted.begin(), wanted.end());
  sets.push_back({set});
  ids.insert(hash.bits(), number);
  return number;
}

Columns::Frame Columns::frame(std::vector<Thread>& callers) {
  std::ranges::sort(callers);
  callers.erase(std::unique(callers.begin(), callers.end()), callers.end());
  return intern(callers, frame_ids_, frames_, [](const Set& set) { return set; });
}

Column Columns::initial() {
  push({network_->start(), 0});
  return join();
}

bool Columns::accepting(Column column) const {
  const auto all = threads(columns_[column].threads);
  return !all.empty() && all.front() == Thread{kEnd, 0};
}

void Columns::push(Thread thread) {
  constexpr std::size_t kFew = 16;
  if (next_.size() >= most_threads_) {
    too_many_ = true;
    return;
  }
  const auto hash = [](Thread it) {
    Hasher hasher;
    hasher.add(it.place), hasher.add(it.frame);
    return hasher.bits();
  };
  if (next_.size() < kFew) {
    if (std::ranges::find(next_, thread) != next_.end()) return;
  } else {
    if (next_.size() == kFew) {
      next_ids_.clear();
      for (std::uint32_t i = 0; i < kFew; i++) next_ids_.insert(hash(next_[i]), i);
    }
    const auto same = [&](std::uint32_t i) { return next_[i] == thread; };
    if (next_ids_.find(hash(thread), same) != HashIndex::kNone) return;
    next_ids_.insert(hash(thread), static_cast<std::uint32_t>(next_.size()));
  }
  next_.push_back(thread);
}

void Columns::add(Column column, std::span<const Terminal> terminals) {
  if (columns_[column].first_step == kUnknown) find_steps(column);
  const Data data = columns_[column];
  const auto first = steps_.begin() + data.first_step, last = first + data.num_steps;
  for (const Terminal terminal : terminals) {
    auto step = std::lower_bound(first, last, terminal, [](const Step& s, Terminal t) { return s.terminal < t; });
    for (; step != last && step->terminal == terminal; ++step) push(step->next);
    if (std::ranges::binary_search(ignored_, terminal))
      for (const Thread& thread : threads(data.threads))
        if (network_->longest(thread.place)) push(thread);
  }
}

void Columns::add(Column column) {
  for (const Thread& thread : threads(columns_[column].threads)) push(thread);
}

void Columns::finish_rules() {
  // where a rule ends, its callers continue
  for (std::size_t i = 0; i < next_.size(); i++) {
    const Thread thread = next_[i];
    if (!network_->exits(thread.place).ends) continue;
    if (thread.frame == 0) push({kEnd, 0});
    const Set callers = frames_[thread.frame];
    for (std::uint32_t j = 0; j < callers.count; j++) push(threads_[callers.first + j]);
  }
  std::erase_if(next_, [&](const Thread& thread) {
    return network_->exits(thread.place).only_end() && thread != Thread{kEnd, 0};
  });
  std::ranges::sort(next_);
}

Column Columns::column_of(std::span<const Thread> threads) {
  return threads.empty() ? 0 : intern(threads, column_ids_, columns_, [](const Data& it) { return it.threads; });
}

Column Columns::join() {
  finish_rules();
  const Column column = column_of(next_);
  next_.clear();
  return column;
}

Column Columns::join(Column* arrays) {
  *arrays = 0;
  if (!network_->has_arrays()) return join();
  finish_rules();
  const auto others = std::stable_partition(next_.begin(), next_.end(),
                                            [&](const Thread& thread) { return network_->begins_array(thread.place); });
  *arrays = column_of({next_.begin(), others});
  const Column column = column_of({others, next_.end()});
  next_.clear();
  return column;
}

/// Adds a call of `rule`, which continues at `next` in `frame`.
void Columns::call(Rule rule, Place next, Frame frame) {
  std::vector<Thread>& callers = callers_[rule];
  if (callers.empty()) {
    called_.push_back(network_->rank(rule));
    std::ranges::push_heap(called_, std::greater());
  }
  if (!network_->is_tail(next)) {
    callers.push_back({next, frame});
  } else if (frame == 0) {
    callers.push_back({kEnd, 0});
  } else {
    const auto of_caller = threads(frames_[frame]);
    callers.insert(callers.end(), of_caller.begin(), of_caller.end());
  }
}

/// Adds what follows at a place with these exits, for a thread in `frame`.
void Columns::enter(Network::Exits exits, Frame frame) {
  for (std::uint32_t i = exits.first; i < exits.calls; i++)
    found_.push_back({network_->edge(i).label, {network_->edge(i).next, frame}});
  for (std::uint32_t i = exits.calls; i < exits.last; i++) call(network_->edge(i).label, network_->edge(i).next, frame);
}

void Columns::find_steps(Column column) {
  const auto may_ignore = [&](const Thread& thread) { return network_->longest(thread.place); };
  found_.clear(), after_calls_.clear();
  const Set set = columns_[column].threads;
  for (std::uint32_t i = 0; i < set.count; i++) {
    const Thread thread = threads_[set.first + i];
    enter(network_->exits(thread.place), thread.frame);
  }
  while (!called_.empty()) {
    std::ranges::pop_heap(called_, std::greater());
    const Rule rule = network_->rule_of_rank(called_.back());
    called_.pop_back();
    const Frame callers = frame(callers_[rule]);
    if (network_->longest(kEnd) && grammar_->lexemes(rule) == Lexemes::kAnywhere)
      std::ranges::copy_if(callers_[rule], std::back_inserter(after_calls_), may_ignore);
    callers_[rule].clear();
    enter(network_->entry(rule), callers);
  }
  std::ranges::sort(found_);
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  Data& data = columns_[column];
  data.first_step = static_cast<std::uint32_t>(steps_.size());
  data.num_steps = static_cast<std::uint32_t>(found_.size());
  steps_.insert(steps_.end(), found_.begin(), found_.end());
  const auto find_viable = [&](bool longest) {
    for (const Step& step : found_)
      if (grammar_->terminals().longest(step.terminal) == longest)
        if (viable_.size() == data.first_viable || viable_.back() != step.terminal) viable_.push_back(step.terminal);
    return static_cast<std::uint32_t>(viable_.size());
  };
  data.first_viable = static_cast<std::uint32_t>(viable_.size());
  data.first_longest = find_viable(false);
  data.end_viable = find_viable(true);
  data.after_calls = {static_cast<std::uint32_t>(threads_.size()), static_cast<std::uint32_t>(after_calls_.size())};
  threads_.insert(threads_.end(), after_calls_.begin(), after_calls_.end());
  if (!ignored_.empty() && std::ranges::any_of(threads(data.threads), may_ignore)) {
    viable_.insert(viable_.end(), ignored_.begin(), ignored_.end());
    const auto first = viable_.begin() + data.first_longest;
    std::sort(first, viable_.end());
    viable_.erase(std::unique(first, viable_.end()), viable_.end());
    data.end_viable = static_cast<std::uint32_t>(viable_.size());
  }
}

std::span<const Terminal> Columns::viable(Column column, Lexemes lexemes) {
  if (columns_[column].first_step == kUnknown) find_steps(column);
  const Data& data = columns_[column];
  const bool longest = lexemes == Lexemes::kLongest;
  const Terminal* first = viable_.data() + (longest ? data.first_longest : data.first_viable);
  return {first, viable_.data() + (longest ? data.end_viable : data.first_longest)};
}

Column Columns::after_calls(Column column) {
  if (columns_[column].first_step == kUnknown) find_steps(column);
  for (const Thread& thread : threads(columns_[column].after_calls)) push(thread);
  return join();
}

std::size_t Columns::bytes() const {
  return threads_.size() * sizeof(Thread) + frames_.size() * sizeof(Set) + columns_.size() * sizeof(Data) +
         steps_.size() * sizeof(Step) + viable_.size() * sizeof(Terminal) + frame_ids_.bytes() + column_ids_.bytes();
}

void Columns::keep_only(std::span<Column> kept) {
  Columns fresh(network_, grammar_, Limits{.threads = most_threads_});
  // a frame refers only to frames that were made before it
  std::vector<bool> needed(frames_.size());
  const auto need = [&](Set set) {
    for (const Thread& thread : threads(set)) needed[thread.frame] = true;
  };
  for (const Column column : kept) need(columns_[column].threads);
  for (std::size_t i = frames_.size(); i-- > 1;)
    if (needed[i]) need(frames_[i]);
  std::vector<Place> made;
  const auto note = [&](Set set) {
    for (const Thread& thread : threads(set))
      if (network_->is_made(thread.place)) made.push_back(thread.place);
  };
  for (const Column column : kept) note(columns_[column].threads);
  for (std::size_t i = 1; i < frames_.size(); i++)
    if (needed[i]) note(frames_[i]);
  std::ranges::sort(made);
  made.erase(std::unique(made.begin(), made.end()), made.end());
  std::vector<Place> new_places = made;
  network_->keep_only(new_places);
  const auto new_place = [&](Place place) {
    return network_->is_made(place) ? new_places[std::ranges::lower_bound(made, place) - made.begin()] : place;
  };
  std::vector<Frame> renamed(frames_.size());
  std::vector<Thread> set;
  const auto rename = [&](Set from) {
    set.clear();
    for (const Thread& thread : threads(from)) set.push_back({new_place(thread.place), renamed[thread.frame]});
  };
  for (std::size_t i = 1; i < frames_.size(); i++)
    if (needed[i]) rename(frames_[i]), renamed[i] = fresh.frame(set);
  for (Column& column : kept) {
    if (column == 0) continue;
    rename(columns_[column].threads);
    fresh.next_ = set;
    column = fresh.join();
  }
  fresh.too_many_ = too_many_;
  *this = std::move(fresh);
}

}  // namespace aici::cfg
