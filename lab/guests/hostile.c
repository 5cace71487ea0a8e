/* A hostile controller. The argument is "<where> <what> [number]": a callback and a misdeed of the table below. In the
 * callbacks of steps the misdeed begins in the second step, so that the first one shows a working sequence.
 * `lab/campaigns/strangers.py` lists the misdeeds with their expected outcomes. */
#include <aici.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wasi/api.h>

AICI_CONTROLLER

enum { HUGE_SIZE = 60 << 20 };

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_post_result post;
static aici_pre_result pre;
static aici_mid_result mid;
static char where[32], what[32];
static long number;
static uint32_t mask[8192], tokens[8192];
static aici_bias sparse[4];
static float dense[4096];
static char text[4096], kilobytes[65536];
static volatile uint32_t sink;
static int first = 1, waits;
static void *wild = (void *)0xfffffff0u;

static int is(const char *name) { return strcmp(what, name) == 0; }

/* ---- misdeeds for any callback ----------------------------------------------------------------------------------- */

static void loop(void) {
    for (;;) sink++;
}

#pragma clang diagnostic ignored "-Winfinite-recursion"
static int deeper(int n) { return n < 1 << 30 ? n + deeper(n + 1) * (int)sink + 1 : 0; }
static void recurse(void) { sink += (uint32_t)deeper(1); }

static int deeper_calling(int n) {
    sink += aici_capability((uint32_t)n); /* the host's function runs on the rest of the stack */
    return n < 1 << 30 ? n + deeper_calling(n + 1) * (int)sink + 1 : 0;
}
static void recurse_calling(void) { sink += (uint32_t)deeper_calling(1); }

static int deeper_looping(int n) {
    while (n > 4000) sink++;
    return n + deeper_looping(n + 1) * (int)sink + 1;
}
static void loop_deep_down(void) { sink += (uint32_t)deeper_looping(1); }

static void unreachable(void) { __builtin_trap(); }
static void load_outside(void) { sink += *(volatile uint32_t *)wild; }
static void store_outside(void) { *(volatile uint32_t *)wild = 1; }

static void divide(void) {
    volatile int32_t nothing = 0, something = 1000; /* 1 / x would compile to something else */
    sink = (uint32_t)(something / nothing);
}

static void overflow(void) {
    volatile int32_t most = INT32_MIN, minus = -1;
    sink = (uint32_t)(most / minus);
}

static void call_nothing(void) { ((void (*volatile)(void))0xffff)(); }

static void call_other_type(void) { /* through an integer, so that the compiler does not see the type */
    volatile uint32_t place = (uint32_t)(uintptr_t)loop;
    ((double (*)(double, double))(uintptr_t)place)(1, 2);
}

static void leave(void) { exit((int)number); }
static void die(void) { abort(); }
static void fail(void) { aici_fail("no such luck", 12); }
static void stop(void) { aici_stop(); }

static void print_and_trap(void) {
    puts("last words");
    __builtin_trap();
}

/* memory */

static void take_memory(void) {
    for (;;) {
        char *block = malloc(1 << 20);
        if (!block) __builtin_trap();
        *(volatile char *)block = 1;
    }
}

static void take_memory_and_go_on(void) {
    for (void *block; (block = malloc(1 << 20)); *(volatile char *)block = 1) {
    }
}

/* instead of malloc, which rounds up to a power of two */
static char *take(uint32_t size) {
    uint32_t pages = __builtin_wasm_memory_grow(0, size >> 16);
    if (pages == 0xffffffff) __builtin_trap();
    return (char *)(uintptr_t)(pages << 16);
}

static void touch_memory(void) {
    static char *block;
    if (!block) block = take(HUGE_SIZE);
    memset(block, (int)arg.step + 1, HUGE_SIZE);
}

static void move_memory(void) {
    char *block = take(HUGE_SIZE);
    for (;;) memmove(block, block + 1, HUGE_SIZE - 1);
}

static void grow_by_nothing(void) {
    for (;;) sink += (uint32_t)__builtin_wasm_memory_grow(0, 0);
}

static void grow_by_all(void) {
    for (int i = 0; i < 100; i++) sink += (uint32_t)__builtin_wasm_memory_grow(0, 0xffff);
}

/* endless calls of host functions that never block */

static void sleep_for_ever(void) {
    __wasi_subscription_t subscription = {0};
    __wasi_event_t event;
    __wasi_size_t count;
    subscription.u.tag = __WASI_EVENTTYPE_CLOCK;
    subscription.u.u.clock.timeout = 1000000000000ull;
    for (;;) sink += __wasi_poll_oneoff(&subscription, &event, 1, &count);
}

static void yield_for_ever(void) {
    for (;;) sink += __wasi_sched_yield();
}

static void wait_for_clock(void) {
    __wasi_timestamp_t start, now;
    sink += __wasi_clock_time_get(__WASI_CLOCKID_MONOTONIC, 1, &start);
    do sink += __wasi_clock_time_get(__WASI_CLOCKID_MONOTONIC, 1, &now);
    while (now - start < 1000000);
}

static void random_for_ever(void) {
    for (;;) sink += __wasi_random_get((uint8_t *)kilobytes, sizeof kilobytes);
}

static void write_for_ever(void) {
    static __wasi_ciovec_t parts[1024];
    __wasi_size_t written;
    for (int i = 0; i < 1024; i++) parts[i] = (__wasi_ciovec_t){(uint8_t *)kilobytes, 64};
    for (;;) sink += __wasi_fd_write(1, parts, 1024, &written);
}

__attribute__((import_module("wasi_snapshot_preview1"), import_name("fd_write"))) uint32_t
imported_write(uint32_t fd, const void *parts, uint32_t count, void *written);

#define EIGHT(x) x; x; x; x; x; x; x; x
static void write_in_a_row(void) { /* no loop and no Wasm call, so no epoch check in Wasm */
    static __wasi_ciovec_t parts[1024];
    static __wasi_size_t written;
    for (int i = 0; i < 1024; i++) parts[i] = (__wasi_ciovec_t){(uint8_t *)kilobytes, 1};
    EIGHT(EIGHT(EIGHT(sink = imported_write(1, parts, 1024, &written))));
}

static void read_for_ever(void) {
    for (;;) sink += aici_read(AICI_PROMPT, 0, kilobytes, sizeof kilobytes);
}

static void tokenize(void) {
    memset(text, 'x', sizeof text);
    for (long i = 0; i < (number ? number : 1000000); i++) sink += aici_tokenize(text, sizeof text);
}

static void tokenize_small(void) {
    for (;;) sink += aici_tokenize("a", 1);
}

static void ask_for_ever(void) {
    for (uint32_t i = 0;; i++) sink += aici_capability(i);
}

/* the log, and variables */

static void print_much(void) {
    memset(text, 'y', sizeof text);
    for (int i = 0; i < 256; i++) fwrite(text, 1, sizeof text, i & 1 ? stdout : stderr);
}

static void print_for_ever(void) {
    for (;;) puts("and so on");
}

static void print_garbage(void) {
    for (int i = 0; i < 1000; i++) putchar(0x80 | (i & 127));
    fwrite("\0\033[2J\xff\n", 1, 7, stdout);
}

static void make_variables(void) {
    char name[32];
    for (int i = 0;; i++)
        aici_var_write(name, (uint32_t)snprintf(name, sizeof name, "v%d", i), "x", 1, AICI_SET, AICI_ANY_VERSION);
}

static void make_long_variables(void) {
    char name[200] = {0};
    for (int i = 0;; i++) {
        memcpy(name, &i, sizeof i);
        aici_var_write(name, sizeof name, kilobytes, sizeof kilobytes, AICI_SET, AICI_ANY_VERSION);
    }
}

static void extend_variable(void) {
    for (;;) aici_var_write("v", 1, kilobytes, sizeof kilobytes, AICI_APPEND, AICI_ANY_VERSION);
}

static void rewrite_variable(void) {
    for (uint32_t version = 0;; version++) sink += aici_var_write("v", 1, kilobytes, sizeof kilobytes, AICI_SET, version);
}

/* imports with wild pointers and lengths */

static void read_all(void) { /* few calls of the host, without a check of the time within one */
    static char *block;
    if (!block) block = take(HUGE_SIZE);
    for (int i = 0; i < 8; i++) sink += aici_read(AICI_ARG, 0, block, HUGE_SIZE);
}

static void read_to_outside(void) { aici_read(AICI_ARG, 0, wild, 100); }
static void read_to_the_end(void) {
    aici_read(AICI_ARG, 0, (void *)(((uint32_t)__builtin_wasm_memory_size(0) << 16) - 1), 100);
}
static void read_far_behind(void) { sink += aici_read(AICI_ARG, 0xffffffff, text, 0xffffffff); }
static void read_other_source(void) { aici_read(0xffffffff, 0, text, 1); }
static void tokenize_outside(void) { aici_tokenize(wild, 0x1000); }
static void tokenize_too_much(void) { aici_tokenize(text, 0xffffffff); }
static void name_outside(void) { aici_var_get(wild, 200, 0); }
static void name_too_long(void) { aici_var_get(text, 0xffffffff, 0); }
static void length_outside(void) { aici_var_get("v", 1, wild); }
static void write_name_outside(void) { aici_var_write(wild, 200, "x", 1, AICI_SET, AICI_ANY_VERSION); }
static void write_value_outside(void) { aici_var_write("v", 1, wild, 200, AICI_SET, AICI_ANY_VERSION); }
static void write_value_too_long(void) { aici_var_write("v", 1, text, 0xffffffff, AICI_SET, AICI_ANY_VERSION); }
static void write_otherwise(void) { aici_var_write("v", 1, "x", 1, 0xffffffff, AICI_ANY_VERSION); }
static void fail_outside(void) { aici_fail(wild, 0xffffffff); }
static void fail_with_garbage(void) { aici_fail("\xff\xfe\0\x80", 4); }
static void ask_for_nothing(void) { sink += aici_capability(0xffffffff); }

static void wasi_outside(void) { /* each returns EFAULT, EBADF or ENOSYS */
    __wasi_size_t size;
    sink += __wasi_random_get(wild, 4096) + __wasi_clock_time_get(1, 1, wild) + __wasi_clock_res_get(1, wild);
    sink += __wasi_fd_write(1, wild, 1, &size) + __wasi_fd_write(1, wild, 0x7fffffff, &size);
    sink += __wasi_fd_write(1, (__wasi_ciovec_t[]){{wild, 0xffffffff}}, 1, &size);
    sink += __wasi_fd_write(1, (__wasi_ciovec_t[]){{(uint8_t *)text, 1}}, 1, wild);
    sink += __wasi_fd_fdstat_get(1, wild) + __wasi_args_sizes_get(wild, wild) + __wasi_environ_sizes_get(wild, wild);
    sink += __wasi_random_get((uint8_t *)kilobytes, 0xffffffff) + __wasi_fd_close(0xffffffff);
}

static void open_files(void) {
    for (int i = 0; i < 10; i++) printf("%s", fopen(i & 1 ? "/etc/passwd" : "/dev/shm/x", "r") ? "opened" : "no ");
}

static void overwrite_vocabulary(void) {
    const aici_vocabulary_header *vocabulary = aici_vocabulary();
    static uint32_t size;
    if (!size) size = vocabulary->total_size;
    memset((void *)vocabulary, 0xff, size);
}

/* time */

static void spend(double ms) { /* there is no clock: a round of this loop is about a nanosecond */
    for (uint32_t i = 0, rounds = (uint32_t)(ms * 1e6); i < rounds; i++) sink = sink * 1664525u + i;
}

static void work(void) { spend((double)number / 1000); }

/* the argument of the step belongs to the host */

static void overwrite_arg(void) {
    memset(&arg, 0xff, sizeof arg);
}

static void shrink_arg(void) { arg.size = 0; }

static const struct misdeed {
    const char *name;
    void (*run)(void);
} misdeeds[] = {
    {"loop", loop}, {"recurse", recurse}, {"recurse_calling", recurse_calling}, {"loop_deep_down", loop_deep_down}, {"unreachable", unreachable}, {"load_outside", load_outside},
    {"store_outside", store_outside}, {"divide", divide}, {"overflow", overflow}, {"call_nothing", call_nothing},
    {"call_other_type", call_other_type}, {"leave", leave}, {"die", die}, {"fail", fail}, {"stop", stop},
    {"print_and_trap", print_and_trap},
    {"take_memory", take_memory}, {"take_memory_and_go_on", take_memory_and_go_on}, {"touch_memory", touch_memory},
    {"move_memory", move_memory}, {"grow_by_nothing", grow_by_nothing}, {"grow_by_all", grow_by_all},
    {"sleep_for_ever", sleep_for_ever}, {"yield_for_ever", yield_for_ever}, {"wait_for_clock", wait_for_clock},
    {"random_for_ever", random_for_ever}, {"write_for_ever", write_for_ever}, {"write_in_a_row", write_in_a_row},
    {"read_for_ever", read_for_ever}, {"read_all", read_all}, {"tokenize", tokenize}, {"tokenize_small", tokenize_small},
    {"ask_for_ever", ask_for_ever}, {"print_much", print_much}, {"print_for_ever", print_for_ever},
    {"print_garbage", print_garbage}, {"make_variables", make_variables}, {"make_long_variables", make_long_variables},
    {"extend_variable", extend_variable}, {"rewrite_variable", rewrite_variable}, {"read_to_outside", read_to_outside},
    {"read_to_the_end", read_to_the_end}, {"read_far_behind", read_far_behind}, {"read_other_source", read_other_source},
    {"tokenize_outside", tokenize_outside}, {"tokenize_too_much", tokenize_too_much}, {"name_outside", name_outside},
    {"name_too_long", name_too_long}, {"length_outside", length_outside}, {"write_name_outside", write_name_outside},
    {"write_value_outside", write_value_outside}, {"write_value_too_long", write_value_too_long},
    {"write_otherwise", write_otherwise}, {"fail_outside", fail_outside}, {"fail_with_garbage", fail_with_garbage},
    {"ask_for_nothing", ask_for_nothing}, {"wasi_outside", wasi_outside}, {"open_files", open_files},
    {"overwrite_vocabulary", overwrite_vocabulary}, {"work", work}, {"overwrite_arg", overwrite_arg},
    {"shrink_arg", shrink_arg},
};

static void at(const char *callback) {
    if (strcmp(where, callback)) return;
    for (uint32_t i = 0; i < sizeof misdeeds / sizeof *misdeeds; i++)
        if (is(misdeeds[i].name)) misdeeds[i].run();
}

/* ---- callbacks ------------------------------------------------------------------------------------------------------- */

static void read_arg(void) {
    char line[80] = {0};
    if (!first) return;
    first = 0;
    aici_read(AICI_ARG, 0, line, sizeof line - 1);
    sscanf(line, "%31s %31s %ld", where, what, &number);
}

__attribute__((constructor)) static void start(void) {
    read_arg();
    at("start");
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) {
    at("arg");
    if (strcmp(where, "arg")) return &arg;
    if (is("null")) return NULL;
    if (is("outside")) return wild;
    if (is("at_the_end")) return (aici_step_arg *)(((uint32_t)__builtin_wasm_memory_size(0) << 16) - 20);
    if (is("small")) arg.size = 8;
    if (is("unaligned")) {
        static char bytes[sizeof arg + 4];
        uint32_t size = sizeof arg;
        memcpy(bytes + 1, &size, 4);
        return (aici_step_arg *)(bytes + 1);
    }
    return &arg;
}

AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    at("init");
    (void)len;
    if (strcmp(where, "init")) return 0;
    if (is("snapshot")) memset(take((uint32_t)number << 20), 7, (uint32_t)number << 20);
    if (is("write_variable")) aici_var_write("x", 1, "y", 1, AICI_SET, AICI_ANY_VERSION);
    return is("refuse") ? -1 : 0;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    at("prompt");
    (void)n;
    return !strcmp(where, "prompt") && is("refuse") ? -1 : 0;
}

AICI_EXPORT(aici_post_process) aici_post_result *aici_post_process(void) {
    post = (aici_post_result){sizeof post, AICI_CONTINUE};
    if (arg.step < 2) return &post;
    at("post");
    if (strcmp(where, "post")) return &post;
    if (is("null")) return NULL;
    if (is("outside")) return wild;
    if (is("size")) post.size = (uint32_t)number;
    if (is("verb")) post.verb = (uint32_t)number;
    return &post;
}

AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    pre = (aici_pre_result){sizeof pre, AICI_CONTINUE, 0};
    if (arg.step < 2) return &pre;
    at("pre");
    if (!strcmp(where, "pre")) {
        if (is("null")) return NULL;
        if (is("outside")) return wild;
        if (is("at_the_end")) return (aici_pre_result *)(((uint32_t)__builtin_wasm_memory_size(0) << 16) - 4);
        if (is("size")) pre.size = (uint32_t)number;
        if (is("verb")) pre.verb = (uint32_t)number;
    }
    if (strcmp(where, "fork")) return &pre;
    if (is("once")) pre.verb = arg.step == 2 ? AICI_FORK : AICI_CONTINUE, pre.num_forks = (uint32_t)number;
    if (is("always") || is("relay") || is("heavy")) pre.verb = AICI_FORK, pre.num_forks = 2;
    if (is("suspend")) pre.verb = AICI_SUSPEND;
    if (is("suspend_write")) {
        aici_var_write("beat", 4, &arg.step, 4, AICI_SET, AICI_ANY_VERSION);
        pre.verb = AICI_SUSPEND;
    }
    if (is("suspend_all")) pre.verb = arg.step == 2 ? AICI_FORK : AICI_SUSPEND, pre.num_forks = 8;
    if (is("suspend_turns")) {
        pre.verb = arg.step == 2 ? AICI_FORK : arg.step % 2 == (uint32_t)waits ? AICI_SUSPEND : AICI_CONTINUE;
        pre.num_forks = 2;
    }
    if (is("wait")) pre.verb = arg.step == 2 ? AICI_FORK : waits ? AICI_SUSPEND : AICI_CONTINUE, pre.num_forks = 2;
    if (is("children_trap")) pre.verb = arg.step == 2 ? AICI_FORK : AICI_CONTINUE, pre.num_forks = 4;
    return &pre;
}

static void sample(uint32_t kind, const void *row, uint32_t len) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = kind, .row = (uint32_t)row,
                            .row_len = len};
}

static void splice(uint32_t backtrack, const void *ff, uint32_t count) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SPLICE, .backtrack = backtrack,
                            .ff_tokens = (uint32_t)ff, .num_ff_tokens = count};
}

static void biases(uint32_t kind) {
    const float bad = is("sparse_nan") || is("dense_nan") ? NAN : is("sparse_inf") || is("dense_inf") ? INFINITY : 0.5f;
    sparse[0] = (aici_bias){3, bad};
    sparse[1] = (aici_bias){is("sparse_token") ? 0xffffffff : 4, -0.0f};
    for (int i = 0; i < 4096; i++) dense[i] = is("dense_nothing") ? -INFINITY : i == 7 ? bad : -0.0f;
    if (kind == AICI_ROW_DENSE) {
        sample(kind, is("dense_outside") ? wild : is("dense_unaligned") ? (char *)dense + 3 : (char *)dense,
               is("dense_short") ? 1 : 4096);
        return;
    }
    sample(kind, is("sparse_outside") ? wild : sparse, is("sparse_many") ? 100000 : is("sparse_wrap") ? 0x20000001 : 2);
    mid.row_default = is("sparse_default") ? NAN : -INFINITY;
    if (is("sparse_nothing")) mid.row_len = 0;
}

static void answer_wrongly(void) {
    uint32_t end = (uint32_t)__builtin_wasm_memory_size(0) << 16;
    if (is("size")) mid.size = (uint32_t)number;
    if (is("verb")) mid.verb = (uint32_t)number;
    if (is("kind")) mid.row_kind = (uint32_t)number;
    if (is("row_null")) mid.row = 0;
    if (is("row_outside")) mid.row = (uint32_t)wild;
    if (is("row_at_the_end")) mid.row = end - 4;
    if (is("row_unaligned")) mid.row += 3;
    if (is("row_short")) mid.row_len = 0;
    if (is("row_huge")) mid.row_len = 0xffffffff;
    if (is("row_empty")) memset(mask, 0, sizeof mask);
    if (is("row_padding")) {
        const aici_vocabulary_header *vocabulary = aici_vocabulary();
        memset(mask, 0, sizeof mask);
        mask[vocabulary->mask_words - 1] = 0xffffffffu << (vocabulary->vocab_size & 31);
    }
    if (is("token")) sample(AICI_ROW_TOKEN, (void *)number, 0);
    if (is("temperature_nan")) mid.temperature = NAN;
    if (is("temperature_inf")) mid.temperature = INFINITY;
    if (is("temperature_minus")) mid.temperature = -2;
    if (is("temperature_zero")) mid.temperature = -0.0f;
    if (is("top_p_nan")) mid.top_p = NAN;
    if (is("top_n_sigma_inf")) mid.top_n_sigma = INFINITY;
    if (is("top_k")) mid.top_k = 0xffffffff;
    if (is("top_logprobs")) mid.top_logprobs = 0xffffffff;
    if (!strncmp(what, "sparse", 6)) biases(AICI_ROW_SPARSE);
    if (!strncmp(what, "dense", 5)) biases(AICI_ROW_DENSE);
    if (is("contradictory")) mid.backtrack = mid.ff_tokens = mid.num_ff_tokens = 0xffffffff;
    if (is("both")) mid.verb = AICI_SPLICE, mid.backtrack = 0xffffffff, mid.num_ff_tokens = 0xffffffff;
}

static void splice_wrongly(void) {
    for (int i = 0; i < 8192; i++) tokens[i] = 65 + i % 26;
    if (is("many")) splice(0, tokens, 4097);
    if (is("wrap")) splice(0, tokens, 0x40000001);
    if (is("most")) splice(0, tokens, 4096);
    if (is("outside")) splice(0, wild, 8);
    if (is("token")) tokens[1] = 0xffffffff, splice(0, tokens, 2);
    if (is("back_all")) splice(0xffffffff, tokens, 1);
    if (is("back_storm")) splice(arg.step == 2 ? 4 : 1000, tokens, 1000);
    if (is("nothing")) splice(0, tokens, 0);
    if (is("unaligned")) splice(0, (char *)tokens + 1, 1), memset(tokens, 0, 8), ((char *)tokens)[1] = 65;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    memset(mask, 0, sizeof mask);
    mask[2] = 0x3fffffe; /* A to Z */
    sample(AICI_ROW_BITMASK, mask, 8192);
    if (is("same_before")) sample(AICI_ROW_SAME, 0, 0);
    if (arg.step < 2) return &mid;
    at("mid");
    if (!strcmp(where, "fork")) {
        if (is("relay") || is("wait")) splice(0, tokens, 0);
        if (is("relay") && arg.seq_id == arg.group[0]) mid.verb = AICI_STOP;
        if (is("wait") || is("suspend_turns")) waits = waits || arg.seq_id != arg.group[0];
        if (is("children_trap") && arg.seq_id != arg.group[0]) __builtin_trap();
        if (is("heavy")) {
            touch_memory();
            if (arg.seq_id != arg.group[0]) mid.verb = AICI_STOP;
        }
    }
    if (!strcmp(where, "answer")) {
        if (is("null")) return NULL;
        if (is("outside")) return wild;
        if (is("at_the_end")) return (aici_mid_result *)(((uint32_t)__builtin_wasm_memory_size(0) << 16) - 8);
        answer_wrongly();
    }
    if (!strcmp(where, "splice")) splice_wrongly();
    return &mid;
}
