// One completion by `POST /cpc_stream`: the text before the cursor in two parts, and what the model adds to it.

/** Text without white space can be long, and each character of a prefix is work: characters that are enough. */
const LONGEST_PREFIX = 64;

/** The server takes tokens of `context` as they are, and finds those that begin with `prefix`. */
export function splitAtCursor(before) {
  const word = before.slice(before.search(/\S*$/));
  const at = before.length - [...word].slice(-LONGEST_PREFIX).join("").length;
  return { context: before.slice(0, at), prefix: before.slice(at) };
}

export class Completion {
  constructor(api, parts, parameters) {
    this._body = { ...parts, ...parameters };
    this._api = api;
    this._abort = new AbortController();
    this._text = "";
    /** what is known of it by now: the sampler, milliseconds, evaluations, tokens */
    this.facts = { sampler: parameters.sampler };
    /** why there is no more text than there is */
    this.problem = "";
  }

  abort() {
    this._abort.abort();
  }

  /** What follows the prefix; empty while that is not complete, or if it is something else. */
  get addition() {
    const { prefix } = this._body;
    return this._text.startsWith(prefix) ? this._text.slice(prefix.length) : "";
  }

  /** Yields after each event. Throws ApiError, or an AbortError. */
  async *follow() {
    for await (const { name, data } of this._api.events("/cpc_stream", this._body, this._abort.signal)) {
      if (name === "ttfb") this.facts.firstByte = data.ms;
      else if (name === "chunk") this._text += data.text;
      else if (name === "done") this._end(data);
      yield this;
    }
  }

  _end({ certificate, calls_prefix, tokens_emitted, ms_total, error = "" }) {
    this.problem = error;
    Object.assign(this.facts, {
      sampler: certificate?.sampler ?? this.facts.sampler,
      evaluations: certificate?.model_evals ?? calls_prefix,
      tokens: tokens_emitted,
      total: ms_total,
    });
  }
}
