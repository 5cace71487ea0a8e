#include "aici/substring.hpp"

#include "aici/host.hpp"
#include "aici/number.hpp"
#include "suffix_automaton.hpp"

namespace aici {
namespace {

using Node = detail::SuffixAutomaton::Node;

/// Sets `link` to a number for each node whose strings end at several positions, and to 0 for others. Returns the
/// number of such nodes.
Substrings::State number_branches(detail::SuffixAutomaton& automaton) {
  // A string that ends at only one position is no suffix of another node's strings, so no node links to it.
  std::vector<bool> branches(automaton.most_nodes());
  branches[0] = true;
  automaton.each_node([&](std::uint32_t number, Node& node) {
    if (number != 0) branches[node.link] = true;
  });
  Substrings::State count = 0;
  automaton.each_node([&](std::uint32_t number, Node& node) { node.link = branches[number] ? ++count : 0; });
  return count;
}

}  // namespace

Substrings::Substrings(std::string_view text, Unit unit) : unit_(unit), text_(text) {
  if (text.size() > kMaxBytes)
    fail(std::string("the text for substrings has ")
             .append(Number(static_cast<std::uint32_t>(text.size())).text())
             .append(" bytes; at most 1000000 are possible"));
  static_assert(kMaxBytes == 1'000'000);
  detail::SuffixAutomaton automaton(text);
  branches_ = number_branches(automaton);

  num_edges_ = 0;
  automaton.each_node([&](std::uint32_t, const Node& node) { num_edges_ += node.link != 0 ? node.count : 0; });
  data_.resize(branches_ + 2 + num_edges_ + (num_edges_ + kReadBehind + 3) / 4);
  std::uint32_t edge = 0;
  automaton.each_node([&](std::uint32_t number, const Node& node) {
    if (node.link == 0) return;
    data_[node.link] = edge;
    automaton.each_edge(node, [&](std::uint8_t label, std::uint32_t target) {
      if (number == 0 && unit == Unit::characters && (label & 0xC0) == 0x80) return;
      const Node& next = automaton.node(target);
      // The longest string that ends only there is the whole text up to that position.
      targets()[edge] = next.link != 0 ? next.link : branches_ + next.length;
      labels()[edge++] = label;
    });
  });
  data_[branches_ + 1] = edge;
}

bool Substrings::forced_byte(State state, std::uint8_t* byte) const {
  if (state == kDead || accepting(state)) return false;
  if (state <= branches_ && data_[state + 1] - data_[state] != 1) return false;
  *byte = static_cast<std::uint8_t>(any_next(state));
  return true;
}

std::size_t Substrings::bytes() const { return text_.size() + data_.size() * sizeof data_[0]; }

}  // namespace aici
