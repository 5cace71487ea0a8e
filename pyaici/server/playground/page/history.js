// The history of this browser's runs: their inputs, how they ended, and how their texts begin.

import { make } from "./dom.js";

const KEY = "aici-runs";
/** Most runs that are kept, and most characters of all of them together. Browsers allow some five million. */
const MAX_RUNS = 30;
const MAX_CHARACTERS = 500_000;

export class History {
  /** Called with the inputs of the run that the user selects. */
  onpick = () => {};

  constructor(box) {
    this._title = make("h2");
    this._list = make("ol");
    const clear = make("button", { type: "button", className: "quiet" }, "Clear");
    const hint = make("p", { className: "hint" }, "Kept in this browser only. Select a run to use its inputs again.");
    this._box = box;
    box.append(make("summary", {}, this._title), make("div", { className: "row" }, hint, clear), this._list);
    clear.addEventListener("click", () => this._keep([]));
    // another tab of this browser has run something
    addEventListener("storage", (event) => event.key === KEY && this._show());
    this._show();
  }

  /** Adds a run: its inputs, the status line, whether it failed, and the text of its first fork. */
  add(inputs, status, state, text) {
    const run = { when: Date.now(), inputs, status, state, text: [...text.slice(0, 200)].slice(0, 80).join("") };
    this._keep([run, ...this._runs()]);
  }

  _runs() {
    try {
      const runs = JSON.parse(localStorage.getItem(KEY) ?? "[]");
      return Array.isArray(runs) ? runs.filter((run) => run?.inputs) : [];
    } catch {
      return []; // another program has written there, or the browser allows no storage
    }
  }

  _keep(runs) {
    let kept = runs.slice(0, MAX_RUNS);
    while (kept.length > 0 && JSON.stringify(kept).length > MAX_CHARACTERS) kept = kept.slice(0, -1);
    try {
      if (kept.length > 0) localStorage.setItem(KEY, JSON.stringify(kept));
      else localStorage.removeItem(KEY);
    } catch {
      // the browser allows no storage, or none is left: the page works without a history
    }
    this._show();
  }

  _show() {
    const runs = this._runs();
    this._box.hidden = runs.length === 0;
    this._title.textContent = `Earlier runs (${runs.length})`;
    this._list.replaceChildren(
      ...runs.map((run) => {
        const when = make("time", { className: "hint", dateTime: new Date(run.when).toISOString() }, timeOf(run.when));
        const name = make("code", {}, run.inputs.script?.language ?? String(run.inputs.controller));
        const status = make("span", { className: "status" }, String(run.status));
        status.dataset.state = run.state;
        const text = make("span", { className: "excerpt" }, String(run.text));
        const button = make("button", { type: "button" }, when, name, status, text);
        button.addEventListener("click", () => this.onpick(run.inputs));
        return make("li", {}, button);
      }),
    );
  }
}

function timeOf(when) {
  const today = new Date(when).toDateString() === new Date().toDateString();
  return new Date(when).toLocaleString("en-GB", { timeStyle: "short", ...(today ? {} : { dateStyle: "medium" }) });
}
