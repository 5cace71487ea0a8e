// The forks of a run: a tree of lanes with their tokens, a map of many forks, and the details of one token.

import { describe, make, svg } from "./dom.js";

/** With more forks than this, there is a map, and only the longest-lived ones are shown in full, the others on one
 *  line each. */
const SHOWN_IN_FULL = 4;

/** The forks as a tree: children are below their parent. */
export class ForkTree {
  constructor(container, detailsPanel) {
    this._container = container;
    this._details = new TokenDetails(detailsPanel);
    this._map = new ForkMap();
    this._map.onpick = (fork) => this._views.get(fork)?.reveal();
    this.clear();
  }

  clear() {
    this._views = new Map();
    this._root = make("ul", { className: "tree", "aria-label": "Forks" });
    this._container.replaceChildren();
    this._details.clear();
  }

  /** Shows the changes of these lanes. `steps`: number of steps of the run so far. */
  update(lanes, { vocabulary, steps }) {
    if (lanes.length > 0 && !this._root.isConnected) this._container.append(this._root);
    for (const lane of lanes) {
      let view = this._views.get(lane.index);
      if (!view) {
        view = new LaneView(lane, vocabulary);
        view.onpick = (piece) => this._details.show(piece, vocabulary);
        this._views.set(lane.index, view);
        (this._views.get(lane.parent)?.children ?? this._root).append(view.element);
      }
      view.update();
    }
    if (this._views.size > SHOWN_IN_FULL) this._fold(steps);
  }

  /** Folds all forks but those that lived longest; folds all if these are too many. */
  _fold(steps) {
    this._root.classList.add("many");
    const lanes = [...this._views.values()].map((view) => view.lane);
    if (!this._map.element.isConnected) this._container.prepend(this._map.element);
    this._map.show(lanes, steps);
    const last = Math.max(...lanes.map((lane) => lane.lived));
    const few = lanes.filter((lane) => lane.lived === last).length <= SHOWN_IN_FULL;
    for (const view of this._views.values()) view.fold.suggest(!few || view.lane.lived < last);
  }
}

// -- a fork ----------------------------------------------------------------------------------------------------------

/** Words for the reasons of a fork's end; the last two are the page's own: no end of the fork arrived. */
const ENDINGS = {
  eos: "ended", length: "token limit", stop: "stopped by its controller", error: "failed",
  cancelled: "cancelled", work: "too much backtracking", cut: "cut",
  stopped: "stopped", interrupted: "interrupted",
};

/** Shows one fork: its parent, its tokens, how it ended, and its controller's output. */
class LaneView {
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

/** A card that can be folded to one line: by suggestion, until the user decides. */
class Fold {
  constructor(card, heading) {
    this._card = card;
    this._heading = heading;
    this._button = null;
    this._suggested = false;
    /** the user's last choice; null if there is none */
    this._chosen = null;
    card.addEventListener("click", () => this._folded && this._choose(false));
  }

  /** Suggests whether the card is folded, and gives the user a button for it. */
  suggest(folded) {
    if (this._button && folded === this._suggested) return;
    this._suggested = folded;
    if (!this._button) this._addButton();
    this._show();
  }

  open() {
    if (this._folded) this._choose(false);
  }

  get _folded() {
    return this._button !== null && (this._chosen ?? this._suggested);
  }

  _addButton() {
    this._button = make("button", { type: "button", className: "fold" }, this._heading.textContent);
    this._button.addEventListener("click", (event) => {
      event.stopPropagation(); // otherwise the card would open again
      this._choose(!this._folded);
    });
    this._heading.replaceChildren(this._button);
  }

  _choose(folded) {
    this._chosen = folded;
    this._show();
  }

  _show() {
    this._card.classList.toggle("folded", this._folded);
    this._button.setAttribute("aria-expanded", !this._folded);
  }
}

// -- a token ---------------------------------------------------------------------------------------------------------

/** Returns a text with visible line ends and tabs. */
function visible(text) {
  return text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥\t");
}

/** Returns a piece's text. For a token without text (special, or part of a character), returns the server's name. */
function nameOf(piece) {
  if (piece.text !== "" || piece.tokens.length === 0) return piece.text;
  return piece.top?.find(({ token }) => token === piece.tokens[0])?.text ?? "·";
}

function probabilityOf(piece) {
  return piece.logprob === null ? null : Math.exp(piece.logprob);
}

function percent(probability) {
  if (probability === null) return "unknown";
  if (probability >= 0.0005) return `${(100 * probability).toFixed(1)} %`;
  return `${(100 * probability).toExponential(1)} %`;
}

/** Number of characters of the text before a fork that folded lanes show. */
const LAST_LETTERS = 16;

/** Creates a span for a piece; its background is stronger if the piece was unlikely, or its mask narrow. */
function tokenView(piece, vocabulary) {
  const view = make("span", { className: `token ${piece.kind}` });
  if (piece.kind === "shared") view.append(...earlyAndLast(visible(piece.text)));
  else view.textContent = visible(nameOf(piece));
  view.classList.toggle("empty", piece.text === "");
  if (piece.kind === "sampled" || piece.kind === "forced") {
    view.setAttribute("role", "option");
    view.setAttribute("aria-selected", "false");
    view.tabIndex = -1;
  }
  if (piece.kind === "sampled") {
    view.title = summary(piece, vocabulary);
    view.style.setProperty("--surprise", surprise(piece).toFixed(3));
    view.style.setProperty("--narrow", narrowness(piece.allowed, vocabulary).toFixed(3));
  }
  showTaken(view, piece);
  return view;
}

/** Splits a long text in two: a part that a folded lane leaves out, and the end. */
function earlyAndLast(text) {
  const letters = [...text];
  if (letters.length <= LAST_LETTERS) return [text];
  const early = make("span", { className: "early" }, letters.slice(0, -LAST_LETTERS).join(""));
  return [early, letters.slice(-LAST_LETTERS).join("")];
}

function showTaken(view, piece) {
  view.classList.toggle("taken", piece.taken);
}

function summary(piece, vocabulary) {
  const allowed = piece.allowed === null ? "" : `, ${allowedWords(piece.allowed, vocabulary)}`;
  return `probability ${percent(probabilityOf(piece))}${allowed}`;
}

function allowedWords(allowed, vocabulary) {
  return `${allowed.toLocaleString("en")} of ${vocabulary.toLocaleString("en")} tokens allowed`;
}

/** Returns 0 for a certain token, and 1 for a probability of a thousandth or less. */
function surprise(piece) {
  return piece.logprob === null ? 0 : Math.min(1, -piece.logprob / Math.log(1000));
}

/** Returns 0 for a mask that allows all tokens, and 1 for a single token, on a logarithmic scale. */
function narrowness(allowed, vocabulary) {
  if (allowed === null || vocabulary < 2) return 0;
  return 1 - Math.log(Math.max(1, allowed)) / Math.log(vocabulary);
}

const ORIGINS = {
  sampled: "sampled among the tokens that the mask allowed",
  forced: "appended by the controller",
};

/** Shows the details of one token: origin, probability, mask, and the most likely alternatives. */
class TokenDetails {
  constructor(panel) {
    this._panel = panel;
    this.clear();
  }

  clear() {
    this._panel.classList.remove("shows-token");
    this._panel.replaceChildren(
      make("h2", {}, "Token"),
      make("p", { className: "hint" }, "Point at a token, or use the arrow keys."),
    );
  }

  show(piece, vocabulary) {
    const facts = make("dl", { className: "facts" });
    const rows = [["origin", ORIGINS[piece.kind]], ["id", piece.tokens.join(", ")]];
    if (piece.kind === "sampled") rows.push(["probability", percent(probabilityOf(piece))]);
    if (piece.allowed != null) rows.push(["mask", allowedWords(piece.allowed, vocabulary)]);
    if (piece.taken) rows.push(["later", "backtracked by the controller"]);
    describe(facts, rows);
    const title = make("h2", {}, "Token ", make("code", {}, quoted(nameOf(piece))));
    const parts = make("div", { className: "parts" }, make("div", {}, title, facts), ...alternatives(piece));
    this._panel.replaceChildren(parts);
    this._panel.classList.add("shows-token");
  }
}

function quoted(text) {
  return `“${visible(text)}”`;
}

function alternatives(piece) {
  if (!piece.top) return [];
  const rows = piece.top.map(({ token, text, logprob }) => {
    const probability = logprob === null ? 0 : Math.exp(logprob);
    const bar = make("span", { className: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", probability.toFixed(4));
    const row = make("li", {}, make("code", {}, quoted(text)), bar, make("span", {}, percent(probability)));
    row.classList.toggle("picked", token === piece.tokens[0]);
    return row;
  });
  const note = make("p", { className: "hint" }, "Most likely tokens without the mask:");
  return [make("div", {}, note, make("ol", { className: "alternatives" }, ...rows))];
}

// -- the map of many forks -------------------------------------------------------------------------------------------

const [WIDTH, ROW, LEFT] = [1000, 14, 34];
/** Most forks that the map shows: a run can have hundreds. */
const MAX_FORKS = 200;

/** A line for each fork, from the step in which it began to that of its end, below its parent's line. */
class ForkMap {
  /** Called with the number of the fork that the user selects. */
  onpick = () => {};

  constructor() {
    this.element = svg("svg", { class: "fork-map", role: "group", "aria-label": "Map of the forks" });
    const pick = (event) => {
      const group = event.target.closest("[data-fork]");
      if (group && (event.type === "click" || event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        this.onpick(Number(group.dataset.fork));
      }
    };
    this.element.addEventListener("click", pick);
    this.element.addEventListener("keydown", pick);
  }

  /** Shows these forks, of a run that has had so many steps. */
  show(lanes, steps) {
    const rows = inOrder(lanes).slice(0, MAX_FORKS);
    const place = new Map(rows.map((lane, at) => [lane.index, ROW * at + ROW / 2]));
    const x = (step) => LEFT + ((WIDTH - LEFT - 8) * Math.min(step, steps)) / Math.max(1, steps);
    this.element.setAttribute("viewBox", `0 0 ${WIDTH} ${ROW * rows.length}`);
    this.element.replaceChildren(
      ...rows.map((lane) => {
        const [y, from, to] = [place.get(lane.index), x(lane.born), Math.max(x(lane.lived), x(lane.born) + 4)];
        const above = place.get(lane.parent);
        const ending = lane.finish ? ENDINGS[lane.finish] : "writes";
        const parent = lane.parent === null ? "" : `, from fork ${lane.parent}`;
        const words = `Fork ${lane.index}${parent}, ${lane.made} tokens: ${ending}`;
        return svg(
          "g", { role: "button", tabindex: 0, "data-fork": lane.index, "data-state": lane.finish || "writes", "aria-label": words },
          svg("title", {}, words),
          svg("rect", { class: "row-ground", x: 0, y: y - ROW / 2, width: WIDTH, height: ROW }),
          svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, String(lane.index)),
          ...(above === undefined ? [] : [svg("path", { d: `M${from} ${above}V${y}` })]),
          svg("path", { class: "life", d: `M${from} ${y}H${to}` }),
          svg("circle", { cx: to, cy: y, r: 3.5 }),
        );
      }),
    );
  }
}

/** Returns forks in the order of the tree: each one before its children, and these by their numbers. */
function inOrder(lanes) {
  const children = Map.groupBy(lanes, (lane) => lane.parent);
  const found = [];
  const left = [...(children.get(null) ?? [])].reverse();
  while (left.length > 0) {
    const lane = left.pop();
    found.push(lane);
    left.push(...[...(children.get(lane.index) ?? [])].reverse());
  }
  return found;
}
