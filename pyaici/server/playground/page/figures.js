// What the page shows of a run beside its texts: its figures, the times of its steps, its calls and its variables.

import { describe, make, svg } from "./dom.js";

/** Shortest time in seconds for which a speed is shown: tokens that arrive at once say nothing about it. */
const SHORTEST = 0.02;

/** The figures of a run: time to the first token, speed, tokens by origin, forks, and sizes of masks. */
export class Figures {
  constructor(list) {
    this._list = list;
    this._start = 0;
    this._first = 0;
    /** tokens of the first step that had any; they belong to the time before it */
    this._firstMade = 0;
  }

  begin() {
    this._start = performance.now();
    this._first = 0;
    describe(this._list, []);
  }

  update(transcript) {
    const { usage } = transcript;
    if (!usage) return;
    const made = usage.sampled_tokens + usage.forced_tokens;
    if (made > 0 && this._first === 0) {
      this._first = performance.now();
      this._firstMade = made;
    }
    const rows = [
      ["first token", this._first ? duration(this._first - this._start) : "–", "from the click to the first token"],
      ["speed", this._speed(transcript, made), "tokens per second of all forks, after the first step"],
      ["sampled", count(usage.sampled_tokens)],
      ["forced", count(usage.forced_tokens), "appended by the controller"],
      ["backtracked", count(usage.backtracked_tokens)],
      ["prompt", count(usage.prompt_tokens), "tokens of the prompt"],
      ["forks", count(transcript.lanes.size)],
      ["masks", masks(transcript), "number of allowed tokens: fewest, median, most", "wide"],
    ];
    describe(this._list, rows);
  }

  /** Returns the speed: by the clock of this page during the run, by the server's clock at its end. */
  _speed({ timing }, made) {
    const served = timing?.seconds != null && timing.first_token_s != null;
    const seconds = served ? timing.seconds - timing.first_token_s : (performance.now() - this._first) / 1000;
    const later = made - this._firstMade;
    return this._first && later > 0 && seconds >= SHORTEST ? `${quantity(later / seconds)} /s` : "–";
  }
}

function masks({ lanes }) {
  const sizes = [...lanes.values()].flatMap((lane) => lane.sampled.map((piece) => piece.allowed));
  const known = sizes.filter((size) => size !== null).sort((one, other) => one - other);
  if (known.length === 0) return "–";
  const [least, median, most] = [known[0], known[known.length >> 1], known[known.length - 1]].map(count);
  return least === most ? least : `${least} · ${median} · ${most}`;
}

function duration(value) {
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(2)} s`;
}

/** Formats a number in a few characters: 8.5, 123, 30K. */
function quantity(value) {
  if (value < 100) return value.toFixed(1);
  return value.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
}

function count(value) {
  return value.toLocaleString("en");
}

// -- the times of steps ----------------------------------------------------------------------------------------------

/** Most steps that the plot shows: the last ones. */
const MAX_STEPS = 160;
const [WIDTH, HEIGHT] = [3, 40];
/** The plot's height in medians: a step that read a long prompt would make all other bars invisible. */
const HIGHEST = 6;

/** A small plot of the time of each step, and of the part of it that controllers added. */
export class Timeline {
  constructor(figure, caption) {
    this._figure = figure;
    this._caption = caption;
    this.clear();
  }

  clear() {
    this._figure.hidden = true;
    this._figure.querySelector("svg")?.remove();
  }

  /** Shows the times of steps {step, control} in seconds; `control` is null if the engine does not measure it. */
  show(times) {
    if (times.length === 0) return;
    const shown = times.slice(-MAX_STEPS);
    const middle = median(times.map(({ step }) => step));
    const most = Math.max(Math.min(Math.max(...shown.map(({ step }) => step)), HIGHEST * middle), 1e-6);
    const bars = shown.flatMap(({ step, control }, at) => [
      bar(at, step / most, "bar-step"),
      ...(control === null ? [] : [bar(at, control / most, "bar-control")]),
    ]);
    const words = wordsOf(times, middle);
    const plot = svg(
      "svg", { viewBox: `0 0 ${WIDTH * MAX_STEPS} ${HEIGHT}`, role: "img", "aria-label": words, preserveAspectRatio: "none" },
      ...bars,
    );
    this._figure.querySelector("svg")?.remove();
    this._figure.prepend(plot);
    this._caption.textContent = words;
    this._figure.hidden = false;
  }
}

function bar(at, share, name) {
  const height = Math.max(0.5, Math.min(1, share) * HEIGHT);
  return svg("rect", { class: name, x: at * WIDTH, y: HEIGHT - height, width: WIDTH - 0.5, height });
}

function wordsOf(times, middle) {
  const longest = times.reduce((most, { step }) => Math.max(most, step), 0);
  const known = times.map(({ control }) => control).filter((control) => control !== null);
  const masks = known.length === 0 ? "" : `, of which controllers and masks took ${milliseconds(median(known))}`;
  const bars = times.length > MAX_STEPS ? `the last ${MAX_STEPS} of ${times.length} steps` : `${times.length} steps`;
  return `Time of ${bars}: median ${milliseconds(middle)}${masks}; longest ${milliseconds(longest)}`;
}

function median(values) {
  return [...values].sort((one, other) => one - other)[values.length >> 1];
}

function milliseconds(seconds) {
  const value = 1000 * seconds;
  return `${value < 10 ? value.toFixed(2) : Math.round(value).toLocaleString("en")} ms`;
}

// -- calls -----------------------------------------------------------------------------------------------------------

/** A box with a title and a list of entries; hidden while there are none. */
class Facts {
  constructor(box, title) {
    this._box = box;
    this._title = title;
    this.clear();
  }

  clear() {
    this._shown = new Map();
    this._list = make("dl", { className: "facts" });
    this._box.replaceChildren(make("h2", {}, this._title), this._list);
    this._box.hidden = true;
  }
}

/** The calls of a run, oldest first: what was called, how long it took, and what came of it. */
export class Calls extends Facts {
  constructor(box) {
    super(box, "Calls");
  }

  /** Shows these calls by their ids; the arguments of a call stay as the user left them. */
  show(calls) {
    const longest = Math.max(...[...calls.values()].map(({ seconds }) => seconds ?? 0), 1e-6);
    for (const [id, call] of calls) {
      if (!this._shown.has(id)) {
        const [outcome, bar] = [make("p"), make("div", { className: "bar" })];
        const place = make("dd", {}, outcome, bar, valueView(call.arguments ?? ""));
        this._list.append(make("div", {}, make("dt", {}, call.name ?? "–"), place));
        this._shown.set(id, { outcome, bar });
      }
      const { outcome, bar } = this._shown.get(id);
      outcome.textContent = outcomeOf(call);
      bar.style.setProperty("--share", (call.seconds ?? 0) / longest);
    }
    this._box.hidden = this._shown.size === 0;
  }
}

function outcomeOf({ answer, ended, error, seconds, bytes }) {
  if (!ended) return answer ? "waits for the client" : "under way";
  return `${error ?? "answered"} after ${milliseconds(seconds)}, ${counted(bytes, "byte")}`;
}

// -- variables -------------------------------------------------------------------------------------------------------

/** Characters and lines of the longest text that is shown in full at once. */
const LONGEST = 200;
const MAX_LINES = 6;

/** The variables that the forks share. Binary and long values are folded. */
export class Variables extends Facts {
  constructor(box) {
    super(box, "Variables");
  }

  /** Shows these values; a value that has not changed stays as the user left it. */
  show(variables) {
    for (const [name, value] of Object.entries(variables)) {
      const key = JSON.stringify(value);
      const known = this._shown.get(name);
      if (known?.key === key) continue;
      const place = known?.place ?? make("dd");
      const open = place.firstElementChild?.open ?? false;
      place.replaceChildren(valueView(value, open));
      if (!known) this._list.append(make("div", {}, make("dt", {}, name), place));
      this._shown.set(name, { key, place });
    }
    this._box.hidden = this._shown.size === 0;
  }
}

function valueView(value, open) {
  if (typeof value !== "string") return folded(`binary, ${counted(bytesOf(value.base64), "byte")}`, value.base64, open);
  const lines = value.split("\n").length;
  if (value.length <= LONGEST && lines <= MAX_LINES) return document.createTextNode(value);
  const more = lines > 1 ? `, ${counted(lines, "line")}` : "";
  return folded(`${[...value.slice(0, 60)].slice(0, -1).join("")}… (${counted(value.length, "character")}${more})`, value, open);
}

function folded(title, text, open) {
  return make("details", { open }, make("summary", {}, title.replaceAll("\n", "⏎")), make("pre", {}, text));
}

function bytesOf(base64) {
  return Math.floor((base64.replace(/=+$/, "").length * 3) / 4);
}

function counted(number, what) {
  return `${count(number)} ${what}${number === 1 ? "" : "s"}`;
}
