/* Parses regular expressions: the syntax of Python's re, as far as it can be matched without backtracking. */
#include <stdarg.h>
#include <string.h>

#include "py/objstr.h"
#include "py/runtime.h"
#include "py/unicode.h"
#include "program.h"

MP_DEFINE_CONST_OBJ_TYPE(re_error_type, MP_QSTR_error, MP_TYPE_FLAG_NONE, make_new, mp_obj_exception_make_new, print,
                         mp_obj_exception_print, attr, mp_obj_exception_attr, parent, &mp_type_Exception);

typedef struct reader {
  re_tree *tree;
  const uint32_t *text;
  uint32_t at, size;
  uint32_t flags;
  bool bytes;
  int depth;
} reader;

static const uint32_t END = UINT32_MAX;

__attribute__((noreturn, format(printf, 3, 4))) static void fail(const reader *re, uint32_t at, const char *what, ...) {
  vstr_t message;
  vstr_init(&message, 64);
  va_list rest;
  va_start(rest, what);
  vstr_vprintf(&message, what, rest);
  va_end(rest);
  (void)re;
  vstr_printf(&message, " at position %u", (unsigned)at);
  mp_raise_msg_varg(&re_error_type, MP_ERROR_TEXT("%s"), vstr_null_terminated_str(&message));
  __builtin_unreachable();
}

static uint32_t peek(const reader *re) { return re->at < re->size ? re->text[re->at] : END; }
static uint32_t peek_after(const reader *re, uint32_t skip) {
  return re->at + skip < re->size ? re->text[re->at + skip] : END;
}

static bool accept(reader *re, uint32_t c) {
  if (peek(re) != c) return false;
  re->at++;
  return true;
}

static bool is_digit(uint32_t c) { return c - '0' < 10; }
static bool is_octal(uint32_t c) { return c - '0' < 8; }

/* ---- the tree ---- */

static uint32_t new_node(reader *re, re_kind kind, uint32_t a, uint32_t b) {
  re_tree *const tree = re->tree;
  if (tree->count == tree->room) {
    const size_t room = tree->room == 0 ? 32 : 2 * tree->room;
    tree->nodes = m_renew(re_node, tree->nodes, tree->room, room);
    tree->room = room;
  }
  tree->nodes[tree->count] = (re_node){.kind = (uint8_t)kind, .a = a, .b = b, .child = RE_NONE, .next = RE_NONE};
  return (uint32_t)tree->count++;
}

static uint32_t new_character(reader *re, uint32_t c) {
  const bool ascii = re->flags & RE_ASCII;
  const bool fold = re->flags & RE_IGNORECASE && (re_lower(c, ascii) != c || re_upper(c, ascii) != c);
  return new_node(re, RE_CHARACTER, fold ? re_lower(c, ascii) : c, fold);
}

static void add_range(reader *re, uint32_t from, uint32_t to) {
  re_tree *const tree = re->tree;
  if (tree->num_ranges + 2 > tree->ranges_room) {
    const size_t room = tree->ranges_room == 0 ? 32 : 2 * tree->ranges_room;
    tree->ranges = m_renew(uint32_t, tree->ranges, tree->ranges_room, room);
    tree->ranges_room = room;
  }
  tree->ranges[tree->num_ranges++] = from;
  tree->ranges[tree->num_ranges++] = to;
}

/* Makes a class from the ranges from number `first` on. */
static uint32_t new_class(reader *re, size_t first, uint8_t categories, bool negated) {
  re_tree *const tree = re->tree;
  if (tree->num_classes == tree->classes_room) {
    const size_t room = tree->classes_room == 0 ? 8 : 2 * tree->classes_room;
    tree->classes = m_renew(re_class, tree->classes, tree->classes_room, room);
    tree->classes_room = room;
  }
  re_class made = {.first = (uint32_t)first, .count = (uint32_t)(tree->num_ranges - first) / 2};
  made.categories = categories;
  made.negated = negated;
  made.fold = re->flags & RE_IGNORECASE;
  made.ascii = re->flags & RE_ASCII;
  for (uint32_t c = 0; c < 128; c++)
    if (re_class_has(&made, tree->ranges, c)) made.low[c >> 5] |= 1u << (c & 31);
  tree->classes[tree->num_classes] = made;
  return new_node(re, RE_CLASS, (uint32_t)tree->num_classes++, 0);
}

/* ---- escapes ---- */

static uint32_t read_hex(reader *re, uint32_t begin, int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; i++, re->at++) {
    const uint32_t c = peek(re);
    if (c > 127 || !unichar_isxdigit((unichar)c))
      fail(re, begin, "incomplete escape: \\%c takes %d hexadecimal digits", (int)re->text[begin + 1], digits);
    value = value << 4 | (uint32_t)unichar_xdigit_value((unichar)c);
  }
  if (value > 0x10FFFF) fail(re, begin, "bad escape: there is no such character");
  return value;
}

static uint8_t category(uint32_t c) {
  static const char letters[] = "dDsSwW";
  const char *const which = c < 128 && c != 0 ? strchr(letters, (int)c) : NULL;
  return which == NULL ? 0 : (uint8_t)(1 << (which - letters));
}

/* Reads the rest of an escape that means one character, inside and outside classes; returns END for other escapes. */
static uint32_t read_plain_escape(reader *re, uint32_t begin) {
  static const char letters[] = "afnrtv\\", meanings[] = "\a\f\n\r\t\v\\";
  const uint32_t c = peek(re);
  if (c == END) fail(re, begin, "bad escape (end of pattern)");
  const char *const which = c < 128 && c != 0 ? strchr(letters, (int)c) : NULL;
  if (which != NULL) return re->at++, (uint32_t)meanings[which - letters];
  if (c == 'x') return re->at++, read_hex(re, begin, 2);
  if (!re->bytes && (c == 'u' || c == 'U')) return re->at++, read_hex(re, begin, c == 'u' ? 4 : 8);
  if (c == '0' || (is_octal(c) && is_octal(peek_after(re, 1)) && is_octal(peek_after(re, 2)))) {
    uint32_t value = 0;
    for (int i = 0; i < 3 && is_octal(peek(re)); i++) value = value * 8 + re->text[re->at++] - '0';
    if (value > 0377) fail(re, begin, "octal escape value outside of range 0-0o377");
    return value;
  }
  if (is_digit(c) || (c | 32) - 'a' < 26) return END;
  return re->at++, c;
}

__attribute__((noreturn)) static void fail_escape(const reader *re, uint32_t begin) {
  fail(re, begin, "bad escape \\%c", (int)re->text[begin + 1]);
}

static uint32_t read_escape(reader *re) {
  const uint32_t begin = re->at++;
  const uint32_t plain = read_plain_escape(re, begin);
  if (plain != END) return new_character(re, plain);
  const uint32_t c = re->text[re->at++];
  if (is_digit(c))
    fail(re, begin, "backreferences such as \\%c are not supported: matching takes time in proportion to the text, "
         "which they rule out; compare the groups after the match", (int)c);
  if (category(c)) return new_class(re, re->tree->num_ranges, category(c), false);
  const bool ascii = re->flags & RE_ASCII;
  switch (c) {
    case 'A':
      return new_node(re, RE_PLACE, RE_AT_START, 0);
    case 'Z':
      return new_node(re, RE_PLACE, RE_AT_STOP, 0);
    case 'b':
      return new_node(re, RE_PLACE, RE_AT_EDGE, ascii);
    case 'B':
      return new_node(re, RE_PLACE, RE_AT_NO_EDGE, ascii);
    default:
      fail_escape(re, begin);
  }
}

/* ---- classes ---- */

/* Reads one end of a range. Returns END for a category, which is added to `categories`. */
static uint32_t read_member(reader *re, uint32_t open, uint8_t *categories) {
  const uint32_t begin = re->at, c = peek(re);
  if (c == END) fail(re, open, "unterminated character set");
  re->at++;
  if (c != '\\') return c;
  const uint32_t plain = read_plain_escape(re, begin);
  if (plain != END) return plain;
  const uint32_t letter = re->text[re->at++];
  if (letter == 'b') return '\b';
  if (!category(letter)) fail_escape(re, begin);
  *categories |= category(letter);
  return END;
}

static uint32_t read_class(reader *re) {
  const uint32_t open = re->at++;
  const bool negated = accept(re, '^');
  const size_t first = re->tree->num_ranges;
  uint8_t categories = 0;
  for (bool any = false;; any = true) {
    if (any && accept(re, ']')) break;
    const uint32_t begin = re->at;
    const uint32_t from = read_member(re, open, &categories);
    if (peek(re) != '-' || peek_after(re, 1) == ']') {
      if (from != END) add_range(re, from, from);
      continue;
    }
    re->at++;
    uint8_t other = 0;
    const uint32_t to = read_member(re, open, &other);
    if (from == END || to == END || to < from) fail(re, begin, "bad character range");
    add_range(re, from, to);
  }
  return new_class(re, first, categories, negated);
}

/* ---- groups ---- */

static uint32_t read_either(reader *re);

static uint32_t flag(uint32_t c) {
  switch (c) {
    case 'a':
      return RE_ASCII;
    case 'i':
      return RE_IGNORECASE;
    case 'm':
      return RE_MULTILINE;
    case 's':
      return RE_DOTALL;
    case 'u':
      return RE_UNICODE;
    case 'x':
      return RE_VERBOSE;
    default:
      return 0;
  }
}

static uint32_t read_name(reader *re, uint32_t number) {
  const uint32_t begin = re->at;
  vstr_t name;
  vstr_init(&name, 16);
  while (peek(re) != '>') {
    const uint32_t c = peek(re);
    if (c == END) fail(re, begin, "missing >, unterminated name");
    if (!re_is_word(c, false) || (re->at == begin && is_digit(c))) fail(re, begin, "bad character in group name");
    vstr_add_char(&name, c);
    re->at++;
  }
  if (re->at == begin) fail(re, begin, "missing group name");
  re->at++;
  const mp_obj_t key = mp_obj_new_str_from_vstr(&name);
  mp_map_elem_t *const place =
      mp_map_lookup(mp_obj_dict_get_map(re->tree->names), key, MP_MAP_LOOKUP_ADD_IF_NOT_FOUND);
  if (place->value != MP_OBJ_NULL)
    fail(re, begin, "redefinition of group name %s", mp_obj_str_get_str(key));
  place->value = MP_OBJ_NEW_SMALL_INT((mp_int_t)number);
  return number;
}

/* Reads the flags of (?i:...) and (?-i:...), after the question mark. */
static void read_flags(reader *re, uint32_t open) {
  uint32_t on = 0, off = 0;
  while (flag(peek(re))) on |= flag(re->text[re->at++]);
  if (accept(re, '-'))
    while (flag(peek(re))) off |= flag(re->text[re->at++]);
  if (off == 0 && on != 0 && peek(re) == ')') fail(re, open, "global flags not at the start of the expression");
  if (!accept(re, ':'))
    fail(re, open + 1, "unknown extension after (?: groups are (...), (?:...), (?P<name>...), (?i:...)");
  re->flags = (re->flags | on) & ~off;
}

__attribute__((noreturn)) static void refuse(const reader *re, uint32_t open, const char *what) {
  fail(re, open, "%s not supported: matching takes time in proportion to the text, which they rule out", what);
}

/* Reads a group; returns RE_NONE for a comment. */
static uint32_t read_group(reader *re) {
  const uint32_t open = re->at++, flags_before = re->flags;
  uint32_t number = 0;
  if (!accept(re, '?')) {
    number = ++re->tree->num_groups;
  } else {
    const uint32_t c = peek(re), after = peek_after(re, 1);
    if (c == '=' || c == '!' || (c == '<' && (after == '=' || after == '!')))
      refuse(re, open, "lookahead and lookbehind are");
    if (c == '>') refuse(re, open, "atomic groups are");
    if (c == '(') refuse(re, open, "conditional groups are");
    if (c == 'P' && after == '=') refuse(re, open, "backreferences are");
    if (c == '#') {
      while (peek(re) != ')')
        if (re->at++ >= re->size) fail(re, open, "missing ), unterminated comment");
      re->at++;
      return RE_NONE;
    }
    if (c == 'P' && after == '<') {
      re->at += 2;
      number = read_name(re, ++re->tree->num_groups);
    } else {
      read_flags(re, open);
    }
  }
  const uint32_t inside = read_either(re);
  if (!accept(re, ')')) fail(re, open, "missing ), unterminated subpattern");
  re->flags = flags_before;
  if (number == 0) return inside;
  const uint32_t group = new_node(re, RE_GROUP, number, 0);
  re->tree->nodes[group].child = inside;
  return group;
}

/* ---- sequences ---- */

static uint32_t read_number(reader *re, uint32_t otherwise) {
  if (!is_digit(peek(re))) return otherwise;
  uint32_t value = 0;
  const uint32_t begin = re->at;
  for (; is_digit(peek(re)); re->at++) {
    value = value * 10 + peek(re) - '0';
    if (value > 1000000) fail(re, begin, "the repetition number is too large");
  }
  return value;
}

/* Reads *, +, ? or {m,n} and returns true. A brace that does not begin a count is a character. */
static bool read_counts(reader *re, uint32_t *least, uint32_t *most) {
  const uint32_t begin = re->at, c = peek(re);
  *least = c == '+';
  *most = c == '?' ? 1 : RE_NONE;
  if (c == '*' || c == '+' || c == '?') return re->at++, true;
  if (c != '{' || peek_after(re, 1) == '}') return false;
  re->at++;
  const bool same = is_digit(peek(re));
  *least = read_number(re, 0);
  if (accept(re, ','))
    *most = read_number(re, RE_NONE);
  else
    *most = same ? *least : RE_NONE;
  if (!accept(re, '}')) return re->at = begin, false;
  if (*most < *least) fail(re, begin + 1, "min repeat greater than max repeat");
  return true;
}

/* Replaces a node by a repetition, with the node as its child. */
static void repeat(reader *re, uint32_t node, uint32_t least, uint32_t most, bool lazy) {
  const uint32_t inside = new_node(re, RE_EMPTY, 0, 0);
  re_node *const nodes = re->tree->nodes;
  nodes[inside] = nodes[node];
  nodes[inside].next = RE_NONE;
  nodes[node] = (re_node){.kind = RE_REPEAT, .lazy = lazy, .a = least, .b = most, .child = inside, .next = RE_NONE};
}

static bool skip_verbose(reader *re) {
  if (!(re->flags & RE_VERBOSE)) return false;
  const uint32_t c = peek(re);
  if (c == END) return false;
  if (c == '#')
    while (peek(re) != END && peek(re) != '\n') re->at++;
  else if (re_is_space(c, true))
    re->at++;
  else
    return false;
  return true;
}

static uint32_t read_item(reader *re) {
  const uint32_t c = peek(re);
  switch (c) {
    case '\\':
      return read_escape(re);
    case '[':
      return read_class(re);
    case '(':
      return read_group(re);
    case '.':
      return re->at++, new_node(re, RE_ANY, 0, (re->flags & RE_DOTALL) != 0);
    case '^':
      return re->at++, new_node(re, RE_PLACE, re->flags & RE_MULTILINE ? RE_AT_LINE : RE_AT_START, 0);
    case '$':
      return re->at++, new_node(re, RE_PLACE, re->flags & RE_MULTILINE ? RE_AT_LINE_END : RE_AT_END, 0);
    default:
      return re->at++, new_character(re, c);
  }
}

static uint32_t read_sequence(reader *re) {
  const uint32_t sequence = new_node(re, RE_SEQUENCE, 0, 0);
  uint32_t last = RE_NONE;
  bool repeated = false;
  for (;;) {
    if (skip_verbose(re)) continue;
    const uint32_t begin = re->at, c = peek(re);
    if (c == END || c == '|' || c == ')') return sequence;
    uint32_t least, most;
    if (read_counts(re, &least, &most)) {
      if (last == RE_NONE || re->tree->nodes[last].kind == RE_PLACE) fail(re, begin, "nothing to repeat");
      if (repeated) fail(re, begin, "multiple repeat");
      const bool lazy = accept(re, '?');
      if (!lazy && peek(re) == '+') refuse(re, re->at, "possessive repetitions such as a*+ are");
      repeat(re, last, least, most, lazy);
      repeated = true;
      continue;
    }
    const uint32_t item = read_item(re);
    if (item == RE_NONE) continue;
    if (last == RE_NONE)
      re->tree->nodes[sequence].child = item;
    else
      re->tree->nodes[last].next = item;
    last = item;
    repeated = false;
  }
}

static uint32_t read_either(reader *re) {
  if (++re->depth > RE_MOST_NESTING) fail(re, re->at, "more than %d groups in each other", RE_MOST_NESTING);
  uint32_t last = read_sequence(re), whole = last;
  if (peek(re) == '|') {
    whole = new_node(re, RE_EITHER, 0, 0);
    re->tree->nodes[whole].child = last;
    while (accept(re, '|')) {
      const uint32_t other = read_sequence(re);
      re->tree->nodes[last].next = other;
      last = other;
    }
  }
  re->depth--;
  return whole;
}

/* Reads flags such as (?i) at the start, which apply to the whole pattern. */
static void read_global_flags(reader *re) {
  for (;;) {
    while (skip_verbose(re)) continue;
    if (peek(re) != '(' || peek_after(re, 1) != '?') return;
    uint32_t ahead = 2, on = 0;
    while (flag(peek_after(re, ahead))) on |= flag(peek_after(re, ahead++));
    if (on == 0 || peek_after(re, ahead) != ')') return;
    re->at += ahead + 1;
    re->flags |= on;
  }
}

/* Returns the characters of a str or bytes. */
static uint32_t *characters(mp_obj_t pattern, uint32_t *count) {
  size_t size;
  const byte *text = (const byte *)mp_obj_str_get_data(pattern, &size), *const end = text + size;
  uint32_t *const all = m_new(uint32_t, size + 1);
  *count = 0;
  while (text < end) {
    all[(*count)++] = mp_obj_is_str(pattern) ? utf8_get_char(text) : *text;
    text = mp_obj_is_str(pattern) ? utf8_next_char(text) : text + 1;
  }
  return all;
}

void re_parse(re_tree *tree, mp_obj_t pattern, uint32_t flags) {
  *tree = (re_tree){.names = mp_obj_new_dict(0)};
  reader re = {.tree = tree, .flags = flags, .bytes = !mp_obj_is_str(pattern)};
  re.text = characters(pattern, &re.size);
  read_global_flags(&re);
  if (re.bytes && re.flags & RE_UNICODE)
    mp_raise_ValueError(MP_ERROR_TEXT("cannot use UNICODE flag with a bytes pattern"));
  tree->flags = re.flags | (re.bytes || re.flags & RE_ASCII ? 0 : RE_UNICODE);
  if (re.bytes) re.flags |= RE_ASCII;
  tree->root = read_either(&re);
  if (re.at != re.size) fail(&re, re.at, "unbalanced parenthesis");
}
