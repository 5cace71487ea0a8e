// Shows one fork: its parent, its tokens, how it ended, and its controller's output.

import { make } from "./dom.js";
import { Fold } from "./fold.js";
import { showTaken, tokenView } from "./token_view.js";

/** Words for the reasons of a fork's end; the last two are the page's own: no end of the fork arrived. */
export const ENDINGS = {
  eos: "ended", length: "token limit", stop: "stopped by its controller", error: "failed",
  cancelled: "cancelled", work: "too much backtracking", cut: "cut",
  stopped: "stopped", interrupted: "interrupted",
};

export class LaneView {
  /** Called with the piece that the user points at. */
  onpick = () => {};

  constructor(lane, vocabulary) {
    this.lane = lane;
    this._vocabulary = vocabulary;
    this._views = [];
    this._picked = -1;
    const name = make("h3", {}, `Fork ${lane.index}`);
    this._count = make("span", { className: "hint" });
    this._ending = make("span", { className: "chip" });
    this._text = make("div", { className: "tokens", role: "listbox", "aria-label": `Tokens of fork ${lane.index}` });
    this._error = make("p", { className: "error", hidden: true });
    this._log = make("pre");
    this._summary = make("summary");
    this._logBox = make(
      "details", { className: "log", hidden: true, "aria-label": `Log of fork ${lane.index}` }, this._summary, this._log,
    );
    this.children = make("ul", { className: "children" });
    const from = lane.parent === null ? [] : [make("span", { className: "hint from" }, `from fork ${lane.parent}`)];
    const head = make("div", { className: "row" }, name, ...from, this._count, this._ending);
    const box = make("div", { className: "lane card" }, head, this._text, this._error, this._logBox);
    this.element = make("li", {}, box, this.children);
    this.fold = new Fold(box, name);
    this._text.addEventListener("pointerover", (event) => this._point(event.target));
    this._text.addEventListener("click", (event) => this._point(event.target, true));
    this._text.addEventListener("keydown", (event) => this._move(event));
    this._text.addEventListener("focusin", (event) => this._point(event.target));
  }

  update() {
    const { lane } = this;
    if (lane.reshaped) {
      lane.reshaped = false;
      this._views = [];
      this._text.replaceChildren();
      this._picked = -1;
    }
    if (lane.revised) this._views.forEach((view, at) => showTaken(view, lane.pieces[at]));
    lane.revised = false;
    for (const piece of lane.pieces.slice(this._views.length)) {
      const view = tokenView(piece, this._vocabulary);
      this._views.push(view);
      this._text.append(view);
    }
    if (this._picked < 0) {
      const first = this._views.find((view) => view.hasAttribute("role"));
      if (first) first.tabIndex = 0;
    }
    this._count.textContent = `${lane.made} ${lane.made === 1 ? "token" : "tokens"}`;
    this._ending.textContent = lane.finish ? ENDINGS[lane.finish] : lane.suspended ? "waits" : "writes";
    this._ending.dataset.state = lane.finish || (lane.suspended ? "waits" : "writes");
    this._error.hidden = lane.error === null;
    this._error.textContent = lane.error?.message ?? "";
    this._showLog(lane.log);
  }

  /** Unfolds the lane, scrolls to it, and gives it the focus. */
  reveal() {
    this.fold.open();
    this.element.firstElementChild.scrollIntoView({ block: "nearest" });
    this.element.querySelector("button.fold")?.focus({ preventScroll: true });
  }

  _showLog(log) {
    this._logBox.hidden = log === "";
    if (log === this._log.textContent) return;
    this._log.textContent = log;
    const lines = log.trimEnd().split("\n").length;
    this._summary.textContent = `Log, ${lines} ${lines === 1 ? "line" : "lines"}`;
  }

  _point(target, focus = false) {
    const at = this._views.indexOf(target);
    if (at < 0 || !target.hasAttribute("role")) return;
    this._pick(at);
    if (focus) target.focus();
  }

  _pick(at) {
    for (const view of this._text.querySelectorAll("[aria-selected=true]")) view.setAttribute("aria-selected", "false");
    for (const view of this._text.querySelectorAll("[tabindex='0']")) view.tabIndex = -1;
    this._picked = at;
    this._views[at].setAttribute("aria-selected", "true");
    this._views[at].tabIndex = 0;
    this.onpick(this.lane.pieces[at]);
  }

  _move(event) {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    for (let at = this._picked + step; at >= 0 && at < this._views.length; at += step) {
      if (this._views[at].hasAttribute("role")) {
        this._views[at].focus();
        return;
      }
    }
  }
}
