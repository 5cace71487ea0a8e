/* interpreter.h - what the files of pyctrl share. */
#ifndef AICI_PYCTRL_INTERPRETER_H
#define AICI_PYCTRL_INTERPRETER_H

/* Of a controller's 64 MiB (malloc rounds up to powers of two), so that a script meets a MemoryError before
 * the runtime ends it. */
#define MOST_HEAP (32 * 1024 * 1024)

#endif /* AICI_PYCTRL_INTERPRETER_H */
