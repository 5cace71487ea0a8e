/* pyctrl: the argument is a script in Python, which is asked for every token. */
#include <stdio.h>
#include <string.h>

#include "aici.h"
#include "aici_library.h"
#include "py/builtin.h"
#include "py/compile.h"
#include "py/gc.h"
#include "py/mphal.h"
#include "py/runtime.h"
#include "py/stackctrl.h"

AICI_CONTROLLER

enum {
    HEAP_BYTES = 256 << 10, /* to begin with */
    HEAP_LIMIT = 32 << 20,  /* of all areas; malloc rounds up to powers of two, and a module may have 64 MiB */
    STACK_LIMIT = 64 << 10, /* of interpreter.toml's; the rest is for what looks at it seldom */
};

static aici_step_arg arg = {.size = sizeof arg};
static aici_mid_result result = {.size = sizeof result};
static char heap[HEAP_BYTES] __attribute__((aligned(16)));
static int collection_is_due;

MP_REGISTER_ROOT_POINTER(mp_obj_t aici_mid_process_function);

/* ---- memory ---- */

/* The locals of Wasm are out of reach, so nothing may be collected while the interpreter runs. */
void gc_collect(void) { collection_is_due = 1; }

static void collect_if_due(void) {
    if (!collection_is_due) return;
    collection_is_due = 0;
    gc_collect_start();
    gc_collect_end();
}

size_t gc_get_max_new_split(void) {
    size_t used = 0;
    for (const mp_state_mem_area_t *area = &MP_STATE_MEM(area); area != NULL; area = area->next)
        used += area->gc_pool_end - area->gc_alloc_table_start;
    return used < HEAP_LIMIT ? HEAP_LIMIT - used : 0;
}

/* ---- input and output ---- */

int mp_hal_stdin_rx_chr(void) { return 4; /* the end, as it is typed */ }
uintptr_t mp_hal_stdio_poll(uintptr_t flags) {
    (void)flags;
    return 0;
}

mp_uint_t mp_hal_stdout_tx_strn(const char *text, size_t length) { return fwrite(text, 1, length, stdout); }
void mp_hal_stdout_tx_strn_cooked(const char *text, size_t length) { fwrite(text, 1, length, stdout); }
void mp_hal_stdout_tx_str(const char *text) { fputs(text, stdout); }

/* ---- imports ---- */

mp_import_stat_t mp_import_stat(const char *path) {
    return strcmp(path, "aici.py") == 0 ? MP_IMPORT_STAT_FILE : MP_IMPORT_STAT_NO_EXIST;
}

mp_lexer_t *mp_lexer_new_from_file(qstr name) {
    return mp_lexer_new_from_str_len(name, aici_library, aici_library_length, 0);
}

static mp_obj_t no_files(size_t count, const mp_obj_t *values, mp_map_t *named) {
    (void)count, (void)values, (void)named;
    mp_raise_msg(&mp_type_OSError, MP_ERROR_TEXT("controllers have no files"));
}
MP_DEFINE_CONST_FUN_OBJ_KW(mp_builtin_open_obj, 1, no_files);

/* ---- errors ---- */

void nlr_jump_fail(void *value) {
    (void)value;
    static const char message[] = "an error of the script that nothing catches";
    aici_fail(message, sizeof message - 1);
}

static void fail_with(mp_obj_t error) {
    vstr_t text;
    mp_print_t print;
    vstr_init_print(&text, 256, &print);
    mp_obj_print_exception(&print, error);
    aici_fail(text.buf, text.len);
}

/* ---- the script ---- */

static void run(const char *source, size_t length) {
    mp_lexer_t *lexer = mp_lexer_new_from_str_len(qstr_from_str("script"), source, length, 0);
    qstr name = lexer->source_name;
    mp_parse_tree_t tree = mp_parse(lexer, MP_PARSE_FILE_INPUT);
    mp_call_function_0(mp_compile(&tree, name, false));
    MP_STATE_VM(aici_mid_process_function) = mp_load_global(MP_QSTR_mid_process);
}

AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }

AICI_EXPORT(aici_init) int aici_init(uint32_t length) {
    mp_stack_ctrl_init();
    mp_stack_set_limit(STACK_LIMIT);
    gc_init(heap, heap + sizeof heap);
    mp_init();
    nlr_buf_t jump;
    if (nlr_push(&jump) != 0) fail_with(jump.ret_val);
    char *source = m_new(char, length + 1);
    aici_read(AICI_ARG, 0, source, length);
    run(source, length);
    nlr_pop();
    collect_if_due();
    return 0;
}

AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    nlr_buf_t jump;
    if (nlr_push(&jump) != 0) fail_with(jump.ret_val);
    int sampled = arg.num_tokens > 0 ? (int)arg.tokens[arg.num_tokens - 1] : -1;
    mp_obj_t answer = mp_call_function_1(MP_STATE_VM(aici_mid_process_function), mp_obj_new_int(sampled));
    int token = mp_obj_get_int(answer);
    nlr_pop();
    collect_if_due();
    result.verb = token < 0 ? AICI_STOP : AICI_SAMPLE;
    result.row_kind = AICI_ROW_TOKEN;
    result.row = token;
    return &result;
}
