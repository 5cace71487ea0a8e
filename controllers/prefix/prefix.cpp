// prefix: the output begins with given characters, with the model's exact conditional distribution.
//
// The argument is the prefix, or a JSON object:
//   "prefix":     the characters, at most 1024 bytes
//   "max_trials": number of trials before the result becomes approximate (64)
//
// Masks at every step would make the output begin with the prefix, but would distort its distribution: they would force
// the continuation of a first token after which the prefix is unlikely. Therefore this controller uses adaptive
// rejection sampling:
//
// - Each history has an upper bound on the probability of the rest of the prefix, initially 1.
// - A trial chooses each token by its probability times the bound after it.
// - At a new history, the trial continues with the probability that the model gives to all tokens that agree with the
//   prefix. This probability becomes the history's bound. Otherwise the controller backtracks over the whole trial.
//
// The result has exactly the probability p(tokens) / p(the text begins with the prefix).
//
// If the engine does not report probabilities, the controller masks only the first token of a trial. Later tokens are
// sampled from all text, and the trial ends at the first token that does not agree with the prefix. This is exact as
// well, unless the text ends before the prefix is complete, but it takes more trials.
//
// After `max_trials`, the controller uses masks at every step, and the log says "approximate". The distribution is that
// from which the engine samples, without top-k and top-p, which apply after masks.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "aici/json.hpp"
#include "aici/sdk.hpp"
#include "histories.hpp"
#include "line.hpp"

namespace {

constexpr std::uint32_t kMaxBytes = 1024;
constexpr std::uint32_t kMaxTrials = 1'000'000;

struct Request {
  std::string prefix;
  std::uint32_t max_trials = 64;
};

/// Parses the argument. A prefix that begins with a brace must be given as JSON.
Request read(std::string_view argument) {
  if (!argument.starts_with('{')) return {.prefix = std::string(argument)};
  Request request;
  bool has_prefix = false, has_trials = false;
  aici::JsonReader json(argument, "the argument, which begins with a brace,");
  json.expect('{', "an object");
  if (!json.accept('}')) do {
      const std::string name = json.string();
      json.expect(':', "`:`");
      if (name == "prefix" && !has_prefix) {
        request.prefix = json.string();
        has_prefix = true;
      } else if (name == "max_trials" && !has_trials) {
        request.max_trials = json.natural(kMaxTrials);
        has_trials = true;
      } else {
        aici::fail("an argument in JSON has the member \"prefix\" and optionally \"max_trials\", each once: not \"" +
                   name + "\"");
      }
    } while (json.more('}'));
  json.end();
  return request;
}

/// Returns a random number from 0 to below 1.
double chance() {
  std::uint64_t bits = 0;
  getentropy(&bits, sizeof bits);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

class Prefix : public aici::Controller {
 public:
  explicit Prefix(std::string_view argument) : Prefix(read(argument)) {}

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    const auto tokens = aici::step().tokens();
    if (covered_) return aici::MidResult::sample_any();
    if (!tokens.empty() && !advance(tokens[0])) return restart();
    if (covered_) return aici::MidResult::sample_any();
    return sample();
  }

 private:
  explicit Prefix(Request&& request) : line_(std::move(request.prefix)), max_trials_(request.max_trials) {
    if (line_.size() == 0)
      aici::fail("prefix needs the characters to begin with, or JSON such as {\"prefix\": \" Par\", \"max_trials\": 64}");
    if (line_.size() > kMaxBytes)
      aici::fail("the prefix has more than 1024 bytes: put its beginning into the prompt");
    if (!line_.look_ahead()) aici::fail("no tokens of this model spell the prefix");
    text_.allow_text();
    using enum aici::Capability;
    told_ = aici::capability(logprobs) != 0 && aici::capability(top_logprobs) != 0;
    approximate_ = max_trials_ == 0 || aici::capability(backtrack) == 0;
  }

  /// Follows a token. Returns false if the trial has failed.
  bool advance(aici::TokenId token) {
    taken_++;
    if (!approximate_ && !stays(token)) return false;
    position_ += static_cast<std::uint32_t>(aici::vocabulary().token(token).size());
    covered_ = position_ >= line_.size();
    if (covered_) {
      report();
    } else if (told_ && !approximate_) {
      histories_.descend(token, std::exp(static_cast<double>(aici::step().logprob())));
    }
    return true;
  }

  /// Returns whether the trial continues after the history before `token`.
  bool stays(aici::TokenId token) {
    if (!told_) return position_ == 0 || allowed_.allows(token);
    if (histories_.known()) return true;
    const double mass = static_cast<double>(aici::step().allowed_mass());
    if (std::isnan(mass)) {  // the engine promised to report it, but does not
      approximate_ = true;
      return true;
    }
    histories_.learn(mass);
    return histories_.at_start() || chance() < mass;
  }

  aici::MidResult restart() {
    const std::uint32_t taken = taken_;
    taken_ = position_ = 0;
    histories_.back_up();
    approximate_ = trials_++ == max_trials_;
    return aici::MidResult::splice(taken, {});
  }

  aici::MidResult sample() {
    line_.mask(position_, allowed_);
    if (approximate_) return aici::MidResult::sample(allowed_);
    if (!told_) return aici::MidResult::sample(position_ == 0 ? allowed_ : text_);
    if (histories_.known()) {
      const std::vector<Histories::Child>& children = histories_.children();
      double rest = histories_.mass();
      for (const Histories::Child& child : children) {
        allowed_.forbid(child.token);
        rest -= child.chance;
      }
      if (rest < 0 || allowed_.empty()) rest = 0;
      double total = rest;
      for (const Histories::Child& child : children) total += child.chance * child.bound;
      double choice = chance() * total;
      for (const Histories::Child& child : children) {
        choice -= child.chance * child.bound;
        if (choice < 0) return aici::MidResult::force(child.token);
      }
      if (rest == 0) return give_up();
    }
    return aici::MidResult::sample(allowed_).with_top_logprobs(1);  // makes the engine report probabilities
  }

  /// Switches to masks, since the model gives the prefix no probability, as far as the engine's precision tells.
  aici::MidResult give_up() {
    approximate_ = true;
    line_.mask(position_, allowed_);
    return aici::MidResult::sample(allowed_);
  }

  void report() const {
    char text[64];
    const char* kind = approximate_ ? "true" : "false";
    std::snprintf(text, sizeof text, "{\"trials\": %u, \"approximate\": %s}", trials_, kind);
    aici::set_variable("prefix", text);
    std::printf("prefix: %s\n", text);
  }

  Line line_;
  std::uint32_t max_trials_;
  bool told_ = false;        ///< the engine reports the probability of the tokens that the row allowed
  bool approximate_ = false;  ///< masks at every step
  bool covered_ = false;
  std::uint32_t trials_ = 1;
  std::uint32_t taken_ = 0;     ///< tokens of this trial
  std::uint32_t position_ = 0;  ///< bytes of the prefix that these tokens spell
  Histories histories_;
  aici::TokenSet allowed_, text_;
};

}  // namespace

AICI_REGISTER(Prefix);
