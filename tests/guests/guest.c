/* A controller with a mode for each misdeed. The mode "ok" behaves well.
 *
 * The argument is "<mode>" or "<mode> <number>". A mode takes effect in the second step, so that the first one shows a
 * working sequence. Modes of init and init_prompt take effect at once. */
#include <aici.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

AICI_CONTROLLER

static aici_step_arg arg = {sizeof(aici_step_arg)};
static aici_pre_result pre;
static aici_post_result post;
static aici_mid_result mid;
static char mode[64];
static long number;
static uint32_t mask[8192];
static float dense[262144];
static aici_bias sparse[4];
static uint32_t tokens[8192];
static int waits;

static int is(const char *name) { return strcmp(mode, name) == 0; }
static int now(const char *name) { return arg.step >= 2 && is(name); }

static void spin(void) {
    for (volatile unsigned i = 0;; i++) {
    }
}

static int deep(int n) { return n < 1 << 30 ? n + deep(n + 1) * (int)arg.step + 1 : 0; }

static void common(const char *callback) {
    char name[80];
    snprintf(name, sizeof name, "%s_loop", callback);
    if (is(name)) spin();
    snprintf(name, sizeof name, "%s_trap", callback);
    if (is(name)) __builtin_trap();
    snprintf(name, sizeof name, "%s_fail", callback);
    if (is(name)) aici_fail("no such luck", 12);
    snprintf(name, sizeof name, "%s_stop", callback);
    if (is(name)) aici_stop();
    snprintf(name, sizeof name, "%s_stack", callback);
    if (is(name)) number += deep(1);
    snprintf(name, sizeof name, "%s_exit", callback);
    if (is(name)) exit((int)number);
    snprintf(name, sizeof name, "%s_tokenize", callback);
    if (is(name)) {
        static char text[4096];
        memset(text, 'x', sizeof text);
        for (int i = 0; i < number; i++) aici_tokenize(text, sizeof text);
    }
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) {
    return &arg;
}

AICI_EXPORT(aici_init) int aici_init(uint32_t len) {
    char text[80] = {0};
    aici_read(AICI_ARG, 0, text, sizeof text - 1);
    sscanf(text, "%63s %ld", mode, &number);
    if (is("init_refuse")) return 1;
    if (is("init_variable")) aici_var_write("x", 1, "y", 1, AICI_SET, AICI_ANY_VERSION);
    common("init");
    return len > sizeof text;
}

AICI_EXPORT(aici_init_prompt) int aici_init_prompt(uint32_t n) {
    common("prompt");
    if (is("prompt_sum")) {
        uint32_t *all = malloc(4 * n), sum = 0;
        uint32_t total = aici_read(AICI_PROMPT, 0, all, 4 * n);
        for (uint32_t i = 0; i < n; i++) sum += all[i];
        printf("%u tokens, %u bytes, sum %u\n", n, total, sum);
    }
    if (is("keep")) aici_var_write("v", 1, dense, (uint32_t)number, AICI_SET, AICI_ANY_VERSION);
    for (int n = 0; is("calls") && n < number; n++) aici_call("echo", 4, "1", 1);
    if (is("receive")) aici_call("aici.receive", 12, "{}", 2);
    if (is("call_bytes") || is("call_thrice")) { /* a JSON text of so many bytes */
        char *text = memset(dense, 'x', (size_t)number);
        text[0] = text[number - 1] = '"';
        for (int n = is("call_bytes") ? 2 : 0; n < 3; n++) aici_call("echo", 4, text, (uint32_t)number);
    }
    if (is("say")) {
        memset(tokens, 'x', sizeof tokens);
        fwrite(tokens, 1, (size_t)number, stdout);
    }
    if (is("prompt_slow"))
        for (volatile unsigned i = 0; i < (unsigned)number * 1000000u; i++) {
        }
    return is("prompt_refuse");
}

AICI_EXPORT(aici_post_process) aici_post_result *aici_post_process(void) {
    post = (aici_post_result){sizeof post, AICI_CONTINUE};
    if (is("report")) {
        printf("post: -%u +%u first %u sampled %u logprob %.2f mass %.2f top %u\n", arg.backtrack, arg.num_tokens,
               arg.tokens[0], arg.flags & AICI_ARG_SAMPLED, (double)arg.logprob, (double)arg.allowed_mass,
               arg.num_top);
        if (arg.num_top) {
            aici_top top[8];
            aici_read(AICI_TOP, 0, top, sizeof top);
            printf("top: %u %.2f\n", top[0].token, (double)top[0].logprob);
        }
    }
    if (arg.step < 2) return &post;
    common("post");
    if (now("post_bad_pointer")) return (aici_post_result *)0xfffffff0u;
    if (now("post_bad_size")) post.size = 4;
    if (now("post_bad_verb")) post.verb = AICI_SPLICE;
    if (now("post_return_stop")) post.verb = AICI_STOP;
    return &post;
}

AICI_EXPORT(aici_pre_process) aici_pre_result *aici_pre_process(void) {
    pre = (aici_pre_result){sizeof pre, AICI_CONTINUE, 0};
    if (arg.step < 2) return &pre;
    common("pre");
    if (is("pre_bad_pointer")) return (aici_pre_result *)0xfffffff0u;
    if (is("pre_bad_size")) pre.size = 4;
    if (is("pre_bad_verb")) pre.verb = AICI_SAMPLE;
    if (is("pre_return_stop")) pre.verb = AICI_STOP;
    if (is("suspend")) pre.verb = AICI_SUSPEND;
    if (is("waits")) pre.verb = AICI_SUSPEND, pre.waits = 16, pre.num_waits = (uint32_t)number;
    if (is("suspend_write")) {
        aici_var_write("beat", 4, &arg.step, 4, AICI_SET, AICI_ANY_VERSION);
        pre.verb = AICI_SUSPEND;
    }
    if (is("relay")) pre.verb = AICI_FORK, pre.num_forks = 2;
    if (is("wait") && arg.step == 2) pre.verb = AICI_FORK, pre.num_forks = 2;
    if (is("wait") && arg.step > 2 && waits) pre.verb = AICI_SUSPEND;
    if (is("fork") && arg.step == 2) pre.verb = AICI_FORK, pre.num_forks = (uint32_t)number;
    if (is("fork_bomb")) pre.verb = AICI_FORK, pre.num_forks = 2;
    return &pre;
}

static void sample(uint32_t kind, uint32_t row, uint32_t len) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SAMPLE, .row_kind = kind, .row = row, .row_len = len};
}

static void splice(uint32_t backtrack, uint32_t n) {
    mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_SPLICE, .backtrack = backtrack,
                            .ff_tokens = (uint32_t)(uintptr_t)tokens, .num_ff_tokens = n};
}

/* The default answer: allows the tokens 1 + (step mod 8) and 20. */
static void ok(void) {
    memset(mask, 0, sizeof mask);
    uint32_t token = 1 + arg.step % 8;
    mask[token >> 5] |= 1u << (token & 31);
    mask[0] |= 1u << 20;
    sample(AICI_ROW_BITMASK, (uint32_t)(uintptr_t)mask, 8192);
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    ok();
    if (is("group")) {
        printf("group of %u:", arg.num_group);
        for (uint32_t i = 0; i < arg.num_group && i < AICI_INLINE_GROUP; i++) printf(" %u", arg.group[i]);
        printf("; I am %u\n", arg.seq_id);
    }
    if (is("tokens")) {
        uint32_t got = aici_read(AICI_TOKENS, 0, tokens, sizeof tokens) / 4, sum = 0;
        for (uint32_t i = 0; i < got; i++) sum += tokens[i];
        printf("%u tokens (%u), sum %u, inline %u\n", got, arg.num_tokens, sum, arg.tokens[1]);
    }
    if (arg.step < 2) return &mid;
    common("mid");
    if (is("mid_slow")) {
        if (arg.step == 2)
            for (volatile unsigned i = 0; i < (unsigned)number * 1000000u; i++) {
            }
    }
    if (is("mid_bad_pointer")) return (aici_mid_result *)0xfffffff0u;
    if (is("mid_bad_size")) mid.size = 8;
    if (is("mid_bad_verb")) mid.verb = 17;
    if (is("mid_return_stop")) mid.verb = AICI_STOP;
    if (is("mid_bad_row")) mid.row = 0xfffffff0u;
    if (is("mid_short_row")) mid.row_len = 1;
    if (is("mid_bad_kind")) mid.row_kind = 9;
    if (is("mid_empty_mask")) memset(mask, 0, sizeof mask);
    if (is("mid_padding_mask")) memset(mask, 0, sizeof mask), mask[9] = 0xfffff000u; /* only bits beyond 300 */
    if (is("mid_infinite_temperature")) mid.temperature = INFINITY;
    if (is("temperature_largest")) mid.temperature = 3e38f;
    if (is("temperature")) mid.temperature = (float)number / 10;
    if (is("top")) mid.top_logprobs = (uint32_t)number;
    if (is("top_p")) mid.top_p = (float)number / 10;
    if (is("top_k")) mid.top_k = (uint32_t)number;
    if (is("min_p")) mid.min_p = (float)number / 10;
    if (is("typical_p")) mid.typical_p = (float)number / 10;
    if (is("top_n_sigma")) mid.top_n_sigma = (float)number / 10;
    if (is("min_p_nan")) mid.min_p = NAN;
    if (is("top_n_sigma_inf")) mid.top_n_sigma = INFINITY;
    if (is("without_truncation")) mid.min_p = 0.5f, mid.size = offsetof(aici_mid_result, top_p);
    if (is("all")) sample(AICI_ROW_ALL, 0, 0);
    if (is("token")) sample(AICI_ROW_TOKEN, (uint32_t)number, 0);
    if (is("same")) sample(AICI_ROW_SAME, 0, 0);
    if (is("same_twice")) { /* allows one token, and the same one in the next two steps */
        uint32_t token = arg.step - arg.step % 3;
        printf("%u\n", arg.step);
        memset(mask, 0, sizeof mask), mask[token / 32] = 1u << token % 32;
        if (arg.step > 3 && arg.step % 3 != 0) sample(AICI_ROW_SAME, 0, 0);
    }
    if (is("sparse") || is("sparse_nan") || is("sparse_many") || is("sparse_default") || is("sparse_empty")) {
        sparse[0] = (aici_bias){3, is("sparse_nan") ? NAN : 0.5f};
        sparse[1] = (aici_bias){(uint32_t)number, -1.0f};
        sample(AICI_ROW_SPARSE, (uint32_t)(uintptr_t)sparse, is("sparse_many") ? 1000 : 2);
        mid.row_default = is("sparse_default") ? 3.0f : -INFINITY;
        if (is("sparse_empty")) mid.row_len = 0;
    }
    if (is("dense") || is("dense_inf") || is("dense_short") || is("dense_empty")) {
        for (int i = 0; i < 262144; i++) dense[i] = is("dense_empty") ? -INFINITY : (float)i;
        if (is("dense_inf")) dense[5] = INFINITY;
        sample(AICI_ROW_DENSE, (uint32_t)(uintptr_t)dense, is("dense_short") ? 5 : 262144);
    }
    if (is("look") || is("look_on") || is("look_slow")) { /* number: of likely tokens; 0: all logits */
        uint32_t size = aici_read(AICI_LOGITS, 0, dense, sizeof dense), looked = arg.flags & AICI_ARG_LOOKED;
        printf("%s %u bytes, %.1f, top %u\n", looked ? "looked" : "blind", size, size ? (double)dense[5] : 0, arg.num_top);
        if (!looked || is("look_on")) mid = (aici_mid_result){.size = sizeof mid, .verb = AICI_LOOK, .top_logprobs = (uint32_t)number};
        if (looked && is("look_slow"))
            for (volatile unsigned i = 0; i < 8000000u; i++) {
            }
    }
    if (is("splice")) tokens[0] = 7, tokens[1] = 8, splice((uint32_t)number, 2);
    if (is("splice_nothing")) splice(0, 0);
    if (is("relay")) { /* the child replaces its parent */
        splice(0, 0);
        if (arg.seq_id == arg.group[0]) mid.verb = AICI_STOP;
    }
    if (is("wait")) { /* a sequence waits for another one that does nothing */
        waits = waits || arg.seq_id != arg.group[0];
        splice(0, 0);
    }
    if (is("splice_token")) tokens[0] = 0x7fffffff, splice(0, 1);
    if (is("splice_long")) splice(0, 1000000);
    if (is("splice_pointer")) splice(0, 2), mid.ff_tokens = 0xfffffff0u;
    if (is("vocabulary")) aici_vocabulary();
    if (is("memory_bomb"))
        for (;;) {
            void *block = malloc(1 << 20);
            if (!block) __builtin_trap();
            *(volatile char *)block = 1; /* filling the block would reach the time limit first */
        }
    if (is("log_flood"))
        for (int i = 0; i < 6000; i++) printf("%08d flood\n", i);
    if (is("log_bulk")) {
        static char text[60000];
        memset(text, 'x', sizeof text);
        fwrite(text, 1, sizeof text, stdout);
    }
    if (is("print")) printf("step %u\n", arg.step), fprintf(stderr, "to stderr\n");
    if (is("wild_read")) aici_read(AICI_ARG, 0, (void *)0xfffffffe, 40);
    if (is("wild_source")) aici_read(99, 0, tokens, 4);
    if (is("wild_tokenize")) aici_tokenize((void *)0xfffffff0u, 0xfff);
    if (is("wild_name")) aici_var_get((char *)0xfffffff0u, 0xff, 0);
    if (is("long_name")) aici_var_write((char *)tokens, 8192, "x", 1, AICI_SET, AICI_ANY_VERSION);
    if (is("variable_flood"))
        for (int i = 0;; i++) {
            char name[32];
            aici_var_write(name, (uint32_t)snprintf(name, sizeof name, "v%d", i), "x", 1, AICI_SET, AICI_ANY_VERSION);
        }
    if (is("variable_grow"))
        for (;;) aici_var_write("v", 1, dense, sizeof dense, AICI_APPEND, AICI_ANY_VERSION);
    if (is("variable_op")) aici_var_write("v", 1, "x", 1, 7, AICI_ANY_VERSION);
    if (is("fopen")) printf("fopen: %s\n", fopen("/etc/passwd", "r") ? "opened" : "refused");
    if (is("tokenize")) {
        uint32_t n = aici_tokenize("hello\xff", 6);
        aici_read(AICI_TOKENIZED, 0, tokens, sizeof tokens);
        printf("tokenized into %u:", n);
        for (uint32_t i = 0; i < n; i++) printf(" %u", tokens[i]);
        printf("\n%s\n", aici_tokenize("\0", 1) == AICI_NO_TOKENS ? "a zero byte cannot be spelled" : "?");
    }
    if (is("capabilities")) {
        for (uint32_t i = 0; i < 11; i++) printf("%u ", aici_capability(i));
        printf("\n");
    }
    if (is("random")) printf("random %d %d\n", rand() % 2, (int)arc4random() & 0xffff);
    return &mid;
}
