/**
 * The module that scripts of the controller `jsctrl` import, for editors and TypeScript.
 *
 * A script exports `async function main()`, which awaits actions such as `gen`, or `mid_process(step)` and other
 * callbacks. Its top level runs once, before the prompt is known. docs/guide is the manual.
 */
declare module "aici" {
  /**
   * How a generated text ended: nothing can follow in its pattern (`complete`); the model ended it, or preferred a
   * token that the pattern forbids (`eos`); at a stop string; at a limit of tokens or bytes.
   */
  export type FinishReason = "complete" | "eos" | "stop" | "max_tokens" | "max_bytes";

  /** The script's argument: a text, or any JSON value; null if there is none. */
  export const arg: any;

  /** Writes to the log, as `console.log` does. */
  export function print(...values: unknown[]): void;

  // ---- forced and generated text

  /**
   * Appends a text, or tokens. The model reads them and does not generate them. There is nothing to await.
   *
   * With `after`, first removes everything after that label.
   *
   * End a forced text before a space, not after it. Most tokens that begin a word include the space before the
   * word, so let the generated text begin with the space.
   *
   *     force("The answer is");
   *     const number = await gen({ regex: / [0-9]+/ });
   */
  export function force(text: string | number[], options?: { after?: Label }): void;

  /**
   * Appends a user's message to the chat, as the model's chat template writes it. There is nothing to await.
   *
   * Ends the model's answer before, unless the model has ended it, and begins the next answer. A message that
   * follows another one directly takes the place of this beginning. The text never becomes special tokens.
   *
   * Throws an Error if the model has no chat template, if it cannot be continued or has no such message here, and
   * if the prompt is not a chat.
   *
   *     const answer = await gen({ maxTokens: 100 });
   *     user("And tomorrow?");
   *     await gen({ maxTokens: 100 });
   */
  export function user(text: string): void;
  /** Appends a system message, as `user` does. Many templates take one only at the beginning of a chat. */
  export function system(text: string): void;
  /**
   * Appends the result of a tool, as `user` does: a text, or any other value as JSON.
   *
   * Results of several calls follow each other: await other actions before the first of them.
   */
  export function tool(name: string, result: unknown): void;
  /** Ends the model's answer and begins another one. Writes nothing where an answer has just begun. */
  export function assistant(): void;

  /** A pattern that is defined where it is used: at most one of these. */
  export interface Ways {
    regex?: string | RegExp;
    choice?: Iterable<string>;
    schema?: object | string | boolean;
    substring?: string;
    kbnf?: string;
    lark?: string;
    gbnf?: string;
    yacc?: string;
  }

  export interface Generation extends Sampling {
    /** The text ends before one of these strings, even within a token. */
    stop?: string | Iterable<string>;
    /** Keeps the stop string at the end of the text. */
    includeStop?: boolean;
    /** Maximum number of tokens. */
    maxTokens?: number;
    /** Maximum number of bytes. The text is never cut within a character. */
    maxBytes?: number;
    /** Also sets the variable of this name to the text. */
    store?: string;
    /**
     * Where the pattern may end, the text also ends if the model prefers a token that the pattern forbids. If
     * false, only the model's end token ends the text early. Default: true.
     */
    leave?: boolean;
  }

  export interface Details {
    /** Whether to compute the probability of each token. Default: true. */
    logprobs?: boolean;
    /** Number of most likely tokens to list at each position. */
    topLogprobs?: number;
  }

  /**
   * Generates a text; the promise resolves to it.
   *
   *     const name = await gen({ regex: /[A-Z][a-z]+/, maxTokens: 8 });
   *
   * The text matches one pattern: an existing one (`pattern`), or one defined here (`regex`, `choice`, ...).
   * Without a pattern, any text is allowed.
   *
   * The text ends where nothing can follow in the pattern, where the model ends it, at a `stop` string, or at a
   * limit. Without a limit, a model that does not end its text writes until the request's own `max_tokens`.
   *
   * Only one action can run at a time: await it before you start the next.
   *
   * Throws if the pattern or another option is invalid.
   */
  export function gen(options?: Ways & Generation): PromiseLike<string>;
  export function gen(pattern: Pattern, options?: Generation): PromiseLike<string>;

  /** Generates a text as `gen` does; the promise resolves to the text with its details. */
  export function generate(options?: Ways & Generation & Details): PromiseLike<Generated>;
  export function generate(pattern: Pattern, options?: Generation & Details): PromiseLike<Generated>;

  /**
   * Samples one token, from a set or from all tokens.
   *
   *     const one = await sample(new TokenSet(tokenize("abc")), { topLogprobs: 1 });
   *
   * An end token does not end the sequence here, unless `capability("hold_end")` is 0.
   *
   * Throws a TypeError or RangeError if an option is invalid, and an Error if there are biases and
   * `capability("dense")` is 0.
   */
  export function sample(allowed?: TokenSet, options?: Sampled): PromiseLike<Token>;

  /** How a token is sampled. Default: the request's own options. docs/abi.md defines them and their order. */
  export interface Sampling {
    /** 0 selects the most likely token. */
    temperature?: number;
    /** Keeps the most likely tokens that together reach this probability; 1 keeps all. */
    topP?: number;
    /** Keeps so many most likely tokens; 0 keeps all. */
    topK?: number;
    /** Keeps tokens with this share of the largest probability; 0 keeps all. */
    minP?: number;
    /** Like `topP`, for the tokens whose surprise is nearest to its mean; 1 keeps all. */
    typicalP?: number;
    /** Keeps logits up to so many standard deviations below the largest; 0 keeps all. */
    topNSigma?: number;
    /** The tokens to whose logits `bias` is added; +0.7 doubles their odds against others. */
    favoured?: TokenSet;
    bias?: number;
    /**
     * Adds to the logit of each token its own number: by token, or in an array with one for each token of the
     * vocabulary. -Infinity forbids a token.
     */
    biases?: Record<number, number> | Map<number, number> | ArrayLike<number>;
    /**
     * An expected text or its tokens; that of `sample` begins with the sampled token. The model reads several of them
     * at once where the text follows it, which takes less time; the text is the same, right or wrong (see
     * `capability("drafts")`).
     */
    prediction?: string | ArrayLike<number>;
  }

  /** Options of `sample` and `Sample`. */
  export interface Sampled extends Sampling {
    /** Number of most likely tokens to list. With 1 or more, the token's probability is known, too. */
    topLogprobs?: number;
  }

  /** A token with its log-probability. */
  export interface Likely {
    token: number;
    logprob: number;
  }

  /** The model's distribution of the next token: without any pattern or bias, at temperature 1. */
  export class Distribution {
    /** The logits of all tokens, as the model has computed them; -Infinity for ids that are no tokens. */
    readonly logits: Float32Array;
    /** Returns the natural logarithm of a token's probability. */
    logprob(token: number): number;
    /** Returns the most likely tokens with their log-probabilities, most likely first. */
    likely(count: number): Likely[];
    /** Returns the probability of a set of tokens. */
    mass(tokens: TokenSet): number;
    /** The entropy of the distribution, in nats. */
    get entropy(): number;
  }

  /**
   * Looks at the distribution of the next token before it is sampled.
   *
   *     const seen = await distribution();
   *     await sample(undefined, { temperature: seen.entropy > 2 ? 0.5 : 1 });
   *
   * The text does not change, and the token that follows costs no further pass of the model. Each look makes the engine
   * wait for the script once more, and costs a copy of all logits. Throws if `capability("look")` is below 2.
   * `own`: the distribution of this sequence alone, without what `mix` adds.
   */
  export function distribution(options?: { own?: boolean }): PromiseLike<Distribution>;
  /**
   * Looks at the most likely next tokens before one is sampled, with their log-probabilities as in `Distribution`. At
   * most `capability("top_logprobs")` of them. Throws if `capability("look")` is 0.
   */
  export function likely(count: number, options?: { own?: boolean }): PromiseLike<Likely[]>;

  /** A sampled token. */
  export interface Token {
    token: number;
    /**
     * Natural logarithm of the token's probability before any pattern applies, at the sampling temperature (1 for
     * temperature 0); null if the token was forced, or if the value was not requested or is not available.
     */
    logprob: number | null;
    /** Total probability of all allowed tokens, at the same temperature; null in the same cases. */
    allowedMass: number | null;
    /** The most likely tokens with their log-probabilities, if `topLogprobs` requested them. */
    topLogprobs: Likely[];
  }

  /** A generated text with its details. */
  export class Generated {
    constructor(found: { text: string; finishReason: FinishReason; details: Token[] });
    text: string;
    finishReason: FinishReason;
    /** The details of each token. */
    details: Token[];
    get tokens(): number[];
    /** The natural logarithm of the text's probability: the sum of its tokens' known log-probabilities. */
    get logprob(): number;
    toString(): string;
  }

  // ---- labels and backtracking

  /**
   * A position in the sequence, made by `label()`.
   *
   * A label inside removed text becomes invalid: using it throws an error.
   */
  export class Label {
    /** The number of tokens before the label, including the prompt's. */
    get position(): number;
    /** The tokens after the label. */
    get tokens(): number[];
    /** The text after the label. */
    get text(): string;
  }

  /**
   * Returns a label at the current end of the sequence.
   *
   * Use it to read the text since then, or to remove it:
   *
   *     const here = label();
   *     await gen({ maxTokens: 5 });
   *     console.log(here.text); // the generated text
   *     backtrack(here); // removes it
   */
  export function label(): Label;

  /**
   * Removes everything after the label; the model forgets it. There is nothing to await.
   *
   * Throws if the engine cannot backtrack: see `capability`.
   */
  export function backtrack(label: Label): void;

  // ---- patterns

  /**
   * A pattern that a generated text must match, made by `regex`, `choice`, `schema` and so on.
   *
   * Make patterns at the top level if possible: they are then compiled before any request, and all requests share
   * them.
   */
  export class Pattern {
    constructor(kind: number, source: string);
    /** Returns a new constraint, which follows the pattern token by token. */
    follow(): Constraint;
  }

  /**
   * Follows a pattern by hand. `gen` does this for you.
   *
   * Use a constraint with `sample`, in callbacks, or to combine patterns.
   */
  export class Constraint {
    constructor(pattern: Pattern);
    /** Continues the text with these tokens. Throws if the pattern forbids them. */
    append(tokens: string | number[]): void;
    /**
     * Whether an end token was appended, or the text of a `kbnf` pattern is complete.
     *
     * For other patterns, false does not mean that something can follow: see `allowed`.
     */
    get ended(): boolean;
    /** Whether the text is complete, so that it may end here. */
    get mayEnd(): boolean;
    /** Returns the tokens that may come next; an empty set where nothing can follow. */
    allowed(): TokenSet;
    /** Returns the tokens that must come next, if they are certain; otherwise none. */
    forced(): number[];
    /** Frees the constraint's memory. The constraint cannot be used afterwards. */
    close(): void;
  }

  /**
   * Returns a pattern for a regular expression, which the whole text matches. Syntax: docs/regex.md.
   *
   * The same syntax applies to `/.../`. Its flags i, m and s apply; the others are ignored.
   */
  export function regex(pattern: string | RegExp): Pattern;

  /** Returns a pattern for one of several texts. */
  export function choice(texts: Iterable<string>): Pattern;

  /**
   * Returns a pattern for JSON that matches a schema. docs/json_schema.md describes what is enforced.
   *
   * `schema`: an object or a boolean, or its JSON.
   * `whitespace`: "flexible" lets the model choose, "compact" has none, "spaced" has one space after each comma
   * and colon. Default: "flexible".
   */
  export function schema(
    schema: object | string | boolean,
    options?: { whitespace?: "flexible" | "compact" | "spaced" },
  ): Pattern;

  /**
   * Returns a pattern for a quotation: any part of a text, word for word.
   *
   * `end`: a marker that the model writes after the part, and that ends the quotation.
   */
  export function substring(text: string, end?: string): Pattern;

  /** Returns a pattern for a grammar in KBNF: docs/grammars.md. */
  export function kbnf(grammar: string): Pattern;

  /** Returns a pattern for a grammar in the syntax of Lark: docs/grammars.md. */
  export function lark(grammar: string): Pattern;

  /** Returns a pattern for a grammar in GBNF, the syntax of llama.cpp: docs/grammars.md. */
  export function gbnf(grammar: string): Pattern;

  /** Returns a pattern for a grammar in the syntax of yacc: docs/grammars.md. */
  export function yacc(grammar: string): Pattern;

  // ---- JSON of models

  /** The type of whole numbers in models. */
  export const Integer: (value: unknown) => number;

  /** The value that JSON of a model stands for. */
  export type Made<Model> = Model extends NumberConstructor | typeof Integer
    ? number
    : Model extends StringConstructor
      ? string
      : Model extends BooleanConstructor
        ? boolean
        : Model extends new () => infer Fields
          ? { [Name in keyof Fields]: Fields[Name] extends (...args: any[]) => any ? Fields[Name] : Made<Fields[Name]> }
          : Model extends Set<infer Each>
            ? Made<Each>
            : Model extends (infer Each)[]
              ? Made<Each>[]
              : Model extends object
                ? { [Name in keyof Model]: Made<Model[Name]> }
                : Model;

  /**
   * Generates JSON of a model; the promise resolves to the value.
   *
   *     class Order {
   *       fruit = new Set(["apples", "pears"]);
   *       count = Integer;
   *     }
   *     const order = await json(Order, { temperature: 0 });
   *     force(` So ${2 * order.count} halves of ${order.fruit}.`);
   *
   * A model is a class with the models of its members as fields; or `Integer`, `Number`, `String` or `Boolean`; an
   * array of one model, that of each item; an object of models by name; a Set of models of which one applies; or a
   * text, a number, a boolean or null, which stands for itself. Methods of a class are no members.
   *
   * Throws a TypeError if this is no model, and a SyntaxError if a limit has cut the text.
   */
  export function json<Model>(model: Model, options?: Generation): Promise<Made<Model>>;

  // ---- forks and variables

  /**
   * Turns this sequence into `count` sequences; the promise resolves to 0 in the first, 1 in the second, and so on.
   *
   * Each sequence has a copy of the script's whole state. Throws if the engine cannot fork, or not into so many
   * sequences: see `capability`.
   */
  export function fork(count: number): PromiseLike<number>;

  /**
   * Awaits `check()` until it returns something other than null, undefined or false; the promise resolves to that.
   *
   * Removes what `check` has written before each further attempt. Give it a temperature, or it may write the same
   * again.
   *
   *     const line = await retry(async () => {
   *       const line = await gen({ maxTokens: 20, temperature: 0.8 });
   *       return line.split(" ").length === 7 && line;
   *     }, 5);
   *
   * Throws an Error after the last attempt, whose text it has removed, or if the engine cannot backtrack; and a
   * RangeError if `attempts` is below 1.
   */
  export function retry<T>(
    check: () => PromiseLike<T | false | null | undefined>,
    attempts: number,
  ): Promise<T>;

  /**
   * Writes the most likely of several texts; the promise resolves to it.
   *
   * Compares the probabilities of whole texts, each in a fork: the products of those of its tokens, so a longer text
   * of the same beginning is never more likely. `gen({ choice })` decides token by token, in this sequence alone.
   *
   *     const mood = await choose([" good", " bad", " neither"]);
   *
   * Throws an Error if the engine cannot fork into so many sequences, and a RangeError if there is no text.
   */
  export function choose(texts: Iterable<string>): Promise<string>;

  /**
   * Adds the logits after another text to those of this sequence, times `weight`, from now on.
   *
   * `func` runs in a fork, where it writes the other text. The fork then gets every token of this sequence, ends with
   * it, and costs as much as any sequence. The weights of all together are 1: this sequence has what the others leave.
   * Throws if `capability("follow")` is 0.
   *
   *     await mix(withoutTheDocument, -0.5);
   *
   * `model`: a second model of the engine (`aici serve --second NAME=MODEL`), which reads the other text. With null in
   * place of a function, it reads the text of this sequence. If the engine has no model of this name, this sequence
   * ends with an error.
   *
   *     await mix(null, -0.5, { model: "amateur" });
   */
  export function mix(func: Fork | null, weight: number, options?: { model?: string }): Promise<void>;
  type Fork = () => PromiseLike<unknown>;

  /**
   * Runs each function in its own fork, all at the same time; the promise resolves to their results.
   *
   * The results are converted as JSON would convert them. The texts of the forks are discarded: the sequence
   * continues from where `gather` was called.
   *
   * If the first function throws an error, `gather` throws that error. If another function does, `gather` throws
   * `Error`.
   *
   *     const [first, second] = await gather([poem, story]);
   */
  export function gather<T>(functions: (() => PromiseLike<T> | T)[]): Promise<T[]>;
  /** Awaits actions and calls, all in this sequence; the promise resolves to their results. */
  export function gather<T extends readonly unknown[]>(
    actions: readonly [...T],
  ): Promise<{ -readonly [Index in keyof T]: Awaited<T[Index]> }>;

  /**
   * Waits until these variables exist; the promise resolves to an array of their values, or for one name to its value.
   *
   * Waiting costs the engine nothing if it can suspend sequences: see `capability`.
   */
  export function wait(name: string): PromiseLike<string>;
  export function wait(...names: string[]): PromiseLike<string[]>;

  /** Waits for so long. */
  export function sleep(seconds: number): PromiseLike<void>;

  /** A call has failed; docs/guide/script_calls.md lists the codes. */
  export class CallError extends Error {
    constructor(code: string, message: string);
    code: string;
  }

  /** A call under way, which `call` has made. Await it for the answer, also several times. */
  export class Call implements PromiseLike<any> {
    constructor(name: string, args: unknown);
    then<T1 = any, T2 = never>(
      resolve?: ((value: any) => T1 | PromiseLike<T1>) | null,
      reject?: ((error: any) => T2 | PromiseLike<T2>) | null,
    ): PromiseLike<T1 | T2>;
    readonly name: string;
    /** Whether the answer is there. */
    readonly done: boolean;
    /** Waits for the answer, at most so many seconds; then it fails with a CallError, and the call goes on. */
    wait(timeout?: number): Promise<any>;
  }

  /**
   * Waits for the next message to this run, which its name or `await call("aici.run")` identifies.
   *
   *     while ((question = await receive()) !== null) { ... }
   *
   * After a timeout of `receive().wait(2)`, `receive()` goes on waiting for the same message.
   */
  export function receive(): Call;

  /**
   * Sends a message, a JSON value, to the run of the same user that has this name. Awaiting it throws a CallError
   * if there is no such run, or if too much waits.
   *
   *     await send("planner", { done: true });
   */
  export function send(run: string, value: unknown): Call;

  /**
   * Asks whoever answers calls of this request. The call begins at once; await it for its answer.
   *
   *     const weather = await call("weather", { city: "Oslo" });
   *
   * Arguments and answer are JSON values. Awaiting it throws CallError if it has failed. Throws an error if nobody
   * answers calls: see `capability`.
   */
  export function call(name: string, args?: unknown): Call;

  /**
   * Asks for the JSON schema of a call's arguments, which `gen` and `generate` take as `schema`.
   *
   *     const args = JSON.parse(await gen({ schema: toolArguments("calc.add") }));
   *     const total = await call("calc.add", args);
   *
   * Awaiting it returns the schema. If nobody answers this call, or it has no schema, awaiting it or the `gen`
   * throws CallError with the code `unknown_call` or `no_schema`.
   */
  export function toolArguments(name: string): Call;

  /** Ends this sequence; other forks continue. Returning from `main` does the same. */
  export function stop(): never;

  /** Ends this sequence with an error, which the caller receives. */
  export function fail(message: unknown): never;

  /** Sends pending `force` and `backtrack` calls to the engine, and waits for its next step. Rarely needed. */
  export function nextStep(): PromiseLike<void>;

  /**
   * Returns the value of a variable, a text; `otherwise` if the variable does not exist.
   *
   * All forks of a request share its variables. The caller receives them with the result.
   */
  export function getVar(name: string): string | undefined;
  export function getVar<T>(name: string, otherwise: T): string | T;

  /**
   * Sets a variable to the value, converted to a text; returns its new version.
   *
   * With `ifVersion`, sets the variable only if this is its current version (0: it does not exist yet). Otherwise
   * returns 0 and changes nothing. So exactly one of several forks can claim a job.
   */
  export function setVar(name: string, value: unknown, options?: { ifVersion?: number }): number;

  /** Appends to a variable, or creates it; returns its new version. */
  export function appendVar(name: string, value: unknown): number;

  /** Returns how often a variable has been written; 0 if it does not exist. */
  export function varVersion(name: string): number;

  /**
   * A variable with a JSON value. Its model, if there is one, is as in `json`.
   *
   *     const votes = new Variable("votes", { yes: Integer, no: Integer });
   *     votes.update(({ yes, no }) => ({ yes: yes + 1, no }), { yes: 0, no: 0 });
   *
   * The caller receives JSON. Methods throw a TypeError for a value that does not fit the model.
   */
  export class Variable<Model = any> {
    constructor(name: string, model?: Model);
    readonly name: string;
    /** How often the variable has been written; 0 if it does not exist. */
    get version(): number;
    /** Returns the value; `otherwise` if the variable does not exist. */
    get(): Made<Model> | undefined;
    get<T>(otherwise: T): Made<Model> | T;
    /** Sets the value; returns the new version. `ifVersion` is as in `setVar`. */
    set(value: Made<Model>, options?: { ifVersion?: number }): number;
    /** Sets the value to `change(value)`, and returns it. Another fork may write it between; then repeats. */
    update(change: (value: Made<Model>) => Made<Model>, otherwise?: Made<Model>): Made<Model>;
  }

  // ---- the sequence

  /** Returns the prompt as text. */
  export const prompt: () => string;
  export const promptTokens: () => number[];
  /** Returns everything after the prompt as text, including forced text. */
  export const text: () => string;
  /** Returns everything after the prompt as tokens, including forced text. */
  export const tokens: () => number[];

  /** The names that `capability` accepts. */
  export type Capability =
    | "fork"
    | "backtrack"
    | "ff_tokens"
    | "suspend"
    | "logprobs"
    | "top_logprobs"
    | "dense"
    | "tokenizer"
    | "max_forks"
    | "hold_end"
    | "calls"
    | "look"
    | "follow"
    | "drafts";
  /**
   * Returns what the engine supports: a maximum for "top_logprobs" and "max_forks", otherwise 1 or 0.
   *
   * Throws a RangeError if the name is unknown.
   */
  export const capability: (name: Capability) => number;

  // ---- tokens

  /**
   * A set of tokens, with one bit for each token.
   *
   * Use it to choose the tokens that may come next:
   *
   *     const vowels = new TokenSet(tokenize("aeiou"));
   *     const others = TokenSet.text().minus(vowels);
   */
  export class TokenSet {
    constructor(tokens?: number | Iterable<number>);
    /** Returns the set of all tokens, including special tokens. */
    static all(): TokenSet;
    /** Returns the set of all text tokens: no special tokens, and so no end tokens. */
    static text(): TokenSet;
    copy(): TokenSet;
    /** Adds a token, or several. */
    allow(tokens: number | Iterable<number>): void;
    /** Removes a token, or several. */
    forbid(tokens: number | Iterable<number>): void;
    has(token: number): boolean;
    get size(): number;
    [Symbol.iterator](): Iterator<number>;
    or(other: TokenSet): TokenSet;
    and(other: TokenSet): TokenSet;
    minus(other: TokenSet): TokenSet;
  }

  /** Returns the tokens of a text, from the model's tokenizer if `capability("tokenizer")` is 1. */
  export const tokenize: (text: string) => number[];
  /** Returns the text of tokens. A token may end within a character, which then appears as U+FFFD. */
  export const detokenize: (tokens: Iterable<number>) => string;
  /** Returns the bytes of a token; for a special token, its display name. */
  export const tokenBytes: (token: number) => Uint8Array;
  export const isSpecial: (token: number) => boolean;
  export const vocabSize: () => number;
  /** Returns the tokens with which the model ends its text. */
  export const eosTokens: () => number[];

  // ---- callbacks, for scripts without `main`

  /** The changes to this sequence since the last step; the argument of callbacks. */
  export interface Step {
    /** The number of this sequence. */
    sequence: number;
    /** The number of the step, starting at 1. */
    number: number;
    /** The tokens that were appended, after `backtrack` tokens were removed. */
    tokens: number[];
    backtrack: number;
    /** Whether the first of `tokens` was sampled; false if this script appended them. */
    sampled: boolean;
    /** Details of the sampled token, as in `Token`; null if they are unknown. */
    logprob: number | null;
    allowedMass: number | null;
    topLogprobs: Likely[];
    /**
     * Right after a fork, the numbers of all sequences that it made, in order, including this one; otherwise only
     * the number of this sequence.
     */
    forkGroup: number[];
    /** Whether this call follows a `Look`: nothing has been sampled since. */
    looked: boolean;
    /** After `Look()`, the distribution of the next token. */
    distribution: Distribution | null;
  }

  /** An answer, which a callback returns. */
  export interface Answer {
    readonly name: string;
  }

  /** Answer of `mid_process`: samples one token, from a set or from all tokens. */
  export const Sample: (allowed?: TokenSet, options?: Sampled) => Answer;
  /**
   * Answer of `mid_process`: shows the distribution of the next token, and calls `mid_process` again. `topLogprobs`:
   * only this number of most likely tokens, in `Step.topLogprobs`; 0: `Step.distribution`.
   */
  export const Look: (topLogprobs?: number) => Answer;
  /** Answer of `mid_process`: removes tokens at the end, then appends tokens or a text. */
  export const Splice: (tokens?: string | number[], options?: { backtrack?: number }) => Answer;
  /** Answer of any callback except `init_prompt`: ends the sequence. */
  export const Stop: () => Answer;
  /** Answer of `pre_process`: turns this sequence into `count` sequences. */
  export const Fork: (count: number) => Answer;
  /** Answer of `pre_process`: sits out this step. */
  export const Suspend: () => Answer;
}
