// beam: beam search, as a controller.
//
// The argument is the number of branches and the number of tokens: "4 24". In each round, every branch samples its
// most likely token and gets the other likely tokens. It writes all of them, with the log-probability of the whole text
// up to each, into a shared variable. When all branches have written, each of them selects the best candidates from the
// variable. A branch without a selected candidate stops, and a branch with several of them forks. A branch whose
// candidate is not the sampled token replaces that token. In the end the best branch is left.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "aici/sdk.hpp"
#include "candidates.hpp"

namespace {

constexpr std::uint32_t kMaxTokens = 256;

struct Settings {
  std::uint32_t width, length;
};

Settings read_settings(std::string_view argument) {
  Settings settings = {0, 0};
  std::uint32_t* const numbers[] = {&settings.width, &settings.length};
  std::size_t at = 0;
  for (std::uint32_t* number : numbers) {
    while (at < argument.size() && argument[at] == ' ') at++;
    for (; at < argument.size() && argument[at] >= '0' && argument[at] <= '9' && *number < 1000; at++)
      *number = *number * 10 + static_cast<std::uint32_t>(argument[at] - '0');
  }
  if (at != argument.size() || settings.width < 1 || settings.length < 1 || settings.length > kMaxTokens)
    aici::fail("beam needs the number of branches and of tokens, at most 256, such as \"4 24\"");
  return settings;
}

class Beam : public aici::Controller {
 public:
  explicit Beam(std::string_view argument) : settings_(read_settings(argument)) {
    text_.allow_text();
    using enum aici::Capability;
    const std::pair<aici::Capability, const char*> needs[] = {{fork, "fork"},
                                                              {backtrack, "backtrack"},
                                                              {ff_tokens, "append tokens"},
                                                              {suspend, "suspend"},
                                                              {logprobs, "report log-probabilities"}};
    std::string missing;
    for (auto [needed, what] : needs)
      if (aici::capability(needed) == 0) missing += (missing.empty() ? "" : ", ") + std::string(what);
    if (!missing.empty()) aici::fail("beam needs capabilities that this engine lacks: " + missing);
    if (aici::capability(top_logprobs) < top())
      aici::fail("beam needs the " + std::to_string(top()) + " most likely tokens; the engine reports at most " +
                 std::to_string(aici::capability(top_logprobs)) + ": ask for fewer branches");
    // while the branches decide, those that fork and those that stop are alive together
    if (aici::capability(max_forks) < 2 * settings_.width)
      aici::fail("beam needs " + std::to_string(2 * settings_.width) + " sequences, two per branch; the runtime " +
                 "allows " + std::to_string(aici::capability(max_forks)) + ": ask for fewer branches");
  }

  aici::PostResult post_process(std::span<const aici::TokenId> tokens) {
    if (aici::step().sampled()) announce(tokens[0]);
    return aici::PostResult::go_on();
  }

  aici::PreResult pre_process() {
    if (last_) return aici::PreResult::stop();
    if (ended_ && !announced_) write({{aici::self_seq_id(), kEnd, score_}});
    if (!announced_) return aici::PreResult::go_on();
    std::vector<Candidate> all = candidates(round_);
    if (branches_of(all) < alive_) return aici::PreResult::suspend();
    return decide(std::move(all));
  }

  aici::MidResult mid_process(std::span<const aici::SeqId> fork_group) {
    if (mine_.empty()) return sample();
    // The first of the group is the branch that forked, the others are its children, in order.
    const auto place =
        std::find(fork_group.begin(), fork_group.end(), aici::self_seq_id()) - fork_group.begin();
    const Candidate chosen = mine_[mine_.size() > 1 ? static_cast<std::size_t>(place) : 0];
    mine_.clear();
    score_ = chosen.score;
    ended_ = chosen.token == kEnd;
    if (ended_) return aici::MidResult::splice(1, {});
    if (chosen.token != sampled_) return aici::MidResult::splice(1, {chosen.token});
    return last_ ? aici::MidResult::stop() : sample();
  }

 private:
  std::uint32_t top() const { return settings_.width + 2; }  // one or two may be special tokens

  aici::MidResult sample() {
    return aici::MidResult::sample(text_).with_temperature(AICI_GREEDY).with_top_logprobs(top());
  }

  /// Writes the sampled `token` and its alternatives, each with the score of the text that ends with it.
  void announce(aici::TokenId token) {
    const aici::Step& step = aici::step();
    const aici::Vocabulary& vocab = aici::vocabulary();
    sampled_ = token;
    std::vector<Candidate> found = {{aici::self_seq_id(), token, score_ + step.logprob()}};
    bool may_end = false;
    for (const aici::Top& top : step.top()) {
      if (top.token == token) continue;
      if (!vocab.is_special(top.token)) {
        found.push_back({aici::self_seq_id(), top.token, score_ + top.logprob});
      } else if (vocab.is_eos(top.token) && !may_end) {
        found.push_back({aici::self_seq_id(), kEnd, score_ + top.logprob});
        may_end = true;
      }
    }
    write(found);
  }

  void write(const std::vector<Candidate>& found) {
    announce_candidates(round_, found);
    announced_ = true;
  }

  aici::PreResult decide(std::vector<Candidate> all) {
    keep_best(&all, settings_.width);
    const bool all_ended =
        std::all_of(all.begin(), all.end(), [](const Candidate& c) { return c.token == kEnd; });
    last_ = ++round_ == settings_.length || all_ended;
    if (last_) all.resize(1);
    announced_ = false;
    alive_ = static_cast<std::uint32_t>(all.size());
    for (const Candidate& candidate : all)
      if (candidate.branch == aici::self_seq_id()) mine_.push_back(candidate);
    if (mine_.empty()) {
      std::printf("round %u: cut, the worst that goes on has %.2f\n", round_,
                  static_cast<double>(all.back().score));
      return aici::PreResult::stop();
    }
    if (last_) std::printf("the best: %.2f\n", static_cast<double>(mine_[0].score));
    if (!ended_) return aici::PreResult::fork(static_cast<std::uint32_t>(mine_.size()));
    mine_.clear();
    return last_ ? aici::PreResult::stop() : aici::PreResult::suspend();
  }

  Settings settings_;
  aici::TokenSet text_;
  std::uint32_t round_ = 0, alive_ = 1;
  float score_ = 0;              ///< log-probability of the text before this round
  aici::TokenId sampled_ = 0;    ///< the token that was sampled in this round
  bool announced_ = false;       ///< this branch has written its candidates of this round
  bool ended_ = false;           ///< the text of this branch is complete; its score stays
  bool last_ = false;            ///< the search is over
  std::vector<Candidate> mine_;  ///< selected candidates of this branch, one for each fork
};

}  // namespace

AICI_REGISTER(Beam, pre_process, post_process);
