/* pyctrl: runs a script in Python as a controller: aici run my_script.py. The argument is the script, which
 * MicroPython executes.
 *
 * This file is the interpreter as the core of script controllers sees it (script.h). */
#include "interpreter.h"

#include <string.h>

#include "aici_library.h"
#include "garbage.h"
#include "output.h"
#include "py/builtin.h"
#include "py/compile.h"
#include "py/gc.h"
#include "py/mperrno.h"
#include "py/objgenerator.h"
#include "py/objmodule.h"
#include "py/runtime.h"
#include "py/stackctrl.h"
#include "script.h"

const char interpreter_language[] = "Python";

/* Limit on the C stack, which is a part of linear memory, for nested calls. */
#define STACK_LIMIT (128 * 1024)
/* The first part of the heap; more is added when it is full. */
#define FIRST_HEAP (64 * 1024)

MP_REGISTER_ROOT_POINTER(mp_obj_t aici_main);
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_call);
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_ended);
MP_REGISTER_ROOT_POINTER(mp_obj_t aici_callbacks[5]);

static char first_heap[FIRST_HEAP] __attribute__((aligned(16)));

static const qstr callback_names[] = {MP_QSTR_main, MP_QSTR_init_prompt, MP_QSTR_pre_process, MP_QSTR_mid_process,
                                      MP_QSTR_post_process};

/* ---- memory ---- */

void interpreter_idle(void) {
  flush_output();
  collect_if_due();
}

/* Stack use counts from the position of the stack when the host calls. */
static void enter(void) {
  enter_bytecode();
  mp_stack_ctrl_init();
}

/* ---- running ---- */

static void run(qstr name, script_text source, mp_obj_dict_t *globals) {
  mp_lexer_t *lexer = mp_lexer_new_from_str_len(name, source.data, source.size, 0);
  mp_parse_compile_execute(lexer, MP_PARSE_FILE_INPUT, globals, globals);
}

static void load_library(script_text argument) {
  const mp_obj_t module = mp_obj_new_module(MP_QSTR_aici);
  mp_obj_dict_t *globals = mp_obj_module_get_globals(module);
  mp_obj_dict_store(MP_OBJ_FROM_PTR(globals), MP_OBJ_NEW_QSTR(MP_QSTR__argument),
                    mp_obj_new_str(argument.data, argument.size));
  run(qstr_from_str("aici.py"), (script_text){aici_library, aici_library_length}, globals);
  MP_STATE_VM(aici_call) = mp_obj_dict_get(MP_OBJ_FROM_PTR(globals), MP_OBJ_NEW_QSTR(MP_QSTR__call));
  MP_STATE_VM(aici_ended) = mp_obj_dict_get(MP_OBJ_FROM_PTR(globals), MP_OBJ_NEW_QSTR(MP_QSTR__ended));
}

bool interpreter_load(script_text name, script_text source, script_text argument) {
  enter();
  mp_stack_set_limit(STACK_LIMIT);
  gc_init(first_heap, first_heap + sizeof first_heap);
  garbage_begin();
  mp_init();
  nlr_buf_t nlr;
  if (nlr_push(&nlr) != 0) return keep_failure(MP_OBJ_FROM_PTR(nlr.ret_val)), false;
  load_library(argument);
  mp_obj_dict_t *globals = &MP_STATE_VM(dict_main);
  call_is_plain();
  run(qstr_from_strn(name.data, name.size), source, globals);
  for (size_t i = 0; i < MP_ARRAY_SIZE(callback_names); i++) {
    mp_map_elem_t *found = mp_map_lookup(&globals->map, MP_OBJ_NEW_QSTR(callback_names[i]), MP_MAP_LOOKUP);
    MP_STATE_VM(aici_callbacks)[i] = found == NULL ? MP_OBJ_NULL : found->value;
  }
  nlr_pop();
  return true;
}

bool interpreter_has(script_callback which) { return MP_STATE_VM(aici_callbacks)[which] != MP_OBJ_NULL; }

static mp_obj_t start_main(void) {
  const mp_obj_t main = mp_call_function_0(MP_STATE_VM(aici_callbacks)[SCRIPT_MAIN]);
  if (!mp_obj_is_type(main, &mp_type_gen_instance))
    mp_raise_TypeError(MP_ERROR_TEXT("main must be a coroutine: write async def main()"));
  return main;
}

script_state interpreter_resume(void) {
  enter();
  nlr_buf_t nlr;
  if (nlr_push(&nlr) != 0) return keep_failure(MP_OBJ_FROM_PTR(nlr.ret_val)), SCRIPT_FAILED;
  if (MP_STATE_VM(aici_main) == MP_OBJ_NULL) MP_STATE_VM(aici_main) = start_main();
  mp_obj_t value = mp_const_none;
  call_is_plain();
  const mp_vm_return_kind_t kind = mp_resume(MP_STATE_VM(aici_main), mp_const_none, MP_OBJ_NULL, &value);
  /* collections do not see the error in `value`, but none can run during this call, which comes from C */
  if (kind != MP_VM_RETURN_YIELD) mp_call_function_0(MP_STATE_VM(aici_ended));
  nlr_pop();
  if (kind == MP_VM_RETURN_YIELD) return SCRIPT_AWAITS;
  if (kind == MP_VM_RETURN_NORMAL) return SCRIPT_ENDED;
  return keep_failure(value), SCRIPT_FAILED;
}

bool interpreter_call(script_callback which) {
  enter();
  nlr_buf_t nlr;
  if (nlr_push(&nlr) != 0) return keep_failure(MP_OBJ_FROM_PTR(nlr.ret_val)), false;
  const mp_obj_t name = MP_OBJ_NEW_QSTR(callback_names[which]);
  call_is_plain();
  mp_call_function_2(MP_STATE_VM(aici_call), name, MP_STATE_VM(aici_callbacks)[which]);
  nlr_pop();
  return true;
}

/* ---- functions that MicroPython expects from its port ---- */

void nlr_jump_fail(void *value) {
  (void)value;
  static const char message[] = "an exception of Python that nothing catches";
  script_fail((script_text){message, sizeof message - 1});
}

/* Returns the library module with this file name, or NULL. */
static const library_file *find_module(const char *name) {
  for (const library_file *file = library_files; file->name != NULL; file++)
    if (strcmp(file->name, name) == 0) return file;
  return NULL;
}

mp_lexer_t *mp_lexer_new_from_file(qstr name) {
  const library_file *const file = find_module(qstr_str(name));
  if (file == NULL) mp_raise_OSError(MP_ENOENT);
  return mp_lexer_new_from_str_len(name, file->text, file->length, 0);
}

mp_import_stat_t mp_import_stat(const char *path) {
  return find_module(path) != NULL ? MP_IMPORT_STAT_FILE : MP_IMPORT_STAT_NO_EXIST;
}

static mp_obj_t no_files(size_t count, const mp_obj_t *arguments, mp_map_t *keywords) {
  (void)count, (void)arguments, (void)keywords;
  mp_raise_msg(&mp_type_OSError, MP_ERROR_TEXT("a controller has no files"));
}
MP_DEFINE_CONST_FUN_OBJ_KW(mp_builtin_open_obj, 0, no_files);
