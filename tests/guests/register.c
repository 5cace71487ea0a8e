/* A controller whose variables tell how often init_prompt has run and how many sequences have begun. It lets the
 * model write. Its argument is a number of million rounds that init_prompt counts; "refuse" makes it fail. */
#include <aici.h>
#include <stdlib.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof arg};
static aici_mid_result mid;
static char text[16];

static void add(const char *name, uint32_t size) {
    aici_var_write(name, size, "x", 1, AICI_APPEND, AICI_ANY_VERSION);
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    aici_read(AICI_ARG, 0, text, sizeof text - 1);
    return length >= sizeof text;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    (void)n;
    add("prompts", 7);
    for (volatile int i = 0; i < atoi(text) * 1000000; i++) {
    }
    return text[0] == 'r';
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    if (arg.step == 1) add("begun", 5);
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_ALL};
    return &mid;
}
