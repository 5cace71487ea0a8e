// The exports of aici.h, for a script with `main` or with its own callbacks.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "aici/json.hpp"
#include "aici/sdk.hpp"
#include "answer.hpp"
#include "argument.hpp"
#include "script.h"
#include "session.hpp"

namespace script {
namespace {

std::string_view view(script_text text) { return {text.data, text.size}; }
script_text raw(const std::string& text) { return {text.data(), text.size()}; }

/// Before the script runs: what an earlier call has used up does not count.
void take_time() { aici::detail::present_step().arg()->flags &= ~std::uint32_t{AICI_ARG_HURRY}; }

[[noreturn]] void fail_as_script() { aici::fail(view(interpreter_failure())); }

class ScriptController : public aici::Controller {
 public:
  explicit ScriptController(std::string_view text) {
    const Argument argument = read_argument(text);
    if (!interpreter_load(raw(argument.name), raw(argument.source), raw(argument.value))) fail_as_script();
    has_main_ = interpreter_has(SCRIPT_MAIN);
    const bool has_mid = interpreter_has(SCRIPT_MID_PROCESS);
    if (has_main_ == has_mid)
      aici::fail(argument.name + (has_main_ ? " defines both main and mid_process: use one of them"
                                            : " defines neither main, an async function, nor mid_process"));
    interpreter_idle();
  }

  void init_prompt(std::span<const aici::TokenId> prompt) {
    session().sequence.begin(prompt);
    session().has_begun = true;
    if (has_main_) {
      resume();
      // computes the first masks while the engine processes the prompt
      if (!ended_ && !session().sequence.has_news()) ready_ = session().next();
    } else if (interpreter_has(SCRIPT_INIT_PROMPT)) {
      call(SCRIPT_INIT_PROMPT);
    }
    interpreter_idle();
  }

  aici::PostResult post_process(std::span<const aici::TokenId>) {
    session().note();
    if (has_main_ || !interpreter_has(SCRIPT_POST_PROCESS)) return aici::PostResult::go_on();
    call(SCRIPT_POST_PROCESS);
    interpreter_idle();
    return answer().stop ? aici::PostResult::stop() : aici::PostResult::go_on();
  }

  aici::PreResult pre_process() {
    session().note();
    if (has_main_) return session().pre();
    if (!interpreter_has(SCRIPT_PRE_PROCESS)) return aici::PreResult::go_on();
    call(SCRIPT_PRE_PROCESS);
    interpreter_idle();
    return take_pre();
  }

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    session().note();
    aici::MidResult result = has_main_ ? go_on().holding_end() : take_mid();
    interpreter_idle();
    const bool pre = has_main_ ? session().needs_pre() : interpreter_has(SCRIPT_PRE_PROCESS);
    if (!pre) result.skipping_pre();
    if (!interpreter_has(SCRIPT_POST_PROCESS)) result.skipping_post();
    return result;
  }

 private:
  /// Runs the script until it awaits an action or ends.
  void resume() {
    take_time();
    const script_state state = interpreter_resume();
    if (session().is_stopped) {
      ended_ = true;
      return;
    }
    switch (state) {
      case SCRIPT_AWAITS:
        return;
      case SCRIPT_ENDED:
        ended_ = true;
        return;
      case SCRIPT_FAILED:
        fail_as_script();
    }
  }

  aici::MidResult go_on() {
    if (ready_ && !session().action.over) return *std::exchange(ready_, std::nullopt);
    ready_.reset();
    Sequence& sequence = session().sequence;
    for (;;) {
      if (ended_) return sequence.is_over() ? aici::MidResult::stop() : sequence.news();
      if (std::optional<aici::MidResult> result = session().next()) return std::move(*result);
      resume();
    }
  }

  void call(script_callback which) {
    answer() = Answer();
    take_time();
    if (!interpreter_call(which)) fail_as_script();
  }

  aici::PreResult take_pre() {
    if (answer().stop) return aici::PreResult::stop();
    if (answer().suspend) return aici::PreResult::suspend();
    return answer().forks ? aici::PreResult::fork(*answer().forks) : aici::PreResult::go_on();
  }

  aici::MidResult take_mid() {
    call(SCRIPT_MID_PROCESS);
    Answer& given = answer();
    if (given.stop) return aici::MidResult::stop();
    if (given.look) return aici::MidResult::look(*given.look);
    if (given.splice) return aici::MidResult::splice(given.backtrack, std::move(given.tokens));
    return given.row.result();
  }

  bool has_main_ = false;
  bool ended_ = false;
  /// The result that was computed before the first step.
  std::optional<aici::MidResult> ready_;
};

}  // namespace
}  // namespace script

using script::ScriptController;
AICI_REGISTER(ScriptController, init_prompt, pre_process, post_process);
