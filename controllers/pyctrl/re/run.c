/* Runs programs of regular expressions with Pike's machine: it follows all ways to match at once, character by
 * character. Each way is a thread. Of several threads that reach the same state only the first goes on, which bounds
 * the time. The threads are in the order in which a search with backtracking would try them. */
#include <string.h>

#include "py/runtime.h"
#include "program.h"

typedef struct list {
  /* Instructions that take a character or end the match, and the positions that the thread of each keeps. */
  uint32_t *at, *kept;
  uint32_t count;
} list;

/* Pending work where threads branch: continue at a state, or restore a kept position. */
typedef struct branch {
  uint32_t at, loops;
  bool restores;
} branch;

struct re_matcher {
  const re_program *program;
  list now, next;
  /* For each state, the round in which it was last reached. */
  uint32_t *reached, round;
  branch *branches;
  uint32_t *kept, *found;
  const byte *text;
  uint32_t start, end;
};

static uint32_t most_branches(const re_program *program) { return 3 * program->num_states + 2; }

re_matcher *re_matcher_new(const re_program *program) {
  re_matcher *const made = m_new0(re_matcher, 1);
  const uint32_t threads = program->num_threads, kept = program->num_kept;
  made->program = program;
  made->now.at = m_new(uint32_t, threads);
  made->next.at = m_new(uint32_t, threads);
  made->now.kept = m_new(uint32_t, threads * kept);
  made->next.kept = m_new(uint32_t, threads * kept);
  made->reached = m_new0(uint32_t, program->num_states);
  made->branches = m_new(branch, most_branches(program));
  made->kept = m_new(uint32_t, kept);
  made->found = m_new(uint32_t, kept);
  return made;
}

void re_matcher_free(re_matcher *matcher) {
  const re_program *const program = matcher->program;
  const uint32_t threads = program->num_threads, kept = program->num_kept;
  m_del(uint32_t, matcher->now.at, threads);
  m_del(uint32_t, matcher->next.at, threads);
  m_del(uint32_t, matcher->now.kept, threads * kept);
  m_del(uint32_t, matcher->next.kept, threads * kept);
  m_del(uint32_t, matcher->reached, program->num_states);
  m_del(branch, matcher->branches, most_branches(program));
  m_del(uint32_t, matcher->kept, kept);
  m_del(uint32_t, matcher->found, kept);
  m_del(re_matcher, matcher, 1);
}

/* Returns the character at a position, in UTF-8 or bytes. `next` becomes the position after it. */
static uint32_t character(const re_matcher *of, uint32_t at, uint32_t *next) {
  const byte *const c = of->text + at;
  if (c[0] < 0x80 || of->program->bytes) return *next = at + 1, c[0];
  if (c[0] < 0xE0) return *next = at + 2, (c[0] & 0x1Fu) << 6 | (c[1] & 0x3Fu);
  if (c[0] < 0xF0) return *next = at + 3, (c[0] & 0xFu) << 12 | (c[1] & 0x3Fu) << 6 | (c[2] & 0x3Fu);
  return *next = at + 4, (c[0] & 7u) << 18 | (c[1] & 0x3Fu) << 12 | (c[2] & 0x3Fu) << 6 | (c[3] & 0x3Fu);
}

/* Returns whether a word character is before this position. */
static bool word_before(const re_matcher *of, uint32_t at, bool ascii) {
  if (at == 0) return false;
  uint32_t next;
  do
    at--;
  while (!of->program->bytes && at > 0 && (of->text[at] & 0xC0) == 0x80);
  return re_is_word(character(of, at, &next), ascii);
}

static bool word_at(const re_matcher *of, uint32_t at, bool ascii) {
  uint32_t next;
  return at < of->end && re_is_word(character(of, at, &next), ascii);
}

static bool is_at(const re_matcher *of, const re_instruction *place, uint32_t at) {
  const bool ascii = place->y;
  switch ((re_place)place->x) {
    case RE_AT_START:
      return at == 0;
    case RE_AT_STOP:
      return at == of->end;
    case RE_AT_END:
      return at == of->end || (at + 1 == of->end && of->text[at] == '\n');
    case RE_AT_LINE:
      return at == 0 || of->text[at - 1] == '\n';
    case RE_AT_LINE_END:
      return at == of->end || of->text[at] == '\n';
    case RE_AT_EDGE:
      return word_before(of, at, ascii) != word_at(of, at, ascii);
    default: /* RE_AT_NO_EDGE: never in an empty text */
      return of->end != 0 && word_before(of, at, ascii) == word_at(of, at, ascii);
  }
}

/* Adds the threads that follow from a thread at this instruction, in order. `matcher->kept` has its positions. */
static void add(re_matcher *matcher, list *to, uint32_t first, uint32_t position) {
  const re_program *const program = matcher->program;
  branch *const branches = matcher->branches;
  uint32_t *const kept = matcher->kept;
  uint32_t count = 0;
  branches[count++] = (branch){first, 0, false};
  while (count > 0) {
    const branch todo = branches[--count];
    if (todo.restores) {
      kept[todo.at] = todo.loops;
      continue;
    }
    uint32_t at = todo.at, loops = todo.loops;
    for (bool goes_on = true; goes_on;) {
      const re_instruction *const one = &program->code[at];
      loops &= (1u << one->loops) - 1;
      if (one->op <= RE_OP_MATCH) loops = 0; /* the bits do not matter here */
      uint32_t *const reached = &matcher->reached[one->state + loops];
      if (*reached == matcher->round) break;
      *reached = matcher->round;
      switch (one->op) {
        case RE_OP_JUMP:
          at = one->x;
          break;
        case RE_OP_KEEP:
          branches[count++] = (branch){one->x, kept[one->x], true};
          kept[one->x] = position;
          if (one->x & 1) {
            const uint32_t last = program->num_kept - 1;
            branches[count++] = (branch){last, kept[last], true};
            kept[last] = one->x >> 1;
          }
          at++;
          break;
        case RE_OP_PLACE:
          goes_on = is_at(matcher, one, position);
          at++;
          break;
        case RE_OP_SPLIT:
          branches[count++] = (branch){one->lazy ? one->x : one->y, loops, false};
          at = one->lazy ? one->y : one->x;
          break;
        case RE_OP_LOOP: {
          const uint32_t bit = 1u << (one->loops - 1), out = loops & ~bit;
          if (loops & bit) {
            at = one->y;
            loops = out;
          } else if (one->lazy) {
            branches[count++] = (branch){one->x, loops | bit, false};
            at = one->y;
          } else {
            branches[count++] = (branch){one->y, loops, false};
            at = one->x;
            loops |= bit;
          }
          break;
        }
        default: {
          const size_t size = program->num_kept;
          memcpy(to->kept + size * to->count, kept, size * sizeof *kept);
          to->at[to->count++] = at;
          goes_on = false;
        }
      }
    }
  }
}

static bool takes(const re_matcher *matcher, const re_instruction *one, uint32_t c) {
  const re_program *const program = matcher->program;
  switch (one->op) {
    case RE_OP_CHARACTER:
      return c == one->x;
    case RE_OP_FOLDED:
      return re_lower(c, program->ascii) == one->x;
    case RE_OP_ANY:
      return true;
    case RE_OP_NO_LINE_END:
      return c != '\n';
    default: {
      const re_class *const class = &program->classes[one->x];
      return c < 128 ? class->low[c >> 5] >> (c & 31) & 1 : re_class_has(class, program->ranges, c);
    }
  }
}

static void begin_round(re_matcher *matcher) {
  if (++matcher->round != 0) return;
  memset(matcher->reached, 0, matcher->program->num_states * sizeof *matcher->reached);
  matcher->round = 1;
}

/* Returns the next position at which a match may begin. */
static uint32_t skip(const re_matcher *matcher, uint32_t at) {
  const uint32_t *const begins = matcher->program->begins;
  while (at < matcher->end && !(begins[matcher->text[at] >> 5] >> (matcher->text[at] & 31) & 1)) at++;
  /* do not stop inside a character */
  while (!matcher->program->bytes && at < matcher->end && (matcher->text[at] & 0xC0) == 0x80) at++;
  return at;
}

const uint32_t *re_run(re_matcher *matcher, const byte *text, uint32_t start, uint32_t end, re_mode mode,
                       bool advance) {
  const re_program *const program = matcher->program;
  const size_t kept_bytes = program->num_kept * sizeof *matcher->kept;
  matcher->text = text;
  matcher->start = start;
  matcher->end = end;
  matcher->now.count = 0;
  bool found = false;
  begin_round(matcher);
  for (uint32_t at = start, next;; at = next) {
    if (matcher->now.count == 0) {
      if (found || (mode != RE_SEARCH && at != start)) break;
      if (mode == RE_SEARCH && program->begins_somewhere) {
        at = skip(matcher, at);
        begin_round(matcher); /* forget the states that were reached at the earlier position */
      }
    }
    if (!found && (mode == RE_SEARCH || at == start)) {
      memset(matcher->kept, 0xFF, kept_bytes); /* RE_NONE */
      matcher->kept[0] = at;
      add(matcher, &matcher->now, 0, at);
    }
    const uint32_t c = at < end ? character(matcher, at, &next) : RE_NONE;
    begin_round(matcher);
    matcher->next.count = 0;
    for (uint32_t i = 0; i < matcher->now.count; i++) {
      const re_instruction *const one = &program->code[matcher->now.at[i]];
      const uint32_t *const kept = matcher->now.kept + (size_t)i * program->num_kept;
      if (one->op == RE_OP_MATCH) {
        if ((advance && at == start) || (mode == RE_WHOLE && at != end)) continue;
        memcpy(matcher->found, kept, kept_bytes);
        matcher->found[1] = at;
        found = true;
        break; /* later threads have lower priority */
      }
      if (at == end || !takes(matcher, one, c)) continue;
      memcpy(matcher->kept, kept, kept_bytes);
      add(matcher, &matcher->next, matcher->now.at[i] + 1, next);
    }
    const list other = matcher->now;
    matcher->now = matcher->next;
    matcher->next = other;
    if (at == end) break;
  }
  return found ? matcher->found : NULL;
}
