// The transcript of a run from the events of `POST /v1/run`: the pieces of each fork, including backtracked ones.

import { ApiError } from "./api.js";

/** One fork. A piece is {kind, text, tokens, taken} and, if sampled, {logprob, top, allowed}. Pieces that it begins
 *  with have no tokens. */
class Lane {
  constructor(index, parent, born) {
    this.index = index;
    this.parent = parent;
    /** the step of the run in which the fork began */
    this.born = born;
    this.pieces = [];
    this.log = "";
    this.suspended = false;
    this.finish = "";
    /** the step of the run in which the fork ended; Infinity before that */
    this.lived = Infinity;
    this.error = null;
    /** number of tokens that the fork itself has written, including backtracked ones */
    this.made = 0;
    /** tokens were backtracked since the lane was last shown */
    this.revised = false;
    /** a piece was divided as well, so a view of the pieces must be rebuilt */
    this.reshaped = false;
  }

  get sampled() {
    return this.pieces.filter((piece) => piece.kind === "sampled");
  }

  add(piece) {
    this.suspended = false;
    this.made += piece.tokens.length;
    this.pieces.push({ taken: false, ...piece });
  }

  /** Marks the last `count` tokens, whose text is `removed`, as backtracked. */
  backtrack(count, removed) {
    let letters = removed.length;
    this.revised = true;
    for (let at = this.pieces.length - 1; at >= 0 && (count > 0 || letters > 0); at--) {
      const piece = this.pieces[at];
      if (piece.taken) continue;
      // the number of tokens of the beginning is unknown, so its characters are counted
      const whole = piece.tokens.length > 0 ? piece.tokens.length <= count : piece.text.length <= letters;
      if (!whole) {
        this._divide(at, Math.max(0, piece.text.length - letters), Math.max(0, piece.tokens.length - count));
        return;
      }
      piece.taken = true;
      count -= piece.tokens.length;
      letters -= piece.text.length;
    }
  }

  /** Marks only the end of a piece as backtracked, after so many characters and tokens. */
  _divide(at, letters, tokens) {
    const piece = this.pieces[at];
    const kept = { ...piece, text: piece.text.slice(0, letters), tokens: piece.tokens.slice(0, tokens) };
    const gone = { ...piece, text: piece.text.slice(letters), tokens: piece.tokens.slice(tokens), taken: true };
    this.pieces.splice(at, 1, kept, gone);
    this.reshaped = true;
  }
}

export class Transcript {
  constructor() {
    this.lanes = new Map();
    this.variables = {};
    /** the calls of all forks by id: {name, arguments, answer} and, if ended, {ended, error, seconds, bytes} */
    this.calls = new Map();
    this.usage = null;
    this.timing = null;
    this.vocabulary = 0;
    this.steps = 0;
    /** the times of steps in seconds, as the server measured them: {step, control} */
    this.times = [];
  }

  /** Reads an event of the stream and returns the lanes that it changes. Throws ApiError if the run has failed. */
  take(event) {
    if (event.object === "error") throw new ApiError(0, event.error.message, event.error);
    if (event.object === "initial-run") {
      this.vocabulary = event.vocab_size;
      return [];
    }
    Object.assign(this.variables, event.variables);
    for (const call of event.calls ?? []) this.calls.set(call.id, { ...this.calls.get(call.id), ...call });
    this.usage = event.usage;
    this.steps += 1;
    if (event.object === "run" && event.timing) {
      this.times.push({ step: event.timing.step_s, control: event.timing.control_s });
    }
    if (event.object === "run.end") {
      this.timing = event.timing;
      return event.forks.map((fork) => this._end(fork));
    }
    return event.forks.map((fork) => this._follow(fork));
  }

  /** Ends all forks that have not ended, for this reason, and returns them: no more events will come. */
  interrupt(reason) {
    const open = [...this.lanes.values()].filter((lane) => !lane.finish);
    for (const lane of open) this._finish(lane, { finish_reason: reason });
    return open;
  }

  /** Whether a fork has failed. */
  get failed() {
    return [...this.lanes.values()].some((lane) => lane.error);
  }

  /** The text of the first fork after the prompt. */
  get text() {
    const pieces = this.lanes.get(0)?.pieces ?? [];
    return pieces.filter(({ kind, taken }) => kind !== "prompt" && !taken).map((piece) => piece.text).join("");
  }

  _follow(fork) {
    const lane = this._laneOf(fork);
    if (fork.prompt !== undefined) lane.add({ kind: "prompt", text: fork.prompt, tokens: [] });
    for (const piece of fork.pieces) {
      if (piece.backtrack !== undefined) lane.backtrack(piece.backtrack, piece.text);
      else if (piece.origin === "forced") lane.add({ kind: "forced", text: piece.text, tokens: piece.tokens });
      else for (const each of sampledPieces(piece)) lane.add(each);
    }
    lane.log += fork.log ?? "";
    lane.suspended ||= fork.suspended ?? false;
    if (fork.finish_reason) this._finish(lane, fork);
    return lane;
  }

  _laneOf({ index, parent, text, pieces }) {
    let lane = this.lanes.get(index);
    if (!lane) {
      lane = new Lane(index, parent ?? null, this.steps);
      this.lanes.set(index, lane);
      if (parent !== undefined) {
        const from = this.lanes.get(parent);
        for (const piece of from.pieces) if (piece.kind === "prompt" && !piece.taken) lane.add(piece);
        const shared = withoutPieces(text, pieces);
        if (shared) lane.add({ kind: "shared", text: shared, tokens: [] });
      }
    }
    return lane;
  }

  _end(fork) {
    const lane = this._laneOf(fork);
    this._finish(lane, fork);
    lane.log = fork.log;
    return lane;
  }

  _finish(lane, fork) {
    lane.finish = fork.finish_reason;
    lane.lived = Math.min(lane.lived, this.steps);
    lane.error = fork.error ?? null;
    lane.suspended = false;
  }
}

/** Returns the text that a new fork began with: its current text, with its own pieces undone. */
function withoutPieces(text, pieces) {
  return pieces.reduceRight(
    (left, piece) => (piece.backtrack === undefined ? left.slice(0, left.length - piece.text.length) : left + piece.text),
    text,
  );
}

/** Returns a piece for each token. If an engine samples several in a step, the text belongs to the last one. */
function sampledPieces({ text, tokens, logprobs, top_logprobs, allowed }) {
  return tokens.map((token, at) => ({
    kind: "sampled",
    text: at === tokens.length - 1 ? text : "",
    tokens: [token],
    logprob: logprobs?.[at] ?? null,
    top: top_logprobs?.[at] ?? null,
    allowed: allowed ?? null,
  }));
}
