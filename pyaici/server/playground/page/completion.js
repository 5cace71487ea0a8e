// One completion by `POST /cpc_stream`: splits the text before the cursor, and reads what the model adds.

/** Most characters of a prefix. Text without white space can be long, and each character takes work. */
const LONGEST_PREFIX = 64;

/** Splits at the last white space: the server keeps the tokens of `context`, and completes `prefix`. */
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
    /** what is known so far: the sampler, milliseconds, evaluations, tokens */
    this.facts = { sampler: parameters.sampler };
    /** the error that ended the completion; empty if there is none */
    this.problem = "";
  }

  abort() {
    this._abort.abort();
  }

  /** The text after the prefix; empty while the prefix is incomplete, or if the text does not begin with it. */
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
