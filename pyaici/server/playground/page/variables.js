// The variables that the forks share. Binary and long values are folded.

import { make } from "./dom.js";

/** Characters and lines of the longest text that is shown in full at once. */
const LONGEST = 200;
const MAX_LINES = 6;

export class Variables {
  constructor(box) {
    this._box = box;
    this.clear();
  }

  clear() {
    this._shown = new Map();
    this._list = make("dl", { className: "facts" });
    this._box.replaceChildren(make("h2", {}, "Variables"), this._list);
    this._box.hidden = true;
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
  if (typeof value !== "string") return folded(`binary, ${count(bytesOf(value.base64), "byte")}`, value.base64, open);
  const lines = value.split("\n").length;
  if (value.length <= LONGEST && lines <= MAX_LINES) return document.createTextNode(value);
  const more = lines > 1 ? `, ${count(lines, "line")}` : "";
  return folded(`${[...value.slice(0, 60)].slice(0, -1).join("")}… (${count(value.length, "character")}${more})`, value, open);
}

function folded(title, text, open) {
  return make("details", { open }, make("summary", {}, title.replaceAll("\n", "⏎")), make("pre", {}, text));
}

function bytesOf(base64) {
  return Math.floor((base64.replace(/=+$/, "").length * 3) / 4);
}

function count(number, what) {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}
