/* Looks at the distribution of each token before it is sampled: at all logits, or at as many of the most likely tokens as
 * its argument has bytes. With an argument of one byte it never looks. */
#include <aici.h>

AICI_CONTROLLER

enum { MOST_TOKENS = 1 << 18, NEVER = 1 };

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_mid_result mid = {sizeof mid, AICI_SAMPLE, AICI_ROW_ALL};
static float logits[MOST_TOKENS];
static uint32_t top;

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    top = size;
    return 0;
}

AICI_EXPORT(aici_mid_process) const aici_mid_result *aici_mid_process(void) {
    int looked = (arg.flags & AICI_ARG_LOOKED) != 0;
    if (looked) aici_read(top ? AICI_TOP : AICI_LOGITS, 0, logits, sizeof logits);
    mid.verb = looked || top == NEVER ? AICI_SAMPLE : AICI_LOOK;
    mid.top_logprobs = mid.verb == AICI_LOOK ? top : 0;
    return &mid;
}
