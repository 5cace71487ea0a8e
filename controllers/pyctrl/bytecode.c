/* MicroPython's bytecode loop, which at jumps also collects garbage and looks whether time is left.
 *
 * A collection is safe if no active function keeps an object in WebAssembly locals only. Three things are known to be
 * safe: the loop, whose stack and variables are an array; a call of a Python function by the loop, whose function and
 * arguments stay in the caller's array; and `await` of a coroutine, which also stays in that array. Such calls are
 * plain. Every other way from bytecode to bytecode goes through C functions, for example `sorted(key=...)`, `sum` of a
 * generator, or the creation of an object. While such a call is active, nothing is collected. */
#pragma clang diagnostic ignored "-Weverything"
#include <alloca.h>
#include <string.h>

#include "garbage.h"
#include "interpreter.h"
#include "py/bc.h"
#include "py/bc0.h"
#include "py/gc.h"
#include "py/objfun.h"
#include "py/objgenerator.h"
#include "py/runtime.h"
#include "script.h"

#include "py/objclosure.c"

/* A run of the loop. It is on the C stack, which is scanned, so its state stays alive even if it is in the heap. */
typedef struct activation {
  struct activation *outer;
  mp_code_state_t *code_state;
  /* Whether all runs up to the host's call were called plainly. */
  bool is_plain;
} activation;

static activation *innermost;
/* Whether the next run is called plainly. Set right before the call, and cleared as soon as anything else happens. */
static bool is_plain_next;

/* Where the runtime says that time runs out; the word `done` once the error was raised. */
static const volatile uint32_t *flags;
static const volatile uint32_t done;

void enter_bytecode(void) {
  flags = script_flags();
  innermost = NULL;
  is_plain_next = false;
}

void call_is_plain(void) { is_plain_next = true; }

/* `except Exception` does not catch it. */
static MP_DEFINE_CONST_OBJ_TYPE(time_limit_error, MP_QSTR_TimeLimitError, MP_TYPE_FLAG_NONE, make_new,
                                mp_obj_exception_make_new, print, mp_obj_exception_print, attr, mp_obj_exception_attr,
                                parent, &mp_type_BaseException);

static void at_jump(void) {
  if (*flags & SCRIPT_HURRY) {
    flags = &done;
    mp_raise_msg(&time_limit_error, MP_ERROR_TEXT(SCRIPT_HURRY_MESSAGE));
  }
  if (innermost->is_plain) collect_under_bytecode();
}

static mp_obj_t call(mp_obj_t function, size_t num_args, size_t num_keywords, const mp_obj_t *args) {
  is_plain_next = mp_obj_is_type(function, &mp_type_fun_bc);
  const mp_obj_t result = mp_call_function_n_kw(function, num_args, num_keywords, args);
  is_plain_next = false;
  return result;
}

static mp_obj_t call_function(mp_obj_t function, size_t num_args, size_t num_keywords, const mp_obj_t *args) {
  if (mp_obj_is_type(function, &mp_type_closure)) {
    const mp_obj_closure_t *const closure = MP_OBJ_TO_PTR(function);
    /* like closure_call, but never with an array in the heap, since only a C function would refer to it */
    const size_t num_all = num_args + 2 * num_keywords;
    mp_obj_t *const all = alloca((closure->n_closed + num_all) * sizeof *all);
    memcpy(all, closure->closed, closure->n_closed * sizeof *all);
    memcpy(all + closure->n_closed, args, num_all * sizeof *all);
    return call(closure->fun, closure->n_closed + num_args, num_keywords, all);
  }
  return call(function, num_args, num_keywords, args);
}

/* args: the function, `self` or MP_OBJ_NULL, and the arguments. The loop also makes the calls at the start and the end
 * of `with` in this way. They are not plain, since the loop then keeps the value that it returns in a local
 * variable. */
static mp_obj_t call_method(size_t num_args, size_t num_keywords, const mp_obj_t *args) {
  if (*innermost->code_state->ip != MP_BC_CALL_METHOD) return mp_call_method_n_kw(num_args, num_keywords, args);
  const bool has_self = args[1] != MP_OBJ_NULL;
  return call_function(args[0], num_args + has_self, num_keywords, args + 2 - has_self);
}

static mp_vm_return_kind_t resume(mp_obj_t coroutine, mp_obj_t sent, mp_obj_t thrown, mp_obj_t *result) {
  is_plain_next = thrown == MP_OBJ_NULL && mp_obj_is_type(coroutine, &mp_type_gen_instance);
  const mp_vm_return_kind_t kind = mp_resume(coroutine, sent, thrown, result);
  is_plain_next = false; /* a finished coroutine runs nothing */
  return kind;
}

static mp_vm_return_kind_t loop(mp_code_state_t *code_state, volatile mp_obj_t inject_exc);

/* Runs the loop, which ends by returning a value, never by a jump. */
mp_vm_return_kind_t mp_execute_bytecode(mp_code_state_t *code_state, volatile mp_obj_t inject_exc) {
  activation here = {innermost, code_state, is_plain_next && (innermost == NULL || innermost->is_plain)};
  is_plain_next = false;
  innermost = &here;
  const mp_vm_return_kind_t kind = loop(code_state, inject_exc);
  innermost = here.outer;
  is_plain_next = false;
  return kind;
}

#undef MICROPY_WRAP_MP_EXECUTE_BYTECODE
#define MICROPY_WRAP_MP_EXECUTE_BYTECODE(name) static loop
/* also where an exception is caught, since the announced call may not have happened */
#undef MICROPY_VM_HOOK_INIT
#define MICROPY_VM_HOOK_INIT is_plain_next = false;
#undef MICROPY_VM_HOOK_LOOP
#define MICROPY_VM_HOOK_LOOP \
  if (is_collection_due | (*flags & SCRIPT_HURRY)) { \
    MARK_EXC_IP_SELECTIVE();                         \
    at_jump();                                       \
  }
#define mp_call_function_n_kw call_function
#define mp_call_method_n_kw call_method
#define mp_resume resume
#include "py/vm.c"
#undef mp_call_function_n_kw
#undef mp_call_method_n_kw
#undef mp_resume
