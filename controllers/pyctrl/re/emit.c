/* Emits the program of a parsed regular expression.
 *
 * Repetitions behave as in Python: after an empty iteration, the body is not tried again at the same position. So a
 * thread has one bit for each enclosing repetition whose body may be empty: whether the iteration has been empty so
 * far. Any character clears the bits. Repetitions whose body always takes a character need no bit. */
#include <string.h>

#include "py/runtime.h"
#include "program.h"

typedef struct writer {
  re_program *program;
  const re_tree *tree;
  uint32_t room;
  /* The number of nodes written, including copies that emit nothing. */
  uint32_t written;
  uint8_t loops;
} writer;

__attribute__((noreturn)) static void fail_size(void) {
  mp_raise_msg_varg(&re_error_type,
                    MP_ERROR_TEXT("the pattern is too large: more than %d states (repetitions such as {1,1000} count "
                                  "what they repeat as often)"),
                    RE_MOST_STATES);
  __builtin_unreachable();
}

static uint32_t write(writer *out, re_op op, uint32_t x, uint32_t y) {
  re_program *const program = out->program;
  if (program->size == out->room) {
    const uint32_t room = out->room == 0 ? 32 : 2 * out->room;
    program->code = m_renew(re_instruction, program->code, out->room, room);
    out->room = room;
  }
  program->code[program->size] =
      (re_instruction){.op = (uint8_t)op, .loops = out->loops, .x = x, .y = y, .state = program->num_states};
  program->num_states += 1u << out->loops;
  if (program->num_states > RE_MOST_STATES) fail_size();
  program->num_threads += op <= RE_OP_MATCH;
  return program->size++;
}

/* Returns whether a node can match the empty text. */
static bool may_be_empty(const re_tree *tree, uint32_t number) {
  const re_node *const node = &tree->nodes[number];
  switch (node->kind) {
    case RE_CHARACTER:
    case RE_ANY:
    case RE_CLASS:
      return false;
    case RE_EMPTY:
    case RE_PLACE:
      return true;
    case RE_GROUP:
      return may_be_empty(tree, node->child);
    case RE_REPEAT:
      return node->a == 0 || may_be_empty(tree, node->child);
    case RE_EITHER:
      for (uint32_t child = node->child; child != RE_NONE; child = tree->nodes[child].next)
        if (may_be_empty(tree, child)) return true;
      return false;
    default: /* RE_SEQUENCE */
      for (uint32_t child = node->child; child != RE_NONE; child = tree->nodes[child].next)
        if (!may_be_empty(tree, child)) return false;
      return true;
  }
}

static void write_node(writer *out, uint32_t number);

static void write_either(writer *out, const re_node *node) {
  uint32_t ends = RE_NONE; /* jumps to the end; each names the previous one until the end is known */
  uint32_t child = node->child;
  for (;;) {
    const uint32_t next = out->tree->nodes[child].next;
    if (next == RE_NONE) break;
    const uint32_t split = write(out, RE_OP_SPLIT, out->program->size + 1, 0);
    write_node(out, child);
    ends = write(out, RE_OP_JUMP, ends, 0);
    out->program->code[split].y = out->program->size;
    child = next;
  }
  write_node(out, child);
  while (ends != RE_NONE) {
    const uint32_t before = out->program->code[ends].x;
    out->program->code[ends].x = out->program->size;
    ends = before;
  }
}

/* Emits the choice between another iteration at `body` and a target that is not known yet. */
static uint32_t write_choice(writer *out, const re_node *node, bool empty, uint32_t body) {
  const uint32_t at = write(out, empty ? RE_OP_LOOP : RE_OP_SPLIT, body, RE_NONE);
  out->program->code[at].lazy = node->lazy;
  return at;
}

static void write_endless(writer *out, const re_node *node, bool empty) {
  const uint32_t jump = node->a == 0 ? write(out, RE_OP_JUMP, 0, 0) : RE_NONE;
  for (uint32_t i = 1; i < node->a; i++) write_node(out, node->child);
  const uint32_t body = out->program->size;
  write_node(out, node->child);
  if (jump != RE_NONE) out->program->code[jump].x = out->program->size;
  const uint32_t choice = write_choice(out, node, empty, body);
  out->program->code[choice].y = out->program->size;
}

static void write_counted(writer *out, const re_node *node, bool empty) {
  for (uint32_t i = 0; i < node->a; i++) write_node(out, node->child);
  uint32_t ends = RE_NONE;
  for (uint32_t i = node->a; i < node->b; i++) {
    const uint32_t choice = write_choice(out, node, empty, out->program->size + 1);
    out->program->code[choice].y = ends;
    ends = choice;
    write_node(out, node->child);
  }
  while (ends != RE_NONE) {
    const uint32_t before = out->program->code[ends].y;
    out->program->code[ends].y = out->program->size;
    ends = before;
  }
}

static void write_repeat(writer *out, const re_node *node) {
  const bool empty = may_be_empty(out->tree, node->child);
  if (empty && out->loops == RE_MOST_EMPTY_LOOPS)
    mp_raise_msg_varg(&re_error_type, MP_ERROR_TEXT("more than %d repetitions within each other of what may be empty"),
                      RE_MOST_EMPTY_LOOPS);
  out->loops += empty;
  if (node->b == RE_NONE)
    write_endless(out, node, empty);
  else
    write_counted(out, node, empty);
  out->loops -= empty;
  /* clears the bit of this repetition after the last iteration too, since states outside do not have it */
  if (empty) write(out, RE_OP_JUMP, out->program->size + 1, 0);
}

static void write_node(writer *out, uint32_t number) {
  if (++out->written > 4 * RE_MOST_STATES) fail_size();
  const re_node *const node = &out->tree->nodes[number];
  switch (node->kind) {
    case RE_CHARACTER:
      write(out, node->b ? RE_OP_FOLDED : RE_OP_CHARACTER, node->a, 0);
      break;
    case RE_ANY:
      write(out, node->b ? RE_OP_ANY : RE_OP_NO_LINE_END, 0, 0);
      break;
    case RE_CLASS:
      write(out, RE_OP_CLASS, node->a, 0);
      break;
    case RE_PLACE:
      write(out, RE_OP_PLACE, node->a, node->b);
      break;
    case RE_GROUP:
      write(out, RE_OP_KEEP, 2 * node->a, 0);
      write_node(out, node->child);
      write(out, RE_OP_KEEP, 2 * node->a + 1, 0);
      break;
    case RE_SEQUENCE:
      for (uint32_t child = node->child; child != RE_NONE; child = out->tree->nodes[child].next)
        write_node(out, child);
      break;
    case RE_EITHER:
      write_either(out, node);
      break;
    case RE_REPEAT:
      write_repeat(out, node);
      break;
    default:
      break;
  }
}

/* ---- first bytes of matches ---- */

/* Adds the bytes with which a character of this instruction may begin. If a character above ASCII is possible, these
 * are all bytes above ASCII. */
static void add_beginnings(re_program *program, const re_instruction *one) {
  uint32_t low[4] = {0}, high = UINT32_MAX;
  switch (one->op) {
    case RE_OP_CHARACTER:
    case RE_OP_FOLDED:
      if (one->x < 128) {
        const uint32_t other = one->op == RE_OP_FOLDED ? re_upper(one->x, true) : one->x;
        low[one->x >> 5] |= 1u << (one->x & 31);
        low[other >> 5] |= 1u << (other & 31);
        high = 0;
      }
      break;
    case RE_OP_CLASS:
      memcpy(low, program->classes[one->x].low, sizeof low);
      break;
    default:
      memset(low, 0xFF, sizeof low);
      break;
  }
  for (int i = 0; i < 4; i++) {
    program->begins[i] |= low[i];
    program->begins[i + 4] |= high;
  }
}

static void find_beginnings(re_program *program) {
  program->begins_somewhere = true;
  bool *const seen = m_new0(bool, program->size);
  uint32_t *const todo = m_new(uint32_t, 2 * program->size + 1);
  uint32_t count = 1;
  todo[0] = 0;
  while (count > 0) {
    const uint32_t at = todo[--count];
    if (seen[at]) continue;
    seen[at] = true;
    const re_instruction *const one = &program->code[at];
    if (one->op == RE_OP_MATCH)
      program->begins_somewhere = false;
    else if (one->op < RE_OP_MATCH)
      add_beginnings(program, one);
    else if (one->op == RE_OP_KEEP || one->op == RE_OP_PLACE)
      todo[count++] = at + 1;
    else {
      todo[count++] = one->x;
      if (one->op != RE_OP_JUMP) todo[count++] = one->y;
    }
  }
  m_del(bool, seen, program->size);
  m_del(uint32_t, todo, 2 * program->size + 1);
}

void re_emit(re_program *program, const re_tree *tree, bool bytes) {
  *program = (re_program){.classes = tree->classes, .ranges = tree->ranges, .bytes = bytes};
  program->ascii = bytes || tree->flags & RE_ASCII;
  program->num_kept = 2 * (tree->num_groups + 1) + 1;
  writer out = {.program = program, .tree = tree};
  write_node(&out, tree->root);
  write(&out, RE_OP_MATCH, 0, 0);
  if ((uint64_t)program->num_threads * program->num_kept > RE_MOST_KEPT)
    mp_raise_msg_varg(&re_error_type,
                      MP_ERROR_TEXT("the pattern is too large: %u characters (repetitions count as often) times %u "
                                    "kept positions, of at most %d; (?:...) keeps none"),
                      (unsigned)program->num_threads, (unsigned)program->num_kept, RE_MOST_KEPT);
  find_beginnings(program);
}
