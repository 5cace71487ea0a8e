/* garbage.h - when garbage is collected, and how the objects in use are found. */
#ifndef AICI_PYCTRL_GARBAGE_H
#define AICI_PYCTRL_GARBAGE_H

#include <stdbool.h>

/* Whether a collection is due, because enough was allocated or a script asked for one. */
extern bool is_collection_due;

/* Prepares a new heap. */
void garbage_begin(void);
/* Collects if a collection is due. Call this only while no code of the interpreter is active: then the root pointers
 * lead to all objects in use. */
void collect_if_due(void);
/* Collects. Call this only while all active functions are bytecode, whose state is in the C stack and in the heap
 * (bytecode.c). */
void collect_under_bytecode(void);

/* Call this when the host calls the interpreter. */
void enter_bytecode(void);
/* Announces a plain call: the next call runs bytecode before any C function does anything else. */
void call_is_plain(void);

#endif /* AICI_PYCTRL_GARBAGE_H */
