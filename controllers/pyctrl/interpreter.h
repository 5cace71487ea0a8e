/* interpreter.h - declarations shared by the files of pyctrl. */
#ifndef AICI_PYCTRL_INTERPRETER_H
#define AICI_PYCTRL_INTERPRETER_H

/* The heap's part of a controller's 64 MiB (malloc rounds up to powers of two). With this limit, a script gets a
 * MemoryError before the runtime ends it. */
#define MOST_HEAP (32 * 1024 * 1024)

#endif /* AICI_PYCTRL_INTERPRETER_H */
