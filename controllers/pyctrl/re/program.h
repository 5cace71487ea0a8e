/* program.h - regular expressions of the module re: parse trees, programs, and their runs. */
#ifndef AICI_PYCTRL_RE_PROGRAM_H
#define AICI_PYCTRL_RE_PROGRAM_H

#include "py/obj.h"

/* ---- limits: a run takes at most (characters) * (states) steps, and memory for 2 * RE_MOST_KEPT positions ---- */

/* Maximum nesting of groups, since the parser and the emitter recurse. */
#define RE_MOST_NESTING 100
/* Maximum nesting of repetitions whose body may be empty. Each level may double the number of states. */
#define RE_MOST_EMPTY_LOOPS 8
/* Maximum number of states of a program. An instruction has one, or 2^n within n such repetitions. */
#define RE_MOST_STATES 30000
/* Maximum of threads times the positions that each keeps: two for every group. */
#define RE_MOST_KEPT (1 << 18)

enum { RE_IGNORECASE = 2, RE_MULTILINE = 8, RE_DOTALL = 16, RE_UNICODE = 32, RE_VERBOSE = 64, RE_ASCII = 256 };

extern const mp_obj_type_t re_error_type;

/* ---- characters ---- */

typedef struct re_class {
  /* For each of the first 128 characters, a bit: whether it is in the class. */
  uint32_t low[4];
  /* The ranges: pairs of characters, both included. */
  uint32_t first, count;
  /* Bits of re_category. */
  uint8_t categories;
  bool negated, fold, ascii;
} re_class;

typedef enum {
  RE_DIGIT = 1,
  RE_NO_DIGIT = 2,
  RE_SPACE = 4,
  RE_NO_SPACE = 8,
  RE_WORD = 16,
  RE_NO_WORD = 32
} re_category;

/* Returns the lower-case (or upper-case) form of a letter; other characters stay. `ascii`: only A to Z. */
uint32_t re_lower(uint32_t c, bool ascii);
uint32_t re_upper(uint32_t c, bool ascii);
bool re_is_word(uint32_t c, bool ascii);
bool re_is_space(uint32_t c, bool ascii);
/* Returns whether the class contains a character, by its ranges and categories. */
bool re_class_has(const re_class *one, const uint32_t *ranges, uint32_t c);

/* ---- the tree ---- */

typedef enum { RE_AT_START, RE_AT_END, RE_AT_LINE, RE_AT_LINE_END, RE_AT_STOP, RE_AT_EDGE, RE_AT_NO_EDGE } re_place;

typedef enum {
  RE_EMPTY,
  RE_CHARACTER, /* a: the character; b: whether case is ignored */
  RE_ANY,       /* b: whether line ends match */
  RE_CLASS,     /* a: the number of the class */
  RE_PLACE,     /* a: re_place; b: whether words are ASCII */
  RE_GROUP,     /* a: the number of the group */
  RE_SEQUENCE,
  RE_EITHER,
  RE_REPEAT, /* a, b: minimum and maximum */
} re_kind;

#define RE_NONE UINT32_MAX

typedef struct re_node {
  uint8_t kind;
  bool lazy;
  uint32_t a, b;
  /* The numbers of the first child and of the next sibling, or RE_NONE. */
  uint32_t child, next;
} re_node;

typedef struct re_tree {
  re_node *nodes;
  size_t count, room;
  re_class *classes;
  size_t num_classes, classes_room;
  uint32_t *ranges;
  size_t num_ranges, ranges_room;
  uint32_t root;
  /* Without group 0, the whole match. */
  uint32_t num_groups;
  mp_obj_t names;
  uint32_t flags;
} re_tree;

/* Parses a str or bytes; raises re.error if it is invalid. */
void re_parse(re_tree *tree, mp_obj_t pattern, uint32_t flags);

/* ---- the program ---- */

typedef enum {
  RE_OP_CHARACTER, /* the character x */
  RE_OP_FOLDED,    /* x in lower or upper case */
  RE_OP_ANY,
  RE_OP_NO_LINE_END,
  RE_OP_CLASS, /* class number x */
  RE_OP_MATCH,
  RE_OP_KEEP,  /* keeps the position as number x */
  RE_OP_PLACE, /* x: re_place; y: whether words are ASCII */
  RE_OP_JUMP,  /* jumps to x */
  RE_OP_SPLIT, /* prefers x to y; if lazy, y to x */
  RE_OP_LOOP,  /* the same, but not x if the last iteration was empty */
} re_op;

typedef struct re_instruction {
  uint8_t op;
  /* The number of enclosing repetitions whose body may be empty. */
  uint8_t loops;
  bool lazy;
  uint32_t x, y;
  /* The number of its first state. */
  uint32_t state;
} re_instruction;

typedef struct re_program {
  re_instruction *code;
  uint32_t size, num_states, num_threads;
  re_class *classes;
  uint32_t *ranges;
  /* The number of positions that a thread keeps: start and end of each group, then the group that ended last. */
  uint32_t num_kept;
  bool bytes, ascii;
  /* Whether every match begins with one of the bytes in `begins`. */
  bool begins_somewhere;
  uint32_t begins[8];
} re_program;

/* Emits the program of a tree; raises re.error if it is too large. */
void re_emit(re_program *program, const re_tree *tree, bool bytes);

/* ---- runs ---- */

typedef struct re_matcher re_matcher;

typedef enum { RE_SEARCH, RE_HERE, RE_WHOLE } re_mode;

re_matcher *re_matcher_new(const re_program *program);
void re_matcher_free(re_matcher *matcher);
/* Returns the kept positions in bytes, with RE_NONE for groups that took no part; NULL if there is no match. With
 * `advance`, an empty match at `start` does not count. */
const uint32_t *re_run(re_matcher *matcher, const byte *text, uint32_t start, uint32_t end, re_mode mode,
                       bool advance);

#endif /* AICI_PYCTRL_RE_PROGRAM_H */
