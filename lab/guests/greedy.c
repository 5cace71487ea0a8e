/* A controller that uses much CPU time. The argument has two numbers, and any text that makes it unique: thousands of
 * rounds of a loop in aici_init, and in each mid_process (-1: endless). */
#include <aici.h>
#include <stdlib.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_mid_result mid = {sizeof mid, AICI_SAMPLE, AICI_ROW_ALL};
static long thousands;
static volatile uint32_t sink;

static void work(long rounds) {
    for (long i = 0; rounds < 0 || i < rounds; i++)
        for (uint32_t j = 0; j < 1000; j++) sink = sink * 1664525u + j;
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t size) {
    char text[64] = {0};
    if (size >= sizeof text) return 1;
    aici_read(AICI_ARG, 0, text, size);
    char *rest;
    work(strtol(text, &rest, 10));
    thousands = strtol(rest, NULL, 10);
    return 0;
}

AICI_EXPORT(aici_mid_process) const aici_mid_result *aici_mid_process(void) {
    work(thousands);
    return &mid;
}
