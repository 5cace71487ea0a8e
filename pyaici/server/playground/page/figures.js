// The figures of a run: time to the first token, speed, tokens by origin, forks, and sizes of masks.

import { describe } from "./dom.js";

/** Shortest time in seconds for which a speed is shown: tokens that arrive at once say nothing about it. */
const SHORTEST = 0.02;

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
      ["first token", this._first ? milliseconds(this._first - this._start) : "–", "from the click to the first token"],
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

function milliseconds(value) {
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
