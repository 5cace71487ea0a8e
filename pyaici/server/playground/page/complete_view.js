// The tab "Complete": an editor that shows the model's continuation in grey while the user types.

import { byId, describe, fieldValues, showText } from "./dom.js";
import { Editor } from "./editor.js";

/** Length of a pause in typing after which the page requests a completion. */
const PAUSE_MS = 60;
const EXAMPLE = `def is_prime(number: int) -> bool:
    """Whether a number has no divisor but 1 and itself."""
    if number < 2:
        return False
    for divisor in ra`;

export class CompleteView {
  constructor(api) {
    this._api = api;
    this._editor = new Editor(byId("code"), {
      id: "code-field", labelledBy: "code-title", describedBy: "complete-state", rows: 18,
    });
    this._editor.value = EXAMPLE;
    this._editor.oninput = () => this._schedule();
    this._editor.field.addEventListener("keydown", (event) => this._key(event));
    this._editor.field.addEventListener("blur", () => this._dismiss());
    document.addEventListener("selectionchange", () => this._moved());
    // without this the tap would take the focus from the editor, which dismisses the grey text
    byId("accept").addEventListener("pointerdown", (event) => event.preventDefault());
    byId("accept").addEventListener("mousedown", (event) => event.preventDefault());
    byId("accept").addEventListener("click", () => this._accept());
    byId("completion-parameters").addEventListener("change", () => this._dismiss());
    this._timer = 0;
    this._current = null;
    /** position of the cursor at the time of the request */
    this._at = -1;
    /** Escape was the last key, so Tab leaves the editor */
    this._leaving = false;
    this._figures({});
  }

  shown() {
    const { field } = this._editor;
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
    this._schedule();
  }

  hidden() {
    this._dismiss();
  }

  _key(event) {
    if (event.key === "Tab" && !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey) {
      if (this._leaving) return;
      event.preventDefault();
      if (this._editor.ghosted) this._accept();
      else this._editor.insert("    ");
    } else if (event.key === "Escape") {
      event.preventDefault();
      this._dismiss();
      this._leaving = true;
      return;
    }
    if (event.key !== "Shift") this._leaving = false;
  }

  _accept() {
    const text = this._editor.ghosted;
    this._dismiss();
    this._editor.insert(text);
  }

  _dismiss() {
    clearTimeout(this._timer);
    this._current?.abort();
    this._current = null;
    this._at = -1;
    this._ghost("");
  }

  /** Shows the grey text, and the button that accepts it. */
  _ghost(text) {
    this._editor.ghost(text);
    byId("accept").hidden = text === "";
  }

  /** Dismisses the completion if the cursor has moved. */
  _moved() {
    if (this._at >= 0 && document.activeElement === this._editor.field && this._editor.cursor !== this._at) {
      this._dismiss();
    }
  }

  _schedule() {
    this._dismiss();
    this._timer = setTimeout(() => this._ask(), PAUSE_MS);
  }

  async _ask() {
    const at = this._editor.cursor;
    const restOfLine = this._editor.value.slice(at).split("\n", 1)[0];
    const before = this._editor.value.slice(0, at);
    if (at < 0 || restOfLine.trim() !== "" || before.trim() === "") return;
    const completion = new Completion(this._api, splitAtCursor(before), fieldValues(byId("completion-parameters")));
    this._current = completion;
    this._at = at;
    showText(byId("complete-error"), "");
    try {
      for await (const { addition, facts } of completion.follow()) {
        if (completion !== this._current) return;
        this._ghost(addition);
        this._figures(facts);
      }
      this._state(completion.addition ? "Tab accepts the grey text." : "The model has nothing to add here.");
      showText(byId("complete-error"), completion.problem);
    } catch (error) {
      if (error.name === "AbortError" || completion !== this._current) return;
      this._ghost("");
      showText(byId("complete-error"), error.message);
    }
  }

  _state(text) {
    byId("complete-state").textContent = text;
  }

  _figures({ sampler = "–", firstByte, evaluations = "–", tokens = "–", total }) {
    describe(byId("completion-figures"), [
      ["sampler", sampler],
      ["first byte", firstByte === undefined ? "–" : `${Math.round(firstByte)} ms`],
      ["evaluations", evaluations, "model evaluations for the prefix"],
      ["tokens", tokens],
      ["total", total === undefined ? "–" : `${Math.round(total)} ms`],
    ]);
  }
}

// -- one completion --------------------------------------------------------------------------------------------------

/** Most characters of a prefix. Text without white space can be long, and each character takes work. */
const LONGEST_PREFIX = 64;

/** Splits at the last white space: the server keeps the tokens of `context`, and completes `prefix`. */
export function splitAtCursor(before) {
  const word = before.slice(before.search(/\S*$/));
  const at = before.length - [...word].slice(-LONGEST_PREFIX).join("").length;
  return { context: before.slice(0, at), prefix: before.slice(at) };
}

/** A completion by `POST /cpc_stream`: reads what the model adds to the text before the cursor. */
class Completion {
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
