// A code editor: a textarea with line numbers, a marked error, and grey text at the cursor.

import { make } from "./dom.js";

/** The textarea has the caret and the selection. An element of the same size behind it, the paper, shows the text. */
export class Editor {
  /** Called when the user or `insert` has changed the text. */
  oninput = () => {};

  constructor(container, { id, labelledBy, rows, describedBy }) {
    this._gutter = make("pre", { className: "gutter", "aria-hidden": "true" });
    this._paper = make("pre", { className: "paper", "aria-hidden": "true" });
    this.field = make("textarea", {
      id, rows, spellcheck: false, wrap: "off", "aria-labelledby": labelledBy, "aria-describedby": describedBy,
      "autocomplete": "off", "autocapitalize": "off",
    });
    const page = make("div", { className: "page" }, this._paper, this.field);
    container.classList.add("editor");
    container.append(make("div", { className: "gutter-box" }, this._gutter), page);
    this._mark = null;
    this._ghost = "";
    this.field.addEventListener("input", () => {
      this._mark = null;
      this._ghost = "";
      this._draw();
      this.oninput();
    });
    this.field.addEventListener("scroll", () => this._scroll());
    this._draw();
  }

  get value() {
    return this.field.value;
  }

  set value(text) {
    this.field.value = text;
    this._mark = null;
    this._ghost = "";
    this._draw();
  }

  /** The position of the caret; -1 while a text is selected. */
  get cursor() {
    return this.field.selectionStart === this.field.selectionEnd ? this.field.selectionStart : -1;
  }

  /** Marks [from, to) as an error, until the text changes. */
  mark(from, to) {
    this._mark = { from, to };
    this._draw();
    const line = this.value.slice(0, from).split("\n").length - 1;
    const height = this.field.scrollHeight / Math.max(1, this.value.split("\n").length);
    const shown = this.field.clientHeight;
    if (line * height < this.field.scrollTop || (line + 1) * height > this.field.scrollTop + shown) {
      this.field.scrollTop = Math.max(0, line * height - shown / 2);
    }
  }

  clearMark() {
    this._mark = null;
    this._draw();
  }

  /** Shows a grey text at the cursor, which is not part of the value; an empty text removes it. */
  ghost(text) {
    if (text === this._ghost) return;
    this._ghost = text;
    this._draw();
  }

  get ghosted() {
    return this._ghost;
  }

  /** Inserts a text at the cursor, as if typed: the browser can undo it. */
  insert(text) {
    this.field.focus();
    document.execCommand("insertText", false, text);
  }

  _draw() {
    const text = this.field.value;
    const wrong = this._mark;
    if (wrong) {
      const marked = text.slice(wrong.from, wrong.to);
      const at = marked === "" || marked === "\n" ? ` ${marked}` : marked;
      this._paper.replaceChildren(text.slice(0, wrong.from), make("mark", {}, at), text.slice(wrong.to));
    } else if (this._ghost && this.cursor >= 0) {
      const ghost = make("span", { className: "ghost" }, this._ghost);
      this._paper.replaceChildren(text.slice(0, this.cursor), ghost, text.slice(this.cursor));
    } else {
      this._paper.replaceChildren(text);
    }
    this._number(text, wrong ? text.slice(0, wrong.from).split("\n").length : 0);
    this.field.setAttribute("aria-invalid", wrong !== null);
    this._scroll();
  }

  _number(text, wrongLine) {
    const count = text.split("\n").length;
    const lines = Array.from({ length: count }, (_, at) => {
      const number = String(at + 1);
      return at + 1 === wrongLine ? make("span", { className: "wrong" }, number) : number;
    });
    this._gutter.replaceChildren(...lines.flatMap((line) => [line, "\n"]));
  }

  _scroll() {
    const { scrollLeft, scrollTop } = this.field;
    this._paper.style.transform = `translate(${-scrollLeft}px, ${-scrollTop}px)`;
    this._gutter.style.transform = `translateY(${-scrollTop}px)`;
  }
}
