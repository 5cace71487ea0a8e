/* A controller that writes variables in every callback. The last token selects where: o in post_process, x there
 * before it fails; e in pre_process, p there before it stops, z there before it is suspended; m three times in
 * mid_process, b there with a name that is not UTF-8, s before it stops, t before it traps, g a large value; f forks
 * into two, which both write. It forces the tokens of its argument, one a step. A ! in the argument makes it write in
 * init_prompt, too. With MID_ONLY it has neither post_process nor pre_process. */
#include <aici.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static char script[64];
static char much[600000];
static uint32_t last;

static void write(const char *name, const char *value) {
    aici_var_write(name, (uint32_t)strlen(name), value, (uint32_t)strlen(value), AICI_SET, AICI_ANY_VERSION);
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    aici_read(AICI_ARG, 0, script, sizeof script - 1);
    return length >= sizeof script;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    (void)n;
    if (strchr(script, '!')) write("prompt", "read");
    return 0;
}

#ifndef MID_ONLY
static aici_post_result post = {sizeof post, AICI_CONTINUE};
static aici_pre_result pre = {sizeof pre};

AICI_EXPORT(aici_post_process) aici_post_result *aici_post_process(void) {
    uint32_t token = arg.num_tokens ? arg.tokens[arg.num_tokens - 1] : 0;
    if (token == 'o' || token == 'x') write("post", "done");
    if (token == 'x') aici_fail("that was all", 12);
    return &post;
}

AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    uint32_t token = arg.num_tokens ? arg.tokens[arg.num_tokens - 1] : 0;
    pre.verb = AICI_CONTINUE;
    if (token == 'e' || token == 'p' || token == 'z') write("pre", "done");
    if (token == 'p') pre.verb = AICI_STOP;
    if (token == 'z') pre.verb = AICI_SUSPEND;
    if (token == 'f') pre.verb = AICI_FORK, pre.num_forks = 2;
    return &pre;
}
#endif

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    last = arg.num_tokens ? arg.tokens[arg.num_tokens - 1] : 0;
    uint32_t step = arg.step <= strlen(script) ? arg.step - 1 : 0;
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_TOKEN,
                            .row = (uint32_t)script[step]};
    if (last == 'm') write("mid", "1"), write("mid", "2"), write("mid", "3");
    if (last == 'b') write("\xff_\xc3\xa9", "odd");
    if (last == 's' || last == 't') write("mid", "last");
    if (last == 's') mid.verb = AICI_STOP;
    if (last == 't') __builtin_trap();
    if (last == 'g') aici_var_write("much", 4, much, sizeof much, AICI_SET, AICI_ANY_VERSION);
    if (last == 'f') write(arg.seq_id == arg.group[0] ? "first" : "second", "here");
    return &mid;
}
