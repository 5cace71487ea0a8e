/* mpconfigport.h - the configuration of MicroPython: the whole language, without files, threads and a prompt. */
#ifndef AICI_MPCONFIGPORT_H
#define AICI_MPCONFIGPORT_H

#include <alloca.h>
#include <stdint.h>
#include <stdlib.h>

#define MICROPY_CONFIG_ROM_LEVEL (MICROPY_CONFIG_ROM_LEVEL_EXTRA_FEATURES)

/* exceptions are jumps */
#define MICROPY_NLR_SETJMP (1)
#define MICROPY_OPT_COMPUTED_GOTO (0)

/* the language */
#define MICROPY_ENABLE_COMPILER (1)
#define MICROPY_FLOAT_IMPL (MICROPY_FLOAT_IMPL_DOUBLE)
#define MICROPY_LONGINT_IMPL (MICROPY_LONGINT_IMPL_MPZ)
#define MICROPY_PY_ASYNC_AWAIT (1)
#define MICROPY_ERROR_REPORTING (MICROPY_ERROR_REPORTING_DETAILED)
#define MICROPY_ENABLE_SOURCE_LINE (1)
#define MICROPY_STACK_CHECK (1)

/* memory grows by whole areas, up to MOST_HEAP (garbage.c); objects have no finalisers */
#define MICROPY_ENABLE_GC (1)
#define MICROPY_GC_SPLIT_HEAP (1)
#define MICROPY_GC_SPLIT_HEAP_AUTO (1)
#define MICROPY_ENABLE_FINALISER (0)
/* gc_sweep takes an area for empty if its last used block is the first one, even while that one is in use. Such an area
 * stays in the list: `area` follows `prev_area` there. */
#define MP_PLAT_FREE_HEAP(area)           \
  do {                                    \
    if (ATB_GET_KIND(area, 0) == AT_FREE) \
      free(area);                         \
    else                                  \
      prev_area = prev_area->next = area; \
  } while (0)
/* Blocks that are marked but not yet scanned, while marking. If more objects wait, the whole heap is scanned again: up
 * to once for so many objects, so with MicroPython's 64, lists in lists took time that is quadratic in their number. */
#define MICROPY_ALLOC_GC_STACK_SIZE (4096)

/* `import aici` finds the library that is compiled in */
#define MICROPY_ENABLE_EXTERNAL_IMPORT (1)
#define MICROPY_READER_VFS (0)
#define MICROPY_VFS (0)
#define MICROPY_MODULE_BUILTIN_SUBPACKAGES (0)

/* output uses the printf of libc; `print` has the argument `file` only if sys has stdout */
#define MICROPY_PY_SYS_STDFILES (1)
#define MICROPY_USE_INTERNAL_PRINTF (0)
#define MICROPY_PY_SYS_PLATFORM "aici"
#define MICROPY_HW_BOARD_NAME "aici"
#define MICROPY_HW_MCU_NAME "wasm32"

/* there is no keyboard, and nothing interrupts */
#define MICROPY_ENABLE_SCHEDULER (0)
#define MICROPY_HELPER_REPL (0)
#define MICROPY_KBD_EXCEPTION (0)
#define MICROPY_PY_BUILTINS_EXECFILE (0)
#define MICROPY_PY_BUILTINS_HELP (0)
#define MICROPY_PY_BUILTINS_INPUT (0)
#define MICROPY_PY_SYS_PS1_PS2 (0)
#define MICROPY_PY_SYS_STDIO_BUFFER (0)
#define MICROPY_PY_THREAD (0)
#define MICROPY_REPL_AUTO_INDENT (0)

/* modules whose sources are not in the distribution */
#define MICROPY_PY_ASYNCIO (0)
#define MICROPY_PY_BINASCII (0)
#define MICROPY_PY_DEFLATE (0)
#define MICROPY_PY_FRAMEBUF (0)
#define MICROPY_PY_HASHLIB (0)
#define MICROPY_PY_HEAPQ (0)
#define MICROPY_PY_JSON (0)
#define MICROPY_PY_MACHINE (0)
#define MICROPY_PY_OS (0)
#define MICROPY_PY_PLATFORM (0)
#define MICROPY_PY_RANDOM (0)
#define MICROPY_PY_RE (0)
#define MICROPY_PY_SELECT (0)
#define MICROPY_PY_TIME (0)
#define MICROPY_PY_UCTYPES (0)

typedef intptr_t mp_int_t;
typedef uintptr_t mp_uint_t;
typedef long mp_off_t;

#define MP_STATE_PORT MP_STATE_VM

#endif /* AICI_MPCONFIGPORT_H */
