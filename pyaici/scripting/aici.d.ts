/**
 * The module that scripts of the controller `jsctrl` import, for editors and TypeScript.
 *
 * A script exports `async function main()`, which awaits what the functions below begin, or a function
 * `mid_process(step)` and other callbacks. Its top level runs once, before there is a prompt. docs/guide is
 * the manual.
 */
declare module "aici" {
  /** How a text ended: nothing can follow in its pattern; by the model; at a stop string; at a limit. */
  export type Finish = "complete" | "end" | "stop" | "max_tokens" | "max_bytes";

  /** The script's own argument: what was given beside it, a text or any value of JSON; null if nothing was. */
  export const argument: any;

  /** Writes to the log, as `console.log` does. */
  export function print(...values: unknown[]): void;

  // ---- texts: fixed ones and generated ones

  /**
   * Appends a text, or tokens. The model reads it and spends no time on writing it; there is nothing to await.
   *
   * With `after`, all that came after that label is taken back first.
   *
   * End a fixed text before a blank, not after it: most tokens of models begin with their blank, so let the
   * generated text begin with it.
   *
   *     fixed("The answer is");
   *     const number = await gen({ regex: / [0-9]+/ });
   */
  export function fixed(text: string | number[], options?: { after?: Label }): void;

  /** What a generated text has to be like, named where it is generated: at most one of these. */
  export interface Ways {
    regex?: string | RegExp;
    options?: Iterable<string>;
    schema?: object | string | boolean;
    substring?: string;
    kbnf?: string;
    lark?: string;
    gbnf?: string;
    yacc?: string;
  }

  export interface Generation {
    /** The text ends before one of these, even within a token. */
    stop?: string | Iterable<string>;
    /** It ends after it. */
    includeStop?: boolean;
    maxTokens?: number;
    maxBytes?: number;
    /** 0 takes the most likely token; by default the request's own. */
    temperature?: number;
    /** Also sets the variable of that name. */
    store?: string;
    /**
     * Where the pattern may end, the text also ends if the model would rather write something that the pattern
     * does not allow. With false, only the model's end token ends it early. Default: true.
     */
    leave?: boolean;
  }

  export interface Details {
    /** Have the engine find the probability of each token. Default: true. */
    logprobs?: boolean;
    /** List so many likeliest tokens at each place, too. */
    top?: number;
  }

  /**
   * Lets the model write; the promise is of the text.
   *
   *     const name = await gen({ regex: /[A-Z][a-z]+/, maxTokens: 8 });
   *
   * It ends where the pattern is complete, where the model ends it, at a stop string or at a limit. Without a limit
   * and without an end it goes on until the request's own limit. One action at a time: await it before the next.
   */
  export function gen(options?: Ways & Generation): PromiseLike<string>;
  export function gen(pattern: Pattern, options?: Generation): PromiseLike<string>;

  /** `gen` with all that is known of the text. */
  export function generate(options?: Ways & Generation & Details): PromiseLike<Generated>;
  export function generate(pattern: Pattern, options?: Generation & Details): PromiseLike<Generated>;

  /**
   * One token out of a set, or any; it may be an end token, which ends nothing here. Its probability is known if
   * `top` is 1 or more.
   */
  export function sample(
    allowed?: TokenSet,
    options?: { temperature?: number; top?: number },
  ): PromiseLike<Token>;

  /** A token and how likely it was. */
  export interface Likely {
    token: number;
    logprob: number;
  }

  /** One token that was sampled. */
  export interface Token {
    token: number;
    /**
     * Natural logarithm of its probability before any pattern, at the sampling's temperature (1 if it is 0);
     * null: nobody asked, or nothing else was possible.
     */
    logprob: number | null;
    /** The probability of all tokens together that were allowed, likewise. */
    allowedMass: number | null;
    /** The likeliest tokens, if `top` asked for them. */
    top: Likely[];
  }

  /** A generated text, with what is known of it. */
  export class Generated {
    constructor(found: { text: string; finish: Finish; details: Token[] });
    text: string;
    finish: Finish;
    /** One for each token. */
    details: Token[];
    get tokens(): number[];
    /** The sum over its tokens: how likely the model finds the text, as a natural logarithm. */
    get logprob(): number;
    toString(): string;
  }

  // ---- labels: going back

  /** A place in the sequence. `label()` makes it. */
  export class Label {
    /** How many tokens are before it, the prompt's included. Throws if it has been taken back itself. */
    get position(): number;
    /** What came after it. */
    get tokens(): number[];
    /** What came after it. */
    get text(): string;
  }

  /**
   * Marks the present end of the text.
   *
   *     const here = label();
   *     await gen({ maxTokens: 5 });
   *     console.log(here.text); // what came since
   *     rewind(here); // as if it had never been
   */
  export function label(): Label;

  /** Takes back all that came after the label; the model forgets it. There is nothing to await. */
  export function rewind(label: Label): void;

  // ---- patterns

  /**
   * What a generated text has to be like: made by `regex`, `options`, `schema` and so on.
   *
   * Make it at the top level if you can: it is then compiled before any request, and once for all of them.
   */
  export class Pattern {
    constructor(kind: number, source: string);
    /** A constraint of your own that follows a text token by token. */
    follow(): Constraint;
  }

  /** Follows a text by hand. `gen` does this for you; use it with `sample`, or to combine patterns. */
  export class Constraint {
    constructor(pattern: Pattern);
    /** The text goes on so. Throws where the pattern does not allow it. */
    append(tokens: string | number[]): void;
    /** Can nothing follow? */
    get ended(): boolean;
    /** Is the text a whole one? */
    get mayEnd(): boolean;
    /** The tokens that may come next. */
    allowed(): TokenSet;
    /** The tokens that have to come next, if they are certain; else empty. */
    forced(): number[];
    /** Gives its memory back. */
    close(): void;
  }

  /**
   * A regular expression, for the whole text. docs/regex.md has the syntax, also of one that is written as `/.../`,
   * of which the flags i, m and s count.
   */
  export function regex(pattern: string | RegExp): Pattern;

  /** One of some texts. */
  export function options(texts: Iterable<string>): Pattern;

  /**
   * JSON of a schema, an object or its JSON. `whitespace`: as the model likes, none, or one blank after each comma
   * and colon. docs/json_schema.md says what is enforced.
   */
  export function schema(
    schema: object | string | boolean,
    options?: { whitespace?: "flexible" | "compact" | "spaced" },
  ): Pattern;

  /** A quotation: any part of a text; with `end`, that follows it, for the model to say that it is over. */
  export function substring(text: string, end?: string): Pattern;

  /** A grammar in KBNF: docs/grammars.md. */
  export function kbnf(grammar: string): Pattern;

  /** A grammar in the syntax of Lark: docs/grammars.md. */
  export function lark(grammar: string): Pattern;

  /** A grammar in GBNF, as llama.cpp has it: docs/grammars.md. */
  export function gbnf(grammar: string): Pattern;

  /** A grammar in the syntax of yacc: docs/grammars.md. */
  export function yacc(grammar: string): Pattern;

  // ---- forks, and what they tell each other

  /**
   * Makes `count` sequences of this one; the promise is 0 in the first, 1 in the second, and so on.
   *
   * All of the script's state is copied. Throws if the engine cannot: see `capability`.
   */
  export function fork(count: number): PromiseLike<number>;

  /**
   * Runs each function in a fork of its own, all at the same time; the promise is of what they returned.
   *
   * What they return goes through JSON. Their texts are gone afterwards: the text goes on from where `gather` was
   * called. Throws if one of them fails.
   *
   *     const [first, second] = await gather([poem, story]);
   */
  export function gather<T>(functions: (() => PromiseLike<T> | T)[]): Promise<T[]>;

  /** Waits until these variables exist, which costs the engine nothing; the promise is of their values, or of the one. */
  export function wait(name: string): PromiseLike<string>;
  export function wait(...names: string[]): PromiseLike<string[]>;

  /** Ends this sequence; of forks, this one alone. To return from `main` does the same. */
  export function stop(): never;

  /** Ends this sequence with an error, which its caller gets. */
  export function fail(message: unknown): never;

  /** Brings what was fixed into the sequence now, and waits for the engine's next step: seldom needed. */
  export function nextStep(): PromiseLike<void>;

  /**
   * The value of a variable; `otherwise` if there is none.
   *
   * Variables belong to a request: all its forks have the same, and the caller gets them with the result.
   */
  export function getVar(name: string): string | undefined;
  export function getVar<T>(name: string, otherwise: T): string | T;

  /**
   * Sets a variable, to what is made a text; returns its new version.
   *
   * With `ifVersion`, only if its version is still this (0: it is not there yet); otherwise it returns 0 and nothing
   * has changed. So exactly one of several forks takes something on itself.
   */
  export function setVar(name: string, value: unknown, options?: { ifVersion?: number }): number;

  /** Appends to a variable, or makes it; returns its new version. */
  export function appendVar(name: string, value: unknown): number;

  /** How often a variable has been written; 0: never. */
  export function varVersion(name: string): number;

  // ---- what there is so far

  /** The prompt, as text. */
  export const prompt: () => string;
  export const promptTokens: () => number[];
  /** All that came after the prompt, what was fixed included. */
  export const text: () => string;
  /** All that came after the prompt, as tokens. */
  export const tokens: () => number[];

  /** What `capability` knows about. */
  export type Capability =
    | "fork"
    | "backtrack"
    | "ff_tokens"
    | "suspend"
    | "logprobs"
    | "top_k"
    | "dense"
    | "tokenizer"
    | "max_forks"
    | "hold_end";
  /** What the engine can do: 0 is no. */
  export const capability: (name: Capability) => number;

  // ---- tokens

  /**
   * A set of tokens, one bit each: to say which may come.
   *
   *     const vowels = new TokenSet(tokenize("aeiou"));
   *     const others = TokenSet.text().minus(vowels);
   */
  export class TokenSet {
    constructor(tokens?: number | Iterable<number>);
    /** Every token, special ones too. */
    static all(): TokenSet;
    /** Every token that is text: no special ones, so none that ends the text. */
    static text(): TokenSet;
    copy(): TokenSet;
    /** Puts a token in, or several. */
    allow(tokens: number | Iterable<number>): void;
    /** Takes a token out, or several. */
    forbid(tokens: number | Iterable<number>): void;
    has(token: number): boolean;
    get size(): number;
    [Symbol.iterator](): Iterator<number>;
    or(other: TokenSet): TokenSet;
    and(other: TokenSet): TokenSet;
    minus(other: TokenSet): TokenSet;
  }

  /** The tokens that the model's tokenizer makes of a text. */
  export const tokenize: (text: string) => number[];
  /** The text of tokens; a token may end within a character, which is then shown as U+FFFD. */
  export const detokenize: (tokens: Iterable<number>) => string;
  /** The bytes of one token. */
  export const tokenBytes: (token: number) => Uint8Array;
  export const isSpecial: (token: number) => boolean;
  export const vocabSize: () => number;
  /** The tokens with which the model ends its text. */
  export const endTokens: () => number[];

  // ---- callbacks: scripts without `main`

  /** What has happened to this sequence since the last step: the argument of callbacks. */
  export interface Step {
    /** The number of this sequence. */
    sequence: number;
    /** The number of the step, from 1. */
    number: number;
    /** What was appended, after `backtrack` tokens were taken back. */
    tokens: number[];
    backtrack: number;
    /** Was it sampled (or given by this script)? */
    sampled: boolean;
    /** Of what was sampled, as in `Token`; null if they are not known. */
    logprob: number | null;
    allowedMass: number | null;
    top: Likely[];
    /** Right after a fork, the numbers of all that it made, in order; this one is among them. */
    forkGroup: number[];
  }

  /** What a callback returns. */
  export interface Answer {
    readonly name: string;
  }

  /** Answer of `mid_process`: sample one token, out of a set or any. */
  export const Sample: (allowed?: TokenSet, options?: { temperature?: number; top?: number }) => Answer;
  /** Answer of `mid_process`: take some tokens back, and append others (or a text). */
  export const Splice: (tokens?: string | number[], options?: { backtrack?: number }) => Answer;
  /** Answer of any callback but `init_prompt`: the sequence is over. */
  export const Stop: () => Answer;
  /** Answer of `pre_process`: go on as so many sequences. */
  export const Fork: (count: number) => Answer;
  /** Answer of `pre_process`: sit this step out. */
  export const Suspend: () => Answer;
}
