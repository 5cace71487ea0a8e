/* re_objects.h - the patterns and matches of the module re as objects of Python. */
#ifndef AICI_PYCTRL_RE_OBJECTS_H
#define AICI_PYCTRL_RE_OBJECTS_H

#include "re_program.h"

typedef struct pattern_object {
  mp_obj_base_t base;
  /* What it was made of: str or bytes. */
  mp_obj_t text;
  /* {name: number of the group} */
  mp_obj_t names;
  uint32_t flags;
  re_program program;
} pattern_object;

/* The text that a pattern is looked for in. Places in it are numbers of bytes. */
typedef struct subject {
  mp_obj_t object;
  const byte *data;
  uint32_t size;
  /* A character a byte? */
  bool plain;
  /* Between which places, in bytes and as they were given. */
  uint32_t start, end;
  mp_int_t pos, endpos;
} subject;

extern const mp_obj_type_t re_pattern_type, re_match_type;

uint32_t re_num_groups(const pattern_object *pattern);
/* Raises TypeError where a text is str and the pattern bytes, or the other way round. `pos` and `endpos` are in
 * characters. */
subject re_subject(const pattern_object *pattern, mp_obj_t text, mp_int_t pos, mp_int_t endpos);
mp_obj_t re_part(const subject *in, uint32_t from, uint32_t to);
/* A group's text, or `otherwise` where it took no part. */
mp_obj_t re_group_text(const subject *in, const uint32_t *kept, uint32_t number, mp_obj_t otherwise);
/* The number of a group by its number or name; raises IndexError. */
uint32_t re_group_number(const pattern_object *pattern, mp_obj_t group);
mp_obj_t re_new_match(const pattern_object *pattern, const subject *in, const uint32_t *kept);

/* Adds what a replacement makes of a match: escapes such as \1 and \g<name> mean groups. */
void re_expand(vstr_t *out, const pattern_object *pattern, mp_obj_t replacement, const subject *in,
               const uint32_t *kept);

#endif /* AICI_PYCTRL_RE_OBJECTS_H */
