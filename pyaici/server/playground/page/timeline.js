// A small plot of the time of each step of a run, and of the part of it that controllers added.

import { svg } from "./dom.js";

/** Most steps that the plot shows: the last ones. */
const MAX_STEPS = 160;
const [WIDTH, HEIGHT] = [3, 40];
/** The plot's height in medians: a step that read a long prompt would make all other bars invisible. */
const HIGHEST = 6;

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
