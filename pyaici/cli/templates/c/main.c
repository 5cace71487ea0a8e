/* NAME: begins the answer with a fixed text, lets the model go on, and ends the answer after some tokens.
 *
 * aici.h, and docs/abi.md of aici, say what every call and field means. */
#include <stdio.h>

#include "aici.h"

AICI_CONTROLLER

enum { MAX_TEXT = 256, MAX_FREE_TOKENS = 40 };

/* What a sequence remembers lives in ordinary variables: every fork gets its own copy of the memory. */
static char text[MAX_TEXT + 1] = "Let me think.";
static uint32_t text_len = 13;
static uint32_t forced[MAX_TEXT];
static int begun;
static int free_tokens;

static aici_step_arg arg = {.size = sizeof(arg)};
static aici_mid_result result = {.size = sizeof(result), .temperature = -1};

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

/* Once per argument (`aici run --arg TEXT`), before there is a prompt. Not 0 refuses the argument. */
AICI_EXPORT(aici_init) int aici_init(uint32_t arg_len) {
    if (arg_len > MAX_TEXT) {
        static const char message[] = "the text is longer than 256 bytes";
        aici_fail(message, sizeof(message) - 1);
    }
    if (arg_len > 0) {
        aici_read(AICI_ARG, 0, text, arg_len);
        text[arg_len] = 0;
        text_len = arg_len;
    }
    return 0;
}

/* Once per token, while the model computes the logits for the next one. */
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    if (!begun) {
        begun = 1;
        printf("the answer begins with: %s\n", text);
        uint32_t count = aici_tokenize(text, text_len); /* never more tokens than bytes */
        if (count == AICI_NO_TOKENS) {
            static const char message[] = "this model's tokenizer cannot spell the text";
            aici_fail(message, sizeof(message) - 1);
        }
        aici_read(AICI_TOKENIZED, 0, forced, sizeof(forced));
        result.verb = AICI_SPLICE;
        result.ff_tokens = (uint32_t)(uintptr_t)forced;
        result.num_ff_tokens = count;
    } else if (free_tokens < MAX_FREE_TOKENS) {
        free_tokens++;
        result.verb = AICI_SAMPLE;
        result.row_kind = AICI_ROW_ALL;
    } else {
        result.verb = AICI_STOP;
    }
    return &result;
}
