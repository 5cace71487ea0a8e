/* The module _aici: sequence, patterns, actions and callbacks of script.h. Scripts use library/aici.py. */
#include <math.h>
#include <string.h>

#include "../convert.h"
#include "py/objlist.h"
#include "py/runtime.h"
#include "script.h"


/* Maximum number of stop strings or names of variables, which are copied to the stack. */
#define MOST_TEXTS 64

static uint32_t to_limit(mp_obj_t object) {
  if (object == mp_const_none) return SCRIPT_NO_LIMIT;
  const mp_int_t value = mp_obj_get_int(object);
  if (value < 0) mp_raise_ValueError(MP_ERROR_TEXT("a limit is 0 or more"));
  return (uint32_t)value;
}

/* None: the request's own option. */
static double to_option(mp_obj_t object) {
  if (object == mp_const_none) return NAN;
  const mp_float_t value = mp_obj_get_float(object);
  if (isnan(value)) mp_raise_ValueError(MP_ERROR_TEXT("an option of sampling is NaN"));
  return value;
}

static script_bias to_bias(mp_obj_t token, mp_obj_t bias) {
  const mp_int_t number = mp_obj_get_int(token);
  return (script_bias){number < 0 ? UINT32_MAX : (uint32_t)number, (float)mp_obj_get_float(bias)};
}

/* A dict of tokens and biases, or a list or tuple of a bias for each token. */
static void to_biases(mp_obj_t object, script_options *options) {
  if (object == mp_const_none) return;
  if (!mp_obj_is_dict_or_ordereddict(object)) {
    mp_obj_t *items;
    size_t count;
    mp_obj_get_array(object, &count, &items);
    if (count != script_vocabulary_size())
      mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("biases: a list has one for each of the %u tokens"),
                        (unsigned)script_vocabulary_size());
    script_bias *const biases = m_new(script_bias, count);
    for (size_t i = 0; i < count; i++) biases[i] = to_bias(MP_OBJ_NEW_SMALL_INT((mp_int_t)i), items[i]);
    options->biases = biases;
    options->num_biases = count;
    return;
  }
  const mp_map_t *const map = mp_obj_dict_get_map(object);
  script_bias *const biases = m_new(script_bias, map->used + 1);
  for (size_t i = 0; i < map->alloc; i++)
    if (mp_map_slot_is_filled(map, i))
      biases[options->num_biases++] = to_bias(map->table[i].key, map->table[i].value);
  options->biases = biases;
}

/* temperature, top_p, top_k, min_p, typical_p, top_n_sigma, favoured mask or None, bias, biases or None,
 * prediction or None, top_logprobs */
static script_options to_options(mp_obj_t object) {
  mp_obj_t *of;
  mp_obj_get_array_fixed_n(object, 11, &of);
  script_options options = {.temperature = to_option(of[0]),
                            .top_p = to_option(of[1]),
                            .typical_p = to_option(of[4]),
                            .min_p = to_option(of[3]),
                            .top_k = to_option(of[2]),
                            .top_n_sigma = to_option(of[5]),
                            .top_logprobs = (uint32_t)mp_obj_get_int(of[10]),
                            .favoured = to_mask(of[6]),
                            .bias = mp_obj_get_float(of[7])};
  to_biases(of[8], &options);
  if (of[9] != mp_const_none) options.prediction = to_tokens(of[9]);
  const char *const flaw = script_flaw(&options);
  if (flaw != NULL) mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("%s"), flaw);
  return options;
}

/* ---- the sequence ---- */

static mp_obj_t force(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_force(to_tokens(of[0])));
  return mp_const_none;
}
FUNCTION(force, 1, 1);

static mp_obj_t rewind_to(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_rewind((size_t)mp_obj_get_int(of[0])));
  return mp_const_none;
}
FUNCTION(rewind_to, 1, 1);

/* role, name of the tool, content */
static mp_obj_t turn(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_turn((script_role)mp_obj_get_int(of[0]), to_text(of[1]), to_text(of[2])));
  return mp_const_none;
}
FUNCTION(turn, 3, 3);

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

/* Returns the tokens between two places. */
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

/* Returns forced tokens as a list, a mask as a bytearray, or None if no token is allowed. */
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

/* pattern, max_tokens, max_bytes, logprobs, stops, include_stop, leave, options */
static mp_obj_t begin_generation(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  size_t num_stops;
  mp_obj_t *stops;
  mp_obj_get_array(of[4], &num_stops, &stops);
  if (num_stops > MOST_TEXTS)
    mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("at most %d stop strings"), MOST_TEXTS);
  script_text texts[num_stops + 1];
  for (size_t i = 0; i < num_stops; i++) texts[i] = to_text(stops[i]);
  const script_generation what = {
      .pattern = (uint32_t)mp_obj_get_int(of[0]),
      .max_tokens = to_limit(of[1]),
      .max_bytes = to_limit(of[2]),
      .options = to_options(of[7]),
      .logprobs = mp_obj_is_true(of[3]),
      .stops = texts,
      .num_stops = num_stops,
      .include_stop = mp_obj_is_true(of[5]),
      .leave = mp_obj_is_true(of[6]),
  };
  raise_if(script_begin_generation(&what));
  return mp_const_none;
}
FUNCTION(begin_generation, 8, 8);

static const qstr finishes[] = {MP_QSTR_complete, MP_QSTR_eos, MP_QSTR_stop, MP_QSTR_max_tokens, MP_QSTR_max_bytes};

/* text, finish reason, [(token, logprob, allowed mass, [(token, logprob)...])...] */
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

/* Returns only the text. */
static mp_obj_t generated_text(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_generated result;
  raise_if(script_generation_result(&result));
  return from_text(result.text);
}
FUNCTION(generated_text, 0, 0);

/* mask or None, options */
static mp_obj_t begin_sample(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const script_row row = {to_mask(of[0]), to_options(of[1])};
  raise_if(script_begin_sample(&row));
  return mp_const_none;
}
FUNCTION(begin_sample, 2, 2);

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

/* ---- distributions ---- */

/* Returns a view of floats. */
static mp_obj_t from_logits(const float *logits, size_t size) {
  float *const copy = m_new(float, size);
  memcpy(copy, logits, size * sizeof *copy);
  return mp_obj_new_memoryview('f', size, copy);
}

static const float *to_logits(mp_obj_t object, size_t *size) {
  mp_buffer_info_t buffer;
  mp_get_buffer_raise(object, &buffer, MP_BUFFER_READ);
  *size = buffer.len / sizeof(float);
  if (*size != script_vocabulary_size())
    mp_raise_ValueError(MP_ERROR_TEXT("a distribution has one logit for every token of the vocabulary"));
  return buffer.buf;
}

/* number of tokens; 0: all logits; without those of sequences that follow */
static mp_obj_t begin_look(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_begin_look((uint32_t)mp_obj_get_int(of[0]), mp_obj_is_true(of[1])));
  return mp_const_none;
}
FUNCTION(begin_look, 2, 2);

/* Returns a view of all logits, or the most likely tokens if these were asked for. */
static mp_obj_t looked(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_distribution found;
  raise_if(script_look_result(&found));
  return found.size == 0 ? from_top(found.top, found.num_top) : from_logits(found.logits, found.size);
}
FUNCTION(looked, 0, 0);

/* leader, weight, name of a second model */
static mp_obj_t begin_follow(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t leader = (uint32_t)mp_obj_get_int_truncated(of[0]);
  raise_if(script_begin_follow(leader, (float)mp_obj_get_float(of[1]), to_text(of[2])));
  return mp_const_none;
}
FUNCTION(begin_follow, 3, 3);

static mp_obj_t fork_group(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return from_tokens(script_fork_group());
}
FUNCTION(fork_group, 0, 0);

static mp_obj_t norm(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  size_t size;
  const float *const logits = to_logits(of[0], &size);
  return mp_obj_new_float(script_norm(logits, size));
}
FUNCTION(norm, 1, 1);

/* logits, norm */
static mp_obj_t entropy(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  size_t size;
  const float *const logits = to_logits(of[0], &size);
  return mp_obj_new_float(script_entropy(logits, size, mp_obj_get_float(of[1])));
}
FUNCTION(entropy, 2, 2);

/* logits, norm, mask */
static mp_obj_t mass(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  size_t size;
  const float *const logits = to_logits(of[0], &size);
  return mp_obj_new_float(script_mass(logits, size, mp_obj_get_float(of[1]), to_mask(of[2])));
}
FUNCTION(mass, 3, 3);

/* logits, norm, count */
static mp_obj_t likely(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  size_t size;
  const float *const logits = to_logits(of[0], &size);
  const mp_int_t wanted = mp_obj_get_int(of[2]);
  const size_t count = wanted < 0 ? 0 : (size_t)wanted < size ? (size_t)wanted : size;
  script_top *const top = m_new(script_top, count);
  script_likely(logits, size, mp_obj_get_float(of[1]), top, count);
  return from_top(top, count);
}
FUNCTION(likely, 3, 3);

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

/* milliseconds or 0, names */
static mp_obj_t begin_wait(size_t n, const mp_obj_t *of) {
  script_text names[n];
  for (size_t i = 1; i < n; i++) names[i - 1] = to_text(of[i]);
  const mp_int_t milliseconds = mp_obj_get_int(of[0]);
  if (milliseconds < 0) mp_raise_ValueError(MP_ERROR_TEXT("a time to wait is 0 or more"));
  script_begin_wait(names, n - 1, (uint32_t)milliseconds);
  return mp_const_none;
}
FUNCTION(begin_wait, 1, MOST_TEXTS);

/* Returns whether all variables exist. */
static mp_obj_t waited(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  bool there;
  raise_if(script_wait_result(&there));
  return mp_obj_new_bool(there);
}
FUNCTION(waited, 0, 0);

static mp_obj_t begin_step(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_begin_step();
  return mp_const_none;
}
FUNCTION(begin_step, 0, 0);

/* ---- callbacks ---- */

/* sequence, number, tokens, backtrack, sampled, logprob, allowed mass, top, group, looked, logits or None */
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
      mp_obj_new_bool(step.looked),
      step.num_logits == 0 ? mp_const_none : from_logits(step.logits, step.num_logits),
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

static mp_obj_t answer_sample(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const script_row row = {to_mask(of[0]), to_options(of[1])};
  raise_if(script_answer_sample(&row));
  return mp_const_none;
}
FUNCTION(answer_sample, 2, 2);

static mp_obj_t answer_look(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  raise_if(script_answer_look((uint32_t)mp_obj_get_int(of[0])));
  return mp_const_none;
}
FUNCTION(answer_look, 1, 1);

static mp_obj_t answer_splice(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_answer_splice((uint32_t)mp_obj_get_int(of[0]), to_tokens(of[1]));
  return mp_const_none;
}
FUNCTION(answer_splice, 2, 2);

static const mp_rom_map_elem_t entries[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR__aici)},
    {MP_ROM_QSTR(MP_QSTR_Error), MP_ROM_PTR(&aici_error_type)},
    ENTRY(force), ENTRY(rewind_to), ENTRY(turn), ENTRY(size), ENTRY(prompt_size), ENTRY(tokens_between), ENTRY(text_between),
    ENTRY(mark), ENTRY(place), ENTRY(pattern), ENTRY(follow), ENTRY(unfollow), ENTRY(follow_append),
    ENTRY(follow_end), ENTRY(follow_next), ENTRY(begin_generation), ENTRY(generated), ENTRY(generated_text),
    ENTRY(begin_sample), ENTRY(sampled), ENTRY(begin_fork), ENTRY(forked), ENTRY(begin_wait), ENTRY(waited),
    ENTRY(begin_step), ENTRY(present_step), ENTRY(answer_stop), ENTRY(answer_suspend), ENTRY(answer_fork),
    ENTRY(answer_sample), ENTRY(answer_splice), ENTRY(answer_look), ENTRY(begin_look), ENTRY(looked), ENTRY(norm), ENTRY(begin_follow), ENTRY(fork_group),
    ENTRY(entropy), ENTRY(mass), ENTRY(likely),
};
static MP_DEFINE_CONST_DICT(globals, entries);

const mp_obj_module_t aici_module = {.base = {&mp_type_module}, .globals = (mp_obj_dict_t *)&globals};
MP_REGISTER_MODULE(MP_QSTR__aici, aici_module);
