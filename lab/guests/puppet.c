/* A controller that interprets its argument: the argument determines the result of every callback, the address of the
 * result, and the calls of imports with their arguments. `lab/campaigns/script.py` writes arguments.
 *
 * The argument consists of little-endian words: for each callback the number of its words, then the words of all. They
 * encode operations. A call executes operations from where the last call of the same callback stopped, up to the first
 * ANSWER or RETURN. An operand is two words: a base, and an offset from it. Without further operations, a callback
 * continues normally. */
#include <aici.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

AICI_CONTROLLER

enum { MOST_WORDS = 8192 };
enum { IN_ARG, IN_INIT, IN_PROMPT, IN_POST, IN_PRE, IN_MID, NUM_CALLBACKS };
enum { RETURN, ANSWER, STORE, FILL, CALL, GROW, SPIN, TRAP, PRINT, NUM_OPS };
enum { PLAIN, AT_ANSWER, AT_BUFFER, AT_END, AT_ARG, AT_RESULT, AT_VOCABULARY, AT_FIELD };

static aici_step_arg arg = {sizeof(aici_step_arg)};
static uint32_t answer[32], buffer[4096];
static uint32_t script[MOST_WORDS], result;
/* for each callback: its next word, and the end of its words */
static uint32_t at[NUM_CALLBACKS], end[NUM_CALLBACKS], now;
static volatile uint32_t sink;

static uint32_t word(void) { return at[now] < end[now] && at[now] < MOST_WORDS ? script[at[now]++] : 0; }

static uint32_t operand(void) {
    uint32_t base = word(), number = word();
    switch (base) {
    case AT_ANSWER: return (uint32_t)(uintptr_t)answer + number;
    case AT_BUFFER: return (uint32_t)(uintptr_t)buffer + number;
    case AT_END: return (uint32_t)(__builtin_wasm_memory_size(0) << 16) + number;
    case AT_ARG: return (uint32_t)(uintptr_t)&arg + number;
    case AT_RESULT: return result + number;
    case AT_VOCABULARY: return (uint32_t)(uintptr_t)aici_vocabulary() + number;
    case AT_FIELD: return ((uint32_t *)&arg)[number % (sizeof arg / 4)];
    default: return number;
    }
}

/* the imports of WASI themselves: libc would validate the arguments first */
#define WASI(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name)))
WASI(random_get) uint32_t imported_random(uint32_t at, uint32_t length);
WASI(fd_write) uint32_t imported_write(uint32_t fd, uint32_t parts, uint32_t count, uint32_t written_at);

static uint32_t call(void) {
    uint32_t which = word(), a[6];
    for (int i = 0; i < 6; i++) a[i] = operand();
    void *p = (void *)a[0], *q = (void *)a[2];
    switch (which) {
    case 0: return aici_read(a[0], a[1], q, a[3]);
    case 1: return (uint32_t)(uintptr_t)aici_vocabulary();
    case 2: return aici_tokenize(p, a[1]);
    case 3: return aici_var_get(p, a[1], q);
    case 4: return aici_var_write(p, a[1], q, a[3], a[4], a[5]);
    case 5: return aici_capability(a[0]);
    case 6: aici_stop();
    case 7: aici_fail(p, a[1]);
    case 8: exit((int)a[0]);
    case 9: return imported_random(a[0], a[1]);
    default: return imported_write(a[0], a[2], a[3], a[4]);
    }
}

/* Runs operations and returns the result of the callback, or `fallback` when the script has ended. */
static uint32_t perform(uint32_t callback, uint32_t fallback) {
    now = callback;
    while (at[now] < end[now]) {
        switch (word() % NUM_OPS) {
        case RETURN: return operand();
        case ANSWER:
            for (uint32_t n = word() % 32, i = 0; i < n; i++) answer[i] = operand();
            return (uint32_t)(uintptr_t)answer;
        case STORE: {
            uint32_t *target = (uint32_t *)operand();
            *target = operand();
            break;
        }
        case FILL: {
            void *target = (void *)operand();
            uint32_t size = operand();
            memset(target, (int)operand(), size);
            break;
        }
        case CALL: result = call(); break;
        case GROW: result = (uint32_t)__builtin_wasm_memory_grow(0, operand()); break;
        case SPIN:
            for (uint32_t n = word() % 100000, i = 0; i < n * 1000; i++) sink += i;
            break;
        case TRAP: __builtin_trap();
        case PRINT:
            for (uint32_t n = word() % 4096, i = 0; i < n; i++) putchar((int)(i & 255));
            puts("");
            break;
        }
    }
    return fallback;
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) {
    uint32_t length = aici_read(AICI_ARG, 0, script, sizeof script) / 4, next = NUM_CALLBACKS;
    for (int i = 0; i < NUM_CALLBACKS; i++) {
        at[i] = next;
        next += script[i];
        end[i] = next < length ? next : length;
    }
    return (aici_step_arg *)perform(IN_ARG, (uint32_t)(uintptr_t)&arg);
}

AICI_EXPORT(aici_init) int aici_init(uint32_t size) { return (int)perform(IN_INIT, size == 0xffffffff); }

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t count) { return (int)perform(IN_PROMPT, count == 0xffffffff); }

AICI_EXPORT(aici_post_process) const aici_post_result *aici_post_process(void) {
    static aici_post_result post = {sizeof post, AICI_CONTINUE};
    return (aici_post_result *)perform(IN_POST, (uint32_t)(uintptr_t)&post);
}

AICI_EXPORT(aici_pre_process) const aici_pre_result *aici_pre_process(void) {
    static aici_pre_result pre = {sizeof pre, AICI_CONTINUE, 1};
    return (aici_pre_result *)perform(IN_PRE, (uint32_t)(uintptr_t)&pre);
}

AICI_EXPORT(aici_mid_process) const aici_mid_result *aici_mid_process(void) {
    static aici_mid_result mid = {sizeof mid, AICI_SAMPLE, AICI_ROW_ALL};
    return (aici_mid_result *)perform(IN_MID, (uint32_t)(uintptr_t)&mid);
}
