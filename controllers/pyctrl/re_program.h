/* re_program.h - regular expressions of the module re: their text, a tree of it, a program, and its runs. */
#ifndef AICI_PYCTRL_RE_PROGRAM_H
#define AICI_PYCTRL_RE_PROGRAM_H

#include "py/obj.h"

/* ---- limits: a run costs at most (characters) * (states), and memory of MOST_KEPT positions twice ---- */

/* Groups in groups: reading and writing recurse. */
#define RE_MOST_NESTING 100
/* Repetitions within each other of what may be empty; each may double the states. */
#define RE_MOST_EMPTY_LOOPS 8
/* Of a program: an instruction is one, or two to the power of such repetitions around it. */
#define RE_MOST_STATES 30000
/* Threads times the positions that each keeps: two for every group. */
#define RE_MOST_KEPT (1 << 18)

enum { RE_IGNORECASE = 2, RE_MULTILINE = 8, RE_DOTALL = 16, RE_UNICODE = 32, RE_VERBOSE = 64, RE_ASCII = 256 };

extern const mp_obj_type_t re_error_type;

/* ---- characters ---- */

typedef struct re_class {
  /* Of the first 128 characters, a bit each: all of the class is in it. */
  uint32_t low[4];
  /* Its ranges: pairs, both ends included. */
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

/* The letter of a pair of a small and a capital one; others stay. `ascii`: A to Z only. */
uint32_t re_lower(uint32_t c, bool ascii);
uint32_t re_upper(uint32_t c, bool ascii);
bool re_is_word(uint32_t c, bool ascii);
bool re_is_space(uint32_t c, bool ascii);
/* Is it in the class, by its ranges and categories? */
bool re_class_has(const re_class *one, const uint32_t *ranges, uint32_t c);

/* ---- the tree ---- */

typedef enum { RE_AT_START, RE_AT_END, RE_AT_LINE, RE_AT_LINE_END, RE_AT_STOP, RE_AT_EDGE, RE_AT_NO_EDGE } re_place;

typedef enum {
  RE_EMPTY,
  RE_CHARACTER, /* a: the character, b: letters of both sizes */
  RE_ANY,       /* b: line ends too */
  RE_CLASS,     /* a: number of the class */
  RE_PLACE,     /* a: re_place, b: ASCII words */
  RE_GROUP,     /* a: its number */
  RE_SEQUENCE,
  RE_EITHER,
  RE_REPEAT, /* a, b: least and most */
} re_kind;

#define RE_NONE UINT32_MAX

typedef struct re_node {
  uint8_t kind;
  bool lazy;
  uint32_t a, b;
  /* The first child, and the next of the same parent: numbers of nodes, or RE_NONE. */
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
  /* Without the whole, which is group 0. */
  uint32_t num_groups;
  mp_obj_t names;
  uint32_t flags;
} re_tree;

/* Of a str or bytes. Raises re.error. */
void re_parse(re_tree *tree, mp_obj_t pattern, uint32_t flags);

/* ---- the program ---- */

typedef enum {
  RE_OP_CHARACTER, /* x */
  RE_OP_FOLDED,    /* x in either size */
  RE_OP_ANY,
  RE_OP_NO_LINE_END,
  RE_OP_CLASS, /* number x */
  RE_OP_MATCH,
  RE_OP_KEEP,  /* the position as number x */
  RE_OP_PLACE, /* x: re_place, y: ASCII words */
  RE_OP_JUMP,  /* to x */
  RE_OP_SPLIT, /* to x rather than y; lazy: y rather than x */
  RE_OP_LOOP,  /* the same, and not to x when the last time round was empty */
} re_op;

typedef struct re_instruction {
  uint8_t op;
  /* How many repetitions of what may be empty are around it. */
  uint8_t loops;
  bool lazy;
  uint32_t x, y;
  /* Its first state. */
  uint32_t state;
} re_instruction;

typedef struct re_program {
  re_instruction *code;
  uint32_t size, num_states, num_threads;
  re_class *classes;
  uint32_t *ranges;
  /* Positions that a thread keeps: start and end of each group, and at last the number of the group that ended last. */
  uint32_t num_kept;
  bool bytes, ascii;
  /* Where a match begins with one of these bytes only. */
  bool begins_somewhere;
  uint32_t begins[8];
} re_program;

/* Raises re.error where it would be too large. */
void re_emit(re_program *program, const re_tree *tree, bool bytes);

/* ---- its runs ---- */

typedef struct re_matcher re_matcher;

typedef enum { RE_SEARCH, RE_HERE, RE_WHOLE } re_mode;

re_matcher *re_matcher_new(const re_program *program);
void re_matcher_free(re_matcher *matcher);
/* The positions kept in bytes, RE_NONE for what took no part; NULL: no match. `advance`: an empty match at `start`
 * does not count. */
const uint32_t *re_run(re_matcher *matcher, const byte *text, uint32_t start, uint32_t end, re_mode mode,
                       bool advance);

#endif /* AICI_PYCTRL_RE_PROGRAM_H */
