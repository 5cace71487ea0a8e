/* The module _aici: script.h for Python. What scripts see is library/aici.py. */
#include <string.h>

#include "convert.h"
#include "output.h"
#include "py/objlist.h"
#include "py/runtime.h"
#include "script.h"

#define FUNCTION(name, least, most) \
  static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(name##_obj, least, most, name)
#define ENTRY(name) {MP_ROM_QSTR(MP_QSTR_##name), MP_ROM_PTR(&name##_obj)}
#define UNUSED(count, of) ((void)(count), (void)(of))

static uint32_t to_limit(mp_obj_t object) {
  if (object == mp_const_none) return SCRIPT_NO_LIMIT;
  const mp_int_t value = mp_obj_get_int(object);
  if (value < 0) mp_raise_ValueError(MP_ERROR_TEXT("a limit is 0 or more"));
  return (uint32_t)value;
}

/* None: the request's own temperature; 0: greedy. */
static float to_temperature(mp_obj_t object) {
  if (object == mp_const_none) return 0;
  const mp_float_t value = mp_obj_get_float(object);
  if (value == 0) return SCRIPT_GREEDY;
  if (!(value > 0 && value < 1e30))
    mp_raise_ValueError(MP_ERROR_TEXT("a temperature is 0 (the most likely token) or more"));
  return (float)value;
}

/* ---- the sequence ---- */

static mp_obj_t force(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_force(to_tokens(of[0]));
  return mp_const_none;
}
FUNCTION(force, 1, 1);

static mp_obj_t rewind_to(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_rewind((size_t)mp_obj_get_int(of[0])));
  return mp_const_none;
}
FUNCTION(rewind_to, 1, 1);

static mp_obj_t size(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return mp_obj_new_int_from_uint(script_all_tokens().size);
}
FUNCTION(size, 0, 0);

static mp_obj_t prompt_size(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return mp_obj_new_int_from_uint(script_prompt_size());
}
FUNCTION(prompt_size, 0, 0);

/* The tokens from one place to another. */
static script_tokens part(const mp_obj_t *of) {
  const script_tokens all = script_all_tokens();
  const size_t from = (size_t)mp_obj_get_int(of[0]), to = (size_t)mp_obj_get_int(of[1]);
  if (from > to || to > all.size) mp_raise_ValueError(MP_ERROR_TEXT("the sequence has no such part"));
  return (script_tokens){all.data + from, to - from};
}

static mp_obj_t tokens_between(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return from_tokens(part(of));
}
FUNCTION(tokens_between, 2, 2);

static mp_obj_t text_between(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_text text;
  raise_if(script_detokenize(part(of), &text));
  return from_text(text);
}
FUNCTION(text_between, 2, 2);

static mp_obj_t mark(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return mp_obj_new_int_from_uint(script_label());
}
FUNCTION(mark, 0, 0);

static mp_obj_t place(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  size_t found;
  raise_if(script_label_place((uint32_t)mp_obj_get_int(of[0]), &found));
  return mp_obj_new_int_from_uint(found);
}
FUNCTION(place, 1, 1);

/* ---- patterns ---- */

static mp_obj_t pattern(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  uint32_t number;
  raise_if(script_pattern((script_kind)mp_obj_get_int(of[0]), to_text(of[1]), &number));
  return mp_obj_new_int_from_uint(number);
}
FUNCTION(pattern, 2, 2);

static mp_obj_t follow(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  uint32_t number;
  raise_if(script_follow((uint32_t)mp_obj_get_int(of[0]), &number));
  return mp_obj_new_int_from_uint(number);
}
FUNCTION(follow, 1, 1);

static mp_obj_t unfollow(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_unfollow((uint32_t)mp_obj_get_int(of[0]));
  return mp_const_none;
}
FUNCTION(unfollow, 1, 1);

static mp_obj_t follow_append(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_follow_append((uint32_t)mp_obj_get_int(of[0]), to_tokens(of[1])));
  return mp_const_none;
}
FUNCTION(follow_append, 2, 2);

/* (ended, may end) */
static mp_obj_t follow_end(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t number = (uint32_t)mp_obj_get_int(of[0]);
  bool may_end;
  raise_if(script_follow_may_end(number, &may_end));
  mp_obj_t both[] = {mp_obj_new_bool(script_follow_ended(number)), mp_obj_new_bool(may_end)};
  return mp_obj_new_tuple(2, both);
}
FUNCTION(follow_end, 1, 1);

/* Certain tokens as a list, a mask as a bytearray, or None: nothing may come. */
static mp_obj_t follow_next(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_tokens certain;
  const uint32_t *mask;
  raise_if(script_follow_next((uint32_t)mp_obj_get_int(of[0]), &certain, &mask));
  if (certain.size != 0) return from_tokens(certain);
  if (mask == NULL) return mp_const_none;
  return mp_obj_new_bytearray(script_mask_words() * sizeof(uint32_t), (void *)mask);
}
FUNCTION(follow_next, 1, 1);

/* ---- actions ---- */

/* pattern, max_tokens, max_bytes, temperature, logprobs, top, stops, include_stop, leave */
static mp_obj_t begin_generation(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  size_t num_stops;
  mp_obj_t *stops;
  mp_obj_get_array(of[6], &num_stops, &stops);
  script_text texts[num_stops + 1];
  for (size_t i = 0; i < num_stops; i++) texts[i] = to_text(stops[i]);
  const script_generation what = {
      .pattern = (uint32_t)mp_obj_get_int(of[0]),
      .max_tokens = to_limit(of[1]),
      .max_bytes = to_limit(of[2]),
      .temperature = to_temperature(of[3]),
      .logprobs = mp_obj_is_true(of[4]),
      .top = (uint32_t)mp_obj_get_int(of[5]),
      .stops = texts,
      .num_stops = num_stops,
      .include_stop = mp_obj_is_true(of[7]),
      .leave = mp_obj_is_true(of[8]),
  };
  raise_if(script_begin_generation(&what));
  return mp_const_none;
}
FUNCTION(begin_generation, 9, 9);

static const qstr finishes[] = {MP_QSTR_complete, MP_QSTR_end, MP_QSTR_stop, MP_QSTR_max_tokens, MP_QSTR_max_bytes};

/* text, finish, [(token, logprob, allowed mass, [(token, logprob)...])...] */
static mp_obj_t generated(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_generated result;
  raise_if(script_generation_result(&result));
  const mp_obj_t tokens = mp_obj_new_list(result.num_tokens, NULL);
  for (size_t i = 0; i < result.num_tokens; i++) {
    const script_scored *token = &result.tokens[i];
    mp_obj_t one[] = {mp_obj_new_int_from_uint(token->token), from_logprob(token->logprob),
                      from_logprob(token->allowed_mass), from_top(result.tops + token->first_top, token->num_top)};
    mp_obj_list_store(tokens, MP_OBJ_NEW_SMALL_INT((mp_int_t)i), mp_obj_new_tuple(4, one));
  }
  mp_obj_t all[] = {from_text(result.text), MP_OBJ_NEW_QSTR(finishes[result.finish]), tokens};
  return mp_obj_new_tuple(3, all);
}
FUNCTION(generated, 0, 0);

/* The text alone. */
static mp_obj_t generated_text(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_generated result;
  raise_if(script_generation_result(&result));
  return from_text(result.text);
}
FUNCTION(generated_text, 0, 0);

/* mask or None, temperature, top */
static mp_obj_t begin_sample(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_begin_sample(to_mask(of[0]), to_temperature(of[1]), (uint32_t)mp_obj_get_int(of[2])));
  return mp_const_none;
}
FUNCTION(begin_sample, 3, 3);

/* token, logprob, allowed mass, top */
static mp_obj_t sampled(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_generated result;
  raise_if(script_sample_result(&result));
  const script_scored *token = result.tokens;
  mp_obj_t one[] = {mp_obj_new_int_from_uint(token->token), from_logprob(token->logprob),
                    from_logprob(token->allowed_mass), from_top(result.tops, token->num_top)};
  return mp_obj_new_tuple(4, one);
}
FUNCTION(sampled, 0, 0);

static mp_obj_t begin_fork(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const mp_int_t count = mp_obj_get_int(of[0]);
  if (count < 0) mp_raise_ValueError(MP_ERROR_TEXT("a number of forks is 1 or more"));
  raise_if(script_begin_fork((uint32_t)count));
  return mp_const_none;
}
FUNCTION(begin_fork, 1, 1);

static mp_obj_t forked(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  uint32_t index;
  raise_if(script_fork_result(&index));
  return mp_obj_new_int_from_uint(index);
}
FUNCTION(forked, 0, 0);

static mp_obj_t begin_wait(size_t n, const mp_obj_t *of) {
  script_text names[n + 1];
  for (size_t i = 0; i < n; i++) names[i] = to_text(of[i]);
  script_begin_wait(names, n);
  return mp_const_none;
}
FUNCTION(begin_wait, 0, 64);

static mp_obj_t waited(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_wait_result());
  return mp_const_none;
}
FUNCTION(waited, 0, 0);

static mp_obj_t begin_step(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_begin_step();
  return mp_const_none;
}
FUNCTION(begin_step, 0, 0);

/* ---- callbacks ---- */

/* sequence, number, tokens, backtrack, sampled, logprob, allowed mass, top, group */
static mp_obj_t present_step(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const script_step step = script_present_step();
  mp_obj_t all[] = {
      mp_obj_new_int_from_uint(step.sequence),
      mp_obj_new_int_from_uint(step.number),
      from_tokens(step.tokens),
      mp_obj_new_int_from_uint(step.backtrack),
      mp_obj_new_bool(step.sampled),
      from_logprob(step.logprob),
      from_logprob(step.allowed_mass),
      from_top(step.top, step.num_top),
      from_tokens(step.group),
  };
  return mp_obj_new_tuple(MP_ARRAY_SIZE(all), all);
}
FUNCTION(present_step, 0, 0);

static mp_obj_t answer_stop(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_answer_stop();
  return mp_const_none;
}
FUNCTION(answer_stop, 0, 0);

static mp_obj_t answer_suspend(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_answer_suspend();
  return mp_const_none;
}
FUNCTION(answer_suspend, 0, 0);

static mp_obj_t answer_fork(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_answer_fork((uint32_t)mp_obj_get_int(of[0]));
  return mp_const_none;
}
FUNCTION(answer_fork, 1, 1);

/* mask or None, temperature, top */
static mp_obj_t answer_sample(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_answer_sample(to_mask(of[0]), to_temperature(of[1]), (uint32_t)mp_obj_get_int(of[2])));
  return mp_const_none;
}
FUNCTION(answer_sample, 3, 3);

static mp_obj_t answer_splice(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_answer_splice((uint32_t)mp_obj_get_int(of[0]), to_tokens(of[1]));
  return mp_const_none;
}
FUNCTION(answer_splice, 2, 2);

/* ---- the host ---- */

static mp_obj_t vocabulary_size(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return mp_obj_new_int_from_uint(script_vocabulary_size());
}
FUNCTION(vocabulary_size, 0, 0);

static mp_obj_t end_tokens(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return from_tokens(script_end_tokens());
}
FUNCTION(end_tokens, 0, 0);

/* The bytes of a token, and whether it is special. */
static mp_obj_t token(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const mp_int_t number = mp_obj_get_int(of[0]);
  if (number < 0 || (mp_uint_t)number >= script_vocabulary_size())
    mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("there is no token %d: the vocabulary has %d"), (int)number,
                      (int)script_vocabulary_size());
  mp_obj_t both[] = {from_bytes(script_token_bytes((uint32_t)number)),
                     mp_obj_new_bool(script_token_is_special((uint32_t)number))};
  return mp_obj_new_tuple(2, both);
}
FUNCTION(token, 1, 1);

static mp_obj_t tokenize(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_tokens tokens;
  raise_if(script_tokenize(to_text(of[0]), &tokens));
  return from_tokens(tokens);
}
FUNCTION(tokenize, 1, 1);

static mp_obj_t detokenize(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_text text;
  raise_if(script_detokenize(to_tokens(of[0]), &text));
  return from_bytes(text);
}
FUNCTION(detokenize, 1, 1);

static mp_obj_t capability(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  bool known;
  const uint32_t value = script_capability(to_text(of[0]), &known);
  if (!known) mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("no capability is called %s"), mp_obj_str_get_str(of[0]));
  return mp_obj_new_int_from_uint(value);
}
FUNCTION(capability, 1, 1);

/* (value, version), or None */
static mp_obj_t get_variable(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_text value;
  uint32_t version;
  if (!script_get_variable(to_text(of[0]), &value, &version)) return mp_const_none;
  mp_obj_t both[] = {from_text(value), mp_obj_new_int_from_uint(version)};
  return mp_obj_new_tuple(2, both);
}
FUNCTION(get_variable, 1, 1);

/* name, value, append, version or None */
static mp_obj_t set_variable(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t when = of[3] == mp_const_none ? SCRIPT_ANY_VERSION : (uint32_t)mp_obj_get_int(of[3]);
  uint32_t version;
  raise_if(script_set_variable(to_text(of[0]), to_text(of[1]), mp_obj_is_true(of[2]), when, &version));
  return mp_obj_new_int_from_uint(version);
}
FUNCTION(set_variable, 4, 4);

static mp_obj_t stop(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  flush_output();
  script_stop();
}
FUNCTION(stop, 0, 0);

static mp_obj_t fail(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  flush_output();
  script_fail(to_text(of[0]));
}
FUNCTION(fail, 1, 1);

/* ---- masks: bytearrays of one bit a token ---- */

static mp_obj_t new_mask(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const size_t bytes = script_mask_words() * sizeof(uint32_t);
  return mp_obj_new_bytearray_by_ref(bytes, m_new0(byte, bytes));
}
FUNCTION(new_mask, 0, 0);

static mp_obj_t mask_all(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_mask_all(to_mask(of[0]));
  return mp_const_none;
}
FUNCTION(mask_all, 1, 1);

static mp_obj_t mask_text(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_mask_text(to_mask(of[0]));
  return mp_const_none;
}
FUNCTION(mask_text, 1, 1);

/* mask, tokens, allow or forbid */
static mp_obj_t mask_put(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const script_tokens tokens = to_tokens(of[1]);
  uint32_t *const mask = to_mask(of[0]);
  const bool allow = mp_obj_is_true(of[2]);
  for (size_t i = 0; i < tokens.size; i++) {
    const uint32_t bit = 1u << (tokens.data[i] & 31);
    if (allow)
      mask[tokens.data[i] >> 5] |= bit;
    else
      mask[tokens.data[i] >> 5] &= ~bit;
  }
  return mp_const_none;
}
FUNCTION(mask_put, 3, 3);

static mp_obj_t mask_has(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t number = (uint32_t)mp_obj_get_int(of[1]);
  return mp_obj_new_bool(number < script_vocabulary_size() && (to_mask(of[0])[number >> 5] >> (number & 31) & 1));
}
FUNCTION(mask_has, 2, 2);

static mp_obj_t mask_count(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t *const mask = to_mask(of[0]);
  uint32_t count = 0;
  for (uint32_t i = 0; i < script_mask_words(); i++) count += (uint32_t)__builtin_popcount(mask[i]);
  return mp_obj_new_int_from_uint(count);
}
FUNCTION(mask_count, 1, 1);

/* Changes the first by the second: '|', '&', '-'. */
static mp_obj_t mask_combine(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  uint32_t *const mask = to_mask(of[0]);
  const uint32_t *const other = to_mask(of[1]);
  const char how = mp_obj_str_get_str(of[2])[0];
  for (uint32_t i = 0; i < script_mask_words(); i++)
    mask[i] = how == '|' ? mask[i] | other[i] : how == '&' ? mask[i] & other[i] : mask[i] & ~other[i];
  return mp_const_none;
}
FUNCTION(mask_combine, 3, 3);

static mp_obj_t mask_tokens(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t *const mask = to_mask(of[0]);
  const mp_obj_t list = mp_obj_new_list(0, NULL);
  for (uint32_t i = 0; i < script_mask_words(); i++)
    for (uint32_t left = mask[i]; left != 0; left &= left - 1)
      mp_obj_list_append(list, mp_obj_new_int_from_uint(i * 32 + (uint32_t)__builtin_ctz(left)));
  return list;
}
FUNCTION(mask_tokens, 1, 1);

static const mp_rom_map_elem_t entries[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR__aici)},
    {MP_ROM_QSTR(MP_QSTR_Error), MP_ROM_PTR(&aici_error_type)},
    ENTRY(force), ENTRY(rewind_to), ENTRY(size), ENTRY(prompt_size), ENTRY(tokens_between), ENTRY(text_between),
    ENTRY(mark), ENTRY(place), ENTRY(pattern), ENTRY(follow), ENTRY(unfollow), ENTRY(follow_append), ENTRY(follow_end),
    ENTRY(follow_next), ENTRY(begin_generation), ENTRY(generated), ENTRY(generated_text), ENTRY(begin_sample),
    ENTRY(sampled), ENTRY(begin_fork), ENTRY(forked), ENTRY(begin_wait), ENTRY(waited), ENTRY(begin_step),
    ENTRY(present_step), ENTRY(answer_stop), ENTRY(answer_suspend), ENTRY(answer_fork), ENTRY(answer_sample),
    ENTRY(answer_splice), ENTRY(vocabulary_size), ENTRY(end_tokens), ENTRY(token), ENTRY(tokenize), ENTRY(detokenize),
    ENTRY(capability), ENTRY(get_variable), ENTRY(set_variable), ENTRY(stop), ENTRY(fail), ENTRY(new_mask),
    ENTRY(mask_all), ENTRY(mask_text), ENTRY(mask_put), ENTRY(mask_has), ENTRY(mask_count), ENTRY(mask_combine),
    ENTRY(mask_tokens),
};
static MP_DEFINE_CONST_DICT(globals, entries);

const mp_obj_module_t aici_module = {.base = {&mp_type_module}, .globals = (mp_obj_dict_t *)&globals};
MP_REGISTER_MODULE(MP_QSTR__aici, aici_module);
