/* A controller that uses memory as its argument says: "<where> <MiB>". */
#include <aici.h>
#include <stdio.h>
#include <string.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_pre_result pre;
static aici_mid_result mid;
static char where[32];
static uint32_t amount;
static uint32_t mask[8192];

static int is(const char *name) { return strcmp(where, name) == 0; }

/* Grows the memory by `mib` MiB, 60 in all at most, and fills the new part. */
static void fill(uint32_t mib) {
    static char *start;
    static uint32_t taken, filled;
    if (!start) start = (char *)(uintptr_t)(__builtin_wasm_memory_size(0) << 16);
    for (; mib > 0 && taken < 60; mib--, taken++) {
        if (__builtin_wasm_memory_grow(0, 16) == (size_t)-1) return;
        memset(start + (taken << 20), (int)++filled, 1 << 20);
    }
}

/* Changes every second page of `mib` MiB, which the first call allocates. */
static void scatter(uint32_t mib) {
    static char *start;
    if (!start) {
        start = (char *)(uintptr_t)(__builtin_wasm_memory_size(0) << 16);
        if (__builtin_wasm_memory_grow(0, mib << 4) == (size_t)-1) __builtin_trap();
    }
    for (uint32_t at = 0; at < mib << 20; at += 8192) start[at]++;
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    char text[64] = {0};
    aici_read(AICI_ARG, 0, text, sizeof text - 1);
    sscanf(text, "%31s %u", where, &amount);
    if (is("init")) fill(amount);
    if (is("slow_init")) {
        fill(amount);
        for (volatile uint32_t i = 0; i < 1u << 27; i++) {
        }
    }
    return len > sizeof text;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    if (is("prompt")) fill(amount);
    return n == ~0u;
}

AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    pre = (aici_pre_result){sizeof pre, AICI_CONTINUE, 0};
    if (is("pre")) fill(amount);
    if (is("fork") && arg.step == 2) pre.verb = AICI_FORK, pre.num_forks = 8;
    if (is("copy") && arg.step == 1) fill(amount);
    if (is("copy") && arg.step == 2) pre.verb = AICI_FORK, pre.num_forks = 8;
    return &pre;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    if (is("mid") || (is("once") && arg.step == 1)) fill(amount);
    if (is("fork") && arg.step >= 2) fill(amount);
    if (is("scatter")) scatter(amount);
    memset(mask, 0xff, sizeof mask);
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = AICI_ROW_BITMASK,
                            .row = (uint32_t)(uintptr_t)mask, .row_len = 8192};
    return &mid;
}
