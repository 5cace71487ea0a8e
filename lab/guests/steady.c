/* The smallest controller with a part on the critical path: it reads each token in post_process, continues in
 * pre_process, and returns a fixed mask. The time of its steps is the runtime's own. */
#include <aici.h>
#include <stddef.h>

AICI_CONTROLLER

enum { MOST_TOKENS = 1 << 18 };

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_post_result post = {sizeof post, AICI_CONTINUE};
static aici_pre_result pre = {sizeof pre, AICI_CONTINUE, 1};
static aici_mid_result mid = {offsetof(aici_mid_result, top_p)};
static uint32_t mask[MOST_TOKENS / 32];
static uint32_t last;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    for (int word = 0; word < MOST_TOKENS / 32; word++) mask[word] = 0x55555555;
    mid.verb = AICI_SAMPLE;
    mid.row_kind = AICI_ROW_BITMASK;
    mid.row = (uint32_t)(uintptr_t)mask;
    mid.row_len = MOST_TOKENS / 32;
    return size != 0;
}

AICI_EXPORT(aici_post_process) const aici_post_result *aici_post_process(void) {
    last = arg.tokens[0];
    return &post;
}

AICI_EXPORT(aici_pre_process) const aici_pre_result *aici_pre_process(void) { return &pre; }

AICI_EXPORT(aici_mid_process) const aici_mid_result *aici_mid_process(void) {
    mask[0] = 0x55555555 | last;
    return &mid;
}
