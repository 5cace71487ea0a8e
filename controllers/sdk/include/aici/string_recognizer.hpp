// string_recognizer.hpp - the functional string interface: a constraint that lists the allowed strings.
//
//   struct Moves {                            // a game: each position allows some moves
//     using State = Position;
//     State initial();
//     State append(State, std::string_view move);
//     std::vector<std::string> allowed(State);
//     std::vector<aici::SpecialToken> special_allowed(State);
//   };
//   class Player : public aici::RecognizerController<aici::StringStack<Moves>> ...
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/recognizer.hpp"
#include "aici/types.hpp"

namespace aici {

/// Required functions of a string recognizer:
///
///   State initial()                          the state before the first string
///   State append(state, string)              the state after one of the allowed strings
///   vector<string> allowed(state)            the strings that may follow; empty ones are ignored
///   vector<SpecialToken> special_allowed(state)
template <class R>
concept StringRecognizer =
    std::copyable<typename R::State> && requires(R& r, typename R::State state, std::string_view text) {
      { r.initial() } -> std::same_as<typename R::State>;
      { r.append(state, text) } -> std::same_as<typename R::State>;
      { r.allowed(state) } -> std::same_as<std::vector<std::string>>;
      { r.special_allowed(state) } -> std::same_as<std::vector<SpecialToken>>;
    };

/// A byte stack made from a string recognizer. If one allowed string is a prefix of another, it follows both.
template <StringRecognizer R>
class StringStack final : public Recognizer {
 public:
  using State = typename R::State;

  explicit StringStack(R recognizer) : r_(std::move(recognizer)) { restart(); }

  void push_byte(std::uint8_t byte) override { try_push_byte(byte); }

  bool try_push_byte(std::uint8_t byte) override {
    const std::size_t first = top_begin(), last = ways_.size(), lists = lists_.size();
    for (std::size_t i = first; i < last; i++) advance(ways_[i], byte, last);
    if (ways_.size() == last) {
      lists_.resize(lists);
      return false;
    }
    close_frame();
    return true;
  }

  void pop_bytes(std::uint32_t count) override {
    frames_.resize(frames_.size() - count);
    ways_.resize(frames_.back().ways_end);
    lists_.resize(frames_.back().lists_end);
  }

  void collapse() override {
    ways_.erase(ways_.begin(), ways_.begin() + static_cast<std::ptrdiff_t>(top_begin()));
    std::vector<std::vector<std::string>> used;
    for (Way& way : ways_) {  // each way has its own list, from the state that it entered
      used.push_back(std::move(lists_[way.list]));
      way.list = static_cast<std::uint32_t>(used.size() - 1);
    }
    lists_ = std::move(used);
    frames_.clear();
    close_frame();
  }

  void restart() {
    frames_.clear();
    ways_.clear();
    lists_.clear();
    enter(r_.initial());
    close_frame();
  }

  bool byte_allowed(std::uint8_t byte) override {
    if (!try_push_byte(byte)) return false;
    pop_bytes(1);
    return true;
  }

  bool special_allowed(SpecialToken token) override {
    for (std::size_t i = top_begin(); i < ways_.size(); i++) {
      if (ways_[i].matched != 0) continue;
      const std::vector<SpecialToken> allowed = r_.special_allowed(ways_[i].state);
      if (std::find(allowed.begin(), allowed.end(), token) != allowed.end()) return true;
    }
    return false;
  }

  R& recognizer() { return r_; }

 private:
  /// A reading of the bytes so far: the first `matched` bytes of the strings low .. high of a sorted list.
  struct Way {
    State state;
    std::uint32_t list, low, high, matched;
  };
  /// The ends of the ways after one byte, and of their lists, in `ways_` and `lists_`.
  struct Frame {
    std::size_t ways_end, lists_end;
  };

  std::size_t top_begin() const { return frames_.size() < 2 ? 0 : frames_[frames_.size() - 2].ways_end; }
  void close_frame() { frames_.push_back({ways_.size(), lists_.size()}); }

  void enter(State state) {
    std::vector<std::string> strings = r_.allowed(state);
    std::erase(strings, std::string());
    if (strings.empty() && r_.special_allowed(state).empty()) return;  // nothing can follow
    std::make_heap(strings.begin(), strings.end());
    std::sort_heap(strings.begin(), strings.end());  // a sixth of the code of std::sort
    strings.erase(std::unique(strings.begin(), strings.end()), strings.end());
    ways_.push_back(
        {state, static_cast<std::uint32_t>(lists_.size()), 0, static_cast<std::uint32_t>(strings.size()), 0});
    lists_.push_back(std::move(strings));
  }

  /// Advances a way by one byte and adds the result to the ways from `fresh` on.
  void advance(Way way, std::uint8_t byte, std::size_t fresh) {
    const auto at = [&](std::uint32_t i) {
      return static_cast<std::uint8_t>(lists_[way.list][i][way.matched]);
    };
    while (way.low < way.high && at(way.low) < byte) way.low++;
    while (way.high > way.low && at(way.high - 1) > byte) way.high--;
    if (way.low == way.high) return;
    way.matched++;
    if (lists_[way.list][way.low].size() == way.matched) {  // the shortest comes first
      const State next = r_.append(way.state, lists_[way.list][way.low]);
      way.low++;
      if (!is_there(next, fresh)) enter(next);
    }
    if (way.low < way.high) ways_.push_back(way);
  }

  bool is_there(const State& state, std::size_t fresh) const {
    if constexpr (std::equality_comparable<State>)
      for (std::size_t i = fresh; i < ways_.size(); i++)
        if (ways_[i].matched == 0 && ways_[i].state == state) return true;
    return false;
  }

  R r_;
  std::vector<Frame> frames_;
  std::vector<Way> ways_;
  std::vector<std::vector<std::string>> lists_;
};

}  // namespace aici
