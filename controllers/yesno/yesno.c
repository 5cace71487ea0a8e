/* yesno: the model answers "Yes" or "No" and stops. In plain C, with only aici.h.
 *
 * The model samples the first token of an answer. If the tokenizer splits the answer further, the
 * controller forces the rest. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "aici.h"

AICI_CONTROLLER

enum { MAX_TOKENS = 8 };

static aici_step_arg arg = {.size = sizeof arg};
static aici_mid_result result = {.size = offsetof(aici_mid_result, top_p)};

static const char *const answers[2] = {"Yes", "No"};
static uint32_t tokens[2][MAX_TOKENS];
static uint32_t num_tokens[2];
static uint32_t *mask, mask_words;

static int answer = -1;   /* the index of the chosen answer */
static uint32_t position; /* the number of its tokens so far */

static void fail(const char *message) { aici_fail(message, strlen(message)); }

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t arg_len) {
    if (arg_len != 0) fail("yesno takes no argument");
    const aici_vocabulary_header *vocabulary = aici_vocabulary();
    mask_words = vocabulary->mask_words;
    mask = calloc(mask_words, sizeof *mask);
    if (mask == NULL) fail("out of memory");
    for (int i = 0; i < 2; i++) {
        num_tokens[i] = aici_tokenize(answers[i], strlen(answers[i]));
        if (num_tokens[i] > MAX_TOKENS) fail("the vocabulary cannot spell the answers in a few tokens");
        aici_read(AICI_TOKENIZED, 0, tokens[i], sizeof tokens[i]);
        mask[tokens[i][0] >> 5] |= 1u << (tokens[i][0] & 31);
    }
    return 0;
}

static void take_note(uint32_t token) {
    if (answer < 0) answer = token == tokens[0][0] ? 0 : 1;
    if (position >= num_tokens[answer] || token != tokens[answer][position])
        fail("a token was appended that belongs to neither answer");
    position++;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    for (uint32_t i = 0; i < arg.num_tokens && i < AICI_INLINE_TOKENS; i++) take_note(arg.tokens[i]);
    result.verb = AICI_SAMPLE;
    if (answer < 0) {
        result.row_kind = AICI_ROW_BITMASK;
        result.row = (uint32_t)(uintptr_t)mask;
        result.row_len = mask_words;
    } else if (position < num_tokens[answer]) {
        result.row_kind = AICI_ROW_TOKEN;
        result.row = tokens[answer][position];
    } else {
        result.verb = AICI_STOP;
    }
    return &result;
}
