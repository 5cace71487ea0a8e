// aici: the library for scripts. docs/guide is the manual; aici.d.ts has the types.
//
// `main` awaits actions (gen, fork, ...). The core carries them out step by step, without the interpreter. The
// script continues when they are complete.

import * as native from "_aici";
import * as host from "_host";

/** The script's argument (`--arg`): a text, or any JSON value. */
export const arg = JSON.parse(globalThis._aici_argument);
delete globalThis._aici_argument;

// ---- the log

function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return String(value);
  if (value === null || typeof value !== "object") return String(value);
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value);
  }
}

/** Writes to the log, as console.log does. */
export function print(...values) {
  host.print(values.map(shown).join(" ") + "\n");
}

globalThis.print = print;
globalThis.console = { log: print, info: print, warn: print, error: print, debug: print };

// QuickJS's own generator is seeded once, so all forks and requests would draw the same numbers.
Math.random = host.random;

// ---- actions

let present = null; // the awaited action

const unawaited = new Set();

class Action {
  #begin;
  #result;

  constructor(name, begin, result) {
    this.name = name;
    this.#begin = begin;
    this.#result = result;
    unawaited.add(this);
  }

  then(resolve, reject) {
    unawaited.delete(this);
    try {
      if (present !== null) throw new Error("one action at a time: await one before the next begins");
      this.#begin();
      present = { resolve, reject, result: this.#result };
    } catch (error) {
      reject(error);
    }
  }
}

/** An action that a call has to be answered for. */
class Later extends Action {
  #answer;
  #action;

  constructor(name, answer, action) {
    super(name);
    this.#answer = answer;
    this.#action = action;
  }

  then(resolve, reject) {
    unawaited.delete(this);
    this.#run().then(resolve, reject);
  }

  async #run() {
    return await this.#action(await this.#answer);
  }
}

export function _end() {
  const { resolve, reject, result } = present;
  present = null;
  try {
    resolve(result());
  } catch (error) {
    reject(error);
  }
}

/** Called when `main` has ended. */
export function _ended() {
  for (const { name } of unawaited) print(`warning: ${name}(...) was never awaited: write await ${name}(...)`);
}

/** A place in the sequence, to read the text since then, or to backtrack to. */
export class Label {
  #mark = native.mark();

  get position() {
    return native.place(this.#mark);
  }

  get tokens() {
    return native.tokensBetween(this.position, native.size());
  }

  get text() {
    return native.textBetween(this.position, native.size());
  }
}

export function label() {
  return new Label();
}

export function force(text, { after } = {}) {
  if (after !== undefined) native.rewindTo(after.position);
  native.force(text);
}

export function backtrack(label) {
  native.rewindTo(label.position);
}

// ---- messages of the chat, as the model's chat template writes them

const [USER, SYSTEM, TOOL, ASSISTANT] = [0, 1, 2, 3];

export const user = (text) => native.turn(USER, "", text);
export const system = (text) => native.turn(SYSTEM, "", text);
export const tool = (name, result) =>
  native.turn(TOOL, name, typeof result === "string" ? result : JSON.stringify(result));
export const assistant = () => native.turn(ASSISTANT, "", "");

// ---- patterns

const [REGEX, CHOICE, SCHEMA, SUBSTRING, KBNF, LARK, GBNF, YACC] = [0, 1, 2, 3, 4, 5, 6, 7];
const numbers = new WeakMap(); // of patterns and constraints

/** A pattern for generated texts. Patterns made at the top level are compiled before any request. */
export class Pattern {
  constructor(kind, source) {
    numbers.set(this, native.pattern(kind, source));
  }

  follow() {
    return new Constraint(this);
  }
}

/** A constraint that callbacks advance token by token. */
export class Constraint {
  constructor(pattern) {
    numbers.set(this, native.follow(numbers.get(pattern)));
  }

  append(tokens) {
    native.followAppend(numbers.get(this), tokens);
  }

  get ended() {
    return native.followEnded(numbers.get(this));
  }

  get mayEnd() {
    return native.followMayEnd(numbers.get(this));
  }

  allowed() {
    const next = native.followNext(numbers.get(this));
    const found = new TokenSet();
    if (Array.isArray(next)) found.allow(next[0]);
    else if (next !== null) found._bits = next;
    return found;
  }

  forced() {
    const next = native.followNext(numbers.get(this));
    return Array.isArray(next) ? next : [];
  }

  close() {
    native.unfollow(numbers.get(this));
    numbers.delete(this);
  }
}

export function regex(pattern) {
  if (!(pattern instanceof RegExp)) return new Pattern(REGEX, pattern);
  const flags = pattern.flags.replace(/[gyuvd]/g, "");
  return new Pattern(REGEX, flags === "" ? pattern.source : `(?${flags})${pattern.source}`);
}

export function choice(texts) {
  if (typeof texts === "string") {
    throw new TypeError(`choice takes a list of texts, not one text: write [${JSON.stringify(texts)}]`);
  }
  return new Pattern(CHOICE, JSON.stringify([...texts]));
}

export function schema(schema, { whitespace = "flexible" } = {}) {
  if (typeof schema === "string") schema = JSON.parse(schema);
  return new Pattern(SCHEMA, JSON.stringify({ schema, whitespace }));
}

export function substring(text, end) {
  return new Pattern(SUBSTRING, JSON.stringify({ text, end }));
}

export const kbnf = (grammar) => new Pattern(KBNF, grammar);
export const lark = (grammar) => new Pattern(LARK, grammar);
export const gbnf = (grammar) => new Pattern(GBNF, grammar);
export const yacc = (grammar) => new Pattern(YACC, grammar);

const makers = { regex, choice, schema, substring, kbnf, lark, gbnf, yacc };

function patternOf(pattern, ways) {
  for (const [name, value] of Object.entries(ways)) {
    if (!Object.hasOwn(makers, name)) throw new TypeError(`gen has no option ${name}`);
    if (pattern !== undefined) throw new TypeError(`gen takes one pattern: not ${name} besides another one`);
    pattern = makers[name](value);
  }
  if (pattern === undefined) return 0;
  if (!(pattern instanceof Pattern)) throw new TypeError("a pattern is made by regex(), choice(), schema() and so on");
  return numbers.get(pattern);
}

// ---- generating

export class Generated {
  constructor({ text, finishReason, details }) {
    this.text = text;
    this.finishReason = finishReason;
    this.details = details;
  }

  get tokens() {
    return this.details.map(({ token }) => token);
  }

  get logprob() {
    return this.details.reduce((sum, { logprob }) => sum + (logprob ?? 0), 0);
  }

  toString() {
    return this.text;
  }
}

function textsOf(stop) {
  const stops = stop === undefined ? [] : typeof stop === "string" ? [stop] : [...stop];
  if (stops.includes("")) throw new RangeError("a stop string is empty");
  return stops;
}

/** The bytes of tokens and their biases in turn: from an object or a Map, or from an array with one for each token. */
function biasesOf(biases) {
  if (biases === undefined || biases === null) return null;
  if (Object(biases) !== biases) throw new TypeError("biases are an object, a Map or an array");
  const isArray = Array.isArray(biases) || ArrayBuffer.isView(biases);
  if (isArray && biases.length !== vocabSize())
    throw new RangeError(`biases: an array has one for each of the ${vocabSize()} tokens`);
  const pairs = biases instanceof Map || isArray ? [...biases.entries()] : Object.entries(biases);
  return new Uint8Array(Float64Array.from(pairs.flat(), Number).buffer);
}

/** The bytes of the tokens of a text. */
function predictionOf(text) {
  if (text === undefined || text === null) return null;
  return new Uint8Array(Uint32Array.from(typeof text === "string" ? tokenize(text) : text).buffer);
}

/** Takes the options of sampling a token out of others. */
function samplingOf(
  { temperature, topP, topK, minP, typicalP, topNSigma, topLogprobs, favoured, bias = 0, biases, prediction, ...others },
  whole,
) {
  if (!whole && topLogprobs !== undefined) others.topLogprobs = topLogprobs;
  const numbers = [temperature, topP, topK, minP, typicalP, topNSigma, topLogprobs ?? 0];
  return { sampling: [...numbers, favoured?._bits, bias, biasesOf(biases), predictionOf(prediction)], ...others };
}

function generation(name, first, second, read, whole) {
  if (first instanceof RegExp) first = regex(first);
  const isPattern = first instanceof Pattern;
  if (!isPattern && (second !== undefined || (first !== undefined && Object(first) !== first)))
    throw new TypeError(`${name} takes options, or a pattern and options; regex(), choice(), ... make patterns`);
  const given = (isPattern ? second : first) ?? {};
  if (given.schema instanceof Call) {
    const again = (schema) => ({ ...given, schema });
    return new Later(name, given.schema, (schema) =>
      isPattern ? generation(name, first, again(schema), read, whole) : generation(name, again(schema), undefined, read, whole),
    );
  }
  const { maxTokens, maxBytes, stop, includeStop, leave = true, store, logprobs, ...others } = given;
  const { sampling, ...ways } = samplingOf(others, whole);
  const number = patternOf(isPattern ? first : undefined, ways);
  const stops = textsOf(stop);
  const score = whole && (logprobs ?? true);
  return new Action(
    name,
    () => native.beginGeneration(number, maxTokens, maxBytes, score, stops, includeStop, leave, sampling),
    () => {
      const found = read();
      if (store !== undefined) setVar(store, String(found));
      return found;
    },
  );
}

/** gen(options), or gen(pattern, options): generates a text and returns it. */
export function gen(pattern, options) {
  return generation("gen", pattern, options, native.generatedText, false);
}

/** As gen, but returns a Generated with all details. */
export function generate(pattern, options) {
  return generation("generate", pattern, options, () => new Generated(native.generated()), true);
}

const rowOf = (allowed, options = {}) => {
  const { sampling, ...wrong } = samplingOf(options, true);
  for (const name of Object.keys(wrong)) throw new TypeError(`sample has no option ${name}`);
  return [allowed?._bits, sampling];
};

/** Samples one token, from a set or from all tokens. */
export function sample(allowed, options) {
  const row = rowOf(allowed, options);
  return new Action("sample", () => native.beginSample(...row), native.sampled);
}

// ---- the distribution of the next token, before it is sampled

/** The model's logits for every token, without any pattern, at temperature 1. */
export class Distribution {
  constructor(bytes) {
    this._bytes = bytes;
    this._norm = native.norm(bytes);
    this.logits = new Float32Array(bytes.buffer);
  }

  logprob(token) {
    return this.logits[token] - this._norm;
  }

  likely(count) {
    return native.likely(this._bytes, this._norm, count);
  }

  mass(tokens) {
    return native.mass(this._bytes, this._norm, tokens._bits);
  }

  get entropy() {
    return native.entropy(this._bytes, this._norm);
  }
}

export function distribution({ own = false } = {}) {
  return new Action("distribution", () => native.beginLook(0, own), () => new Distribution(native.looked()));
}

export function likely(count, { own = false } = {}) {
  return new Action("likely", () => native.beginLook(Math.max(count, 1), own), native.looked);
}

// ---- attempts and choices

/** Awaits check() until it returns something, and removes what it has written before each other attempt. */
export async function retry(check, attempts) {
  if (!(attempts >= 1)) throw new RangeError(`attempts is ${attempts}; it must be at least 1`);
  const start = label();
  for (let i = 0; i < attempts; i++) {
    const found = (await check()) ?? false;
    if (found !== false) return found;
    backtrack(start);
  }
  throw new Error(`none of ${attempts} attempts has passed its check`);
}

/** Writes the text that is the most likely as a whole. A fork for each text computes its probability. */
export async function choose(choices) {
  const texts = [...choices];
  const tokens = texts.map(tokenize);
  if (texts.length === 0 || texts.includes("")) throw new RangeError("choose takes one text or more, and none may be empty");
  const scores = texts.length === 1 ? [0] : await gather(tokens.map(scorer));
  const best = scores.indexOf(Math.max(...scores));
  force(tokens[best]);
  return texts[best];
}

/** Of a token that the model never writes; results of forks are JSON, which has no infinity. */
const NEVER = -1e9;

const scorer = (tokens) => async () => {
  let total = 0;
  for (const token of tokens) {
    const { logprob } = await sample(new TokenSet(token), { temperature: 0, topLogprobs: 1 });
    total += Math.max(NEVER, logprob);
  }
  return total;
};

// ---- JSON of a model: a class with types as fields, a type, or an array, object or Set of models

/** The type of whole numbers in models. */
export const Integer = (value) => Math.trunc(Number(value));

const types = new Map([[Integer, "integer"], [Number, "number"], [String, "string"], [Boolean, "boolean"]]);

/** The members of an object with their models; null if it is a model of something else. */
function membersOf(model) {
  if (typeof model === "function") return types.has(model) ? null : new model();
  return Object(model) !== model || Array.isArray(model) || model instanceof Set ? null : model;
}

function schemaOf(model) {
  const members = membersOf(model);
  if (members !== null) {
    const properties = Object.fromEntries(Object.entries(members).map(([name, each]) => [name, schemaOf(each)]));
    return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
  }
  if (Array.isArray(model)) {
    if (model.length !== 1) throw new TypeError("the model of an array has one member, the model of each item");
    return { type: "array", items: schemaOf(model[0]) };
  }
  if (model instanceof Set) return { anyOf: [...model].map(schemaOf) };
  if (types.has(model)) return { type: types.get(model) };
  if (model === null || ["boolean", "number", "string"].includes(typeof model)) return { const: model };
  throw new TypeError(`this is no model: ${shown(model)}`);
}

/** Returns the value that JSON of this model stands for. Throws a TypeError if it does not fit. */
function made(model, value) {
  const members = membersOf(model);
  const isObject = Object(value) === value && !Array.isArray(value);
  if (members !== null && isObject) {
    const names = Object.keys(members);
    if (names.length === Object.keys(value).length && names.every((name) => Object.hasOwn(value, name))) {
      const found = typeof model === "function" ? members : {};
      for (const name of names) found[name] = made(members[name], value[name]);
      return found;
    }
  }
  if (Array.isArray(model) && Array.isArray(value)) return value.map((each) => made(model[0], each));
  if (model instanceof Set) {
    for (const each of model) {
      try {
        return made(each, value);
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
      }
    }
  }
  const isOfType = model === Integer ? Number.isInteger(value) : typeof value === types.get(model);
  if (types.has(model) ? isOfType : members === null && value === model) return value;
  throw new TypeError(`${shown(value)} does not fit the model ${types.get(model) ?? model?.name ?? shown(model)}`);
}

/** Generates JSON of a model, and returns the value. */
export async function json(model, options) {
  return made(model, JSON.parse(await gen({ ...options, schema: schemaOf(model) })));
}

// ---- forks

export function fork(count) {
  return new Action("fork", () => native.beginFork(count), native.forked);
}

export function wait(...names) {
  return new Action(
    "wait",
    () => native.beginWait(names, 0),
    () => {
      native.waited();
      const values = names.map((name) => getVar(name));
      return values.length === 1 ? values[0] : values;
    },
  );
}

export function sleep(seconds) {
  return new Action("sleep", () => native.beginWait([], Math.ceil(1000 * seconds)), native.waited);
}

let gathered = 0;

/** Awaits actions and calls; or runs each function in its own fork. Returns the results in this sequence. */
export async function gather(list) {
  if (list.some((each) => typeof each !== "function")) return await gatherActions(list);
  return await gatherFunctions(list);
}

async function gatherActions(list) {
  const found = [];
  // calls go on beside the actions, whatever comes first
  for (const calls of [false, true])
    for (const [i, each] of list.entries()) if (each instanceof Call === calls) found[i] = await each;
  return found;
}

async function gatherFunctions(functions) {
  gathered++;
  const names = functions.map((_, i) => `aici.gather.${gathered}.${i}`);
  const start = label();
  const mine = await fork(functions.length);
  let answer;
  try {
    answer = { value: await functions[mine]() };
  } catch (error) {
    if (mine === 0) throw error;
    answer = { error: String(error) };
  }
  setVar(names[mine], JSON.stringify(answer));
  if (mine !== 0) stop();
  backtrack(start);
  await wait(...names);
  return names.map((name) => {
    const { value, error } = JSON.parse(getVar(name));
    if (error !== undefined) throw new Error(`a function given to gather failed: ${error}`);
    return value;
  });
}

/** Runs a function in a fork that then follows this sequence, whose logits it changes. */
export async function mix(func, weight, { model = "" } = {}) {
  if ((await fork(2)) === 0) {
    await wait(`aici.follows.${native.forkGroup()[1]}`);
    return;
  }
  const [leader] = native.forkGroup();
  if (func !== null) await func();
  await new Action("mix", () => native.beginFollow(leader, weight, model), () => undefined);
}

// ---- calls, which somebody outside answers

export class CallError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "CallError";
    this.code = code;
  }
}

/** A call under way: await it for its answer. */
export class Call {
  #result;

  /** Whether somebody has got the answer. */
  taken = false;

  constructor(name, args) {
    this.name = name;
    this.#result = host.call(name, JSON.stringify(args ?? {}));
  }

  /** Whether the answer has come. */
  get done() {
    return host.getVariable(this.#result) !== null;
  }

  then(resolve, reject) {
    this.wait().then(resolve, reject);
  }

  /** Waits for the answer, no longer than so many seconds: then it fails, and the call goes on. */
  async wait(timeout = 0) {
    const wait = () => native.beginWait([this.#result], Math.ceil(1000 * timeout));
    if (!this.done && !(await new Action("call", wait, native.waited)))
      throw new CallError("timeout", `${this.name} has not answered within ${timeout} s`);
    const { value, error } = JSON.parse(host.getVariable(this.#result).value);
    this.taken = true;
    if (error !== undefined) throw new CallError(error.code, error.message);
    return value;
  }
}

/** Makes a call, which begins at once. */
export function call(name, args) {
  return new Call(name, args);
}

let receiving = null;

/** The next message to this run. After a timeout it goes on waiting for the same one. */
export function receive() {
  if (receiving === null || receiving.taken) receiving = new Call("aici.receive");
  return receiving;
}

/** Sends a message to another run of the same user. */
export function send(run, value) {
  return new Call("aici.send", { run, value });
}

class ToolArguments extends Call {
  #tool;

  constructor(tool) {
    super("aici.calls");
    this.#tool = tool;
  }

  async wait(timeout = 0) {
    const calls = await super.wait(timeout);
    const call = calls.find(({ name }) => name === this.#tool);
    if (call === undefined) {
      const there = calls.map(({ name }) => name).join(", ") || "none";
      throw new CallError("unknown_call", `nobody answers the call '${this.#tool}'; there are: ${there}`);
    }
    if ((call.schema ?? null) === null)
      throw new CallError("no_schema", `the call '${this.#tool}' has no schema: write your own`);
    return call.schema;
  }
}

/** The JSON schema of a call's arguments. */
export function toolArguments(name) {
  return new ToolArguments(name);
}

export function nextStep() {
  return new Action("nextStep", native.beginStep, () => undefined);
}

export function stop() {
  host.stop();
}

export function fail(message) {
  host.fail(String(message));
}

// ---- variables, which the forks of one request share

export function getVar(name, otherwise) {
  const found = host.getVariable(name);
  return found === null ? otherwise : found.value;
}

export function varVersion(name) {
  return host.getVariable(name)?.version ?? 0;
}

export function setVar(name, value, { ifVersion } = {}) {
  return host.setVariable(name, String(value), false, ifVersion);
}

export function appendVar(name, value) {
  return host.setVariable(name, String(value), true, undefined);
}

/** A variable with a JSON value, of a model if there is one. */
export class Variable {
  #model;

  constructor(name, model) {
    this.name = name;
    this.#model = model;
  }

  get version() {
    return varVersion(this.name);
  }

  get(otherwise) {
    const found = getVar(this.name);
    if (found === undefined) return otherwise;
    const value = JSON.parse(found);
    return this.#model === undefined ? value : made(this.#model, value);
  }

  set(value, options) {
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError(`${shown(value)} has no JSON`);
    if (this.#model !== undefined) made(this.#model, JSON.parse(text));
    return setVar(this.name, text, options);
  }

  /** Another fork may write it meanwhile, which then comes first. */
  update(change, otherwise) {
    for (;;) {
      const { version } = this;
      const value = change(this.get(otherwise));
      if (this.set(value, { ifVersion: version }) !== 0) return value;
    }
  }
}

// ---- tokens

const bitCounts = Uint8Array.from({ length: 256 }, (_, byte) => {
  let count = 0;
  for (let left = byte; left !== 0; left >>= 1) count += left & 1;
  return count;
});

/** A set of tokens, as a mask. */
export class TokenSet {
  constructor(tokens) {
    this._bits = new Uint8Array(host.maskBytes());
    if (tokens !== undefined) this.allow(tokens);
  }

  static all() {
    const found = new TokenSet();
    host.maskAll(found._bits);
    return found;
  }

  static text() {
    const found = new TokenSet();
    host.maskText(found._bits);
    return found;
  }

  copy() {
    const found = new TokenSet();
    found._bits.set(this._bits);
    return found;
  }

  allow(tokens) {
    host.maskPut(this._bits, some(tokens), true);
  }

  forbid(tokens) {
    host.maskPut(this._bits, some(tokens), false);
  }

  has(token) {
    return ((this._bits[token >> 3] ?? 0) >> (token & 7)) % 2 === 1;
  }

  get size() {
    return this._bits.reduce((sum, byte) => sum + bitCounts[byte], 0);
  }

  [Symbol.iterator]() {
    return host.maskTokens(this._bits)[Symbol.iterator]();
  }

  or(other) {
    return this.#combined(other, (mine, its) => mine | its);
  }

  and(other) {
    return this.#combined(other, (mine, its) => mine & its);
  }

  minus(other) {
    return this.#combined(other, (mine, its) => mine & ~its);
  }

  #combined(other, how) {
    const found = new TokenSet();
    for (let i = 0; i < found._bits.length; i++) found._bits[i] = how(this._bits[i], other._bits[i]);
    return found;
  }
}

function some(tokens) {
  return typeof tokens === "number" ? [tokens] : [...tokens];
}

export const tokenize = (text) => host.tokenize(text);
export const detokenize = (tokens) => host.detokenize([...tokens]);
export const tokenBytes = (token) => host.tokenBytes(token);
export const isSpecial = (token) => host.isSpecial(token);
export const vocabSize = () => host.vocabularySize();
export const eosTokens = () => host.eosTokens();

// ---- the sequence

export const promptTokens = () => native.tokensBetween(0, native.promptSize());
export const prompt = () => native.textBetween(0, native.promptSize());
export const tokens = () => native.tokensBetween(Math.min(native.promptSize(), native.size()), native.size());
export const text = () => native.textBetween(Math.min(native.promptSize(), native.size()), native.size());
export const capability = (name) => host.capability(name);

// ---- callbacks, for scripts without `main`

class Answer {
  constructor(name, where, give) {
    this.name = name;
    this.where = where;
    this.give = give;
  }
}

export const Stop = () => new Answer("Stop", null, native.answerStop);
export const Suspend = () => new Answer("Suspend", "pre_process", native.answerSuspend);
export const Fork = (count) => new Answer("Fork", "pre_process", () => native.answerFork(count));
export const Sample = (allowed, options) =>
  new Answer("Sample", "mid_process", () => native.answerSample(...rowOf(allowed, options)));
export const Look = (topLogprobs = 0) => new Answer("Look", "mid_process", () => native.answerLook(topLogprobs));
export const Splice = (tokens = [], { backtrack = 0 } = {}) =>
  new Answer("Splice", "mid_process", () => native.answerSplice(backtrack, tokens));

function presentStep() {
  const step = native.presentStep();
  if (step.distribution !== null) step.distribution = new Distribution(step.distribution);
  return step;
}

export function _call(name, callback) {
  const answer = callback(name === "init_prompt" ? promptTokens() : presentStep());
  if (answer === undefined) {
    if (name === "mid_process") throw new TypeError("mid_process must return Sample(...), Splice(...), Look(...) or Stop()");
    return;
  }
  if (name === "init_prompt" || !(answer instanceof Answer))
    throw new TypeError(`${name} returned what is no answer of it: ${shown(answer)}`);
  if (answer.where !== null && answer.where !== name)
    throw new TypeError(`${answer.name} is an answer of ${answer.where}, not of ${name}`);
  answer.give();
}
