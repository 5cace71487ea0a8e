// body.hpp - reads the body of a rule or terminal of Lark, after the colon.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../front/nest.hpp"
#include "../front/source.hpp"
#include "syntax.hpp"

namespace aici::lark {

class LarkBody {
 public:
  /// Adds nodes to `nodes`.
  LarkBody(front::Source& source, std::vector<LarkNode>* nodes) : source_(source), nodes_(*nodes) {}

  /// Reads up to the next definition or directive. `from` is the start of this definition.
  Part read(std::size_t from);
  /// Reads a text, a pattern, a name, or the value of %json or %regex.
  Part read_atom();

 private:
  using Nest = front::Nest<Part>;
  /// Placeholders for `~` and `&` in a sequence while it is read.
  static constexpr Part kNotMark = 0xffffffff, kBothMark = 0xfffffffe;

  Part add(LarkNode node) {
    nodes_.push_back(std::move(node));
    return static_cast<Part>(nodes_.size() - 1);
  }
  void push(Nest& nest, Part part);
  Part choice(const Nest::Level& level, std::size_t at);
  Part both(const std::vector<Part>& marked, std::size_t at);
  Part read_text(std::size_t at);
  std::string range(const std::string& low, const std::string& high, std::size_t at);
  Part read_postfix(Part part);
  void read_counts(std::size_t at, std::uint32_t* least, std::uint32_t* most);

  front::Source& source_;
  std::vector<LarkNode>& nodes_;
};

}  // namespace aici::lark
