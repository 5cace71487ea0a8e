/* garbage.h - when garbage is collected, and what is known to be in use then. */
#ifndef AICI_PYCTRL_GARBAGE_H
#define AICI_PYCTRL_GARBAGE_H

#include <stdbool.h>

/* So much has been allocated that a collection is due, or a script has asked for it. */
extern bool is_collection_due;

/* The heap is new. */
void garbage_begin(void);
/* While no code of the interpreter is active: all that is in use hangs on its root pointers. */
void collect_if_due(void);
/* While nothing but bytecode is active, whose state lies in the C stack and in the heap (bytecode.c). */
void collect_under_bytecode(void);

/* The host has called. */
void enter_bytecode(void);
/* What is called now runs bytecode before any function in C does anything else. */
void call_is_plain(void);

#endif /* AICI_PYCTRL_GARBAGE_H */
