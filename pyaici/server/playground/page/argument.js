// The editor of the controller's argument or script: it keeps the text of each controller, and marks errors.

import { byId, showText } from "./dom.js";
import { Editor } from "./editor.js";

export class Argument {
  constructor() {
    this.editor = new Editor(byId("argument"), {
      id: "argument-field", labelledBy: "argument-title", describedBy: "argument-note argument-error", rows: 5,
    });
    this.editor.oninput = () => showText(byId("argument-error"), "");
    this._controller = null;
    this._written = new Map();
    /** by controller: the argument of the script */
    this._args = new Map();
    /** Escape was the last key, so Tab leaves the editor */
    this._leaving = false;
    this.editor.field.addEventListener("keydown", (event) => this._key(event));
    byId("script-arg").addEventListener("input", () => this.accept());
    byId("argument-example").addEventListener("click", () => this._useExample());
  }

  /** Shows the text that was last written for a controller, or its example. */
  show(controller) {
    if (this._controller?.value === controller.value) return;
    if (this._controller) this._keep();
    this._controller = controller;
    this._showKind();
    byId("argument-example").hidden = controller.example === null;
    showText(byId("argument-note"), noteOf(controller));
    this.editor.field.placeholder = controller.takesArgument === null ? "optional" : "";
    this._set(this._written.get(controller.value) ?? readable(controller.example));
  }

  /** The fields of a request: a controller with its argument, or a script. Throws an error with a `param`. */
  get wire() {
    const { value, language } = this._controller;
    if (language) return { script: { language, source: this.editor.value, arg: readArg(byId("script-arg").value) } };
    return value === "none" ? { controller: value } : { controller: value, controller_arg: this.editor.value };
  }

  /** Fills in the argument or script of a request for the controller that is shown. */
  fill({ controller_arg, script }) {
    const text = script ? script.source : controller_arg;
    this._set(typeof text === "string" ? text : JSON.stringify(text ?? "", null, 2));
    byId("script-arg").value = script?.arg == null ? "" : JSON.stringify(script.arg);
    this.accept();
  }

  /** Shows the error with which the server refused the request field `param`. */
  refuse(message, param) {
    showText(byId("argument-error"), message);
    if (param === "script.arg") byId("script-arg").setAttribute("aria-invalid", true);
    else this._mark(message);
    byId("argument-error").parentElement.scrollIntoView({ block: "nearest" });
  }

  /** Marks the place where a script failed, if the editor still has that script. */
  failed(message, { script }) {
    const { language } = this._controller;
    if (language && script?.language === language && script.source === this.editor.value) this._mark(message);
  }

  accept() {
    showText(byId("argument-error"), "");
    byId("script-arg").removeAttribute("aria-invalid");
    this.editor.clearMark();
  }

  _mark(message) {
    const place = findPlace(message, this.editor.value);
    if (place) this.editor.mark(place.from, place.to);
  }

  _keep() {
    this._written.set(this._controller.value, this.editor.value);
    this._args.set(this._controller.value, byId("script-arg").value);
  }

  _showKind() {
    const { value, language } = this._controller;
    byId("argument-title").textContent = language ? "Script" : "Argument";
    byId("script-arg-row").hidden = !language;
    byId("script-arg").value = this._args.get(value) ?? "";
    byId("script-arg").removeAttribute("aria-invalid");
    this.editor.field.rows = language ? 14 : 5;
  }

  /** In a script, Tab indents, except after Escape. */
  _key(event) {
    const plain = !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
    if (event.key === "Tab" && plain && this._controller?.language && !this._leaving) {
      event.preventDefault();
      this.editor.insert(this._controller.indent);
    }
    if (event.key !== "Shift") this._leaving = event.key === "Escape";
  }

  _useExample() {
    this._set(readable(this._controller.example));
    this.editor.field.focus();
  }

  _set(text) {
    this.editor.value = text;
    showText(byId("argument-error"), "");
  }
}

function noteOf({ value, name, takesArgument, language }) {
  if (language) return "Tab indents; after Esc, Tab leaves the editor.";
  if (takesArgument !== false) return "";
  return value === "none" ? "Without a controller there is no argument." : `${name} takes no argument.`;
}

/** Returns a JSON object on several lines; other texts unchanged. */
function readable(example) {
  if (!example?.startsWith("{")) return example ?? "";
  try {
    return JSON.stringify(JSON.parse(example), null, 2);
  } catch {
    return example;
  }
}

/** Parses the argument of a script; an empty text is null. */
function readArg(text) {
  if (text.trim() === "") return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(new Error(`the argument is not JSON: ${error.message}`), { param: "script.arg" });
  }
}

// -- the place of an error, from its message: a traceback, line and column, byte, or path in JSON --------------------

/** Returns the range [from, to) that a message refers to, as offsets into `text`; null if it names no place. */
export function findPlace(message, text) {
  const line = lineOfPython(message);
  if (line !== null) return wholeLine(text, line);
  const from = findOffset(message, text);
  if (from === null) return null;
  const word = /^(?:[\p{L}\p{N}_]+|"[^"\n]*")/u.exec(text.slice(from));
  const length = word ? word[0].length : 1;
  return { from, to: Math.min(text.length, from + length) };
}

/** Returns the innermost line of a Python traceback, which is the last one; null if the message has none. */
function lineOfPython(message) {
  const frames = [...message.matchAll(/File "script(?:\.py)?", line (\d+)/g)];
  return frames.length ? Number(frames.at(-1)[1]) : null;
}

/** Returns the range of a line, without blanks around it. */
function wholeLine(text, line) {
  const content = text.split("\n")[line - 1] ?? "";
  const from = offsetOf(text, line, 1) + content.length - content.trimStart().length;
  return { from, to: from + content.trim().length };
}

function findOffset(message, text) {
  // in JavaScript, the innermost place comes first
  const frame = /\bscript(?:\.js)?:(\d+):(\d+)/.exec(message);
  if (frame) return offsetOf(text, Number(frame[1]), Number(frame[2]));
  const place = /\bline (\d+)(?:, column (\d+))?/.exec(message);
  if (place) return offsetOf(text, Number(place[1]), Number(place[2] ?? 1));
  const column = /\bcolumn (\d+)/.exec(message);
  if (column) return offsetOf(text, 1, Number(column[1]));
  const byte = /\bat byte (\d+)/.exec(message);
  if (byte) return offsetOfByte(text, Number(byte[1]));
  const path = /^#(\/\S*?):(?:\s|$)/m.exec(message);
  return path ? findInJson(text, path[1]) : null;
}

/** Lines and columns count from 1. Columns count characters, some of which are two units of a JavaScript string. */
function offsetOf(text, line, column) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  const inLine = [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
  return Math.min(text.length, before + inLine);
}

function offsetOfByte(text, byte) {
  const bytes = new TextEncoder().encode(text);
  return new TextDecoder().decode(bytes.slice(0, byte)).length;
}

const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+)/y;

/** Returns the offset of the value at `pointer`, or of its nearest ancestor; null if the text is not JSON. */
function findInJson(text, pointer) {
  const steps = pointer.split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  const reader = new Reader(text);
  try {
    return find(reader, steps);
  } catch {
    return null;
  }
}

class Reader {
  constructor(text) {
    this._text = text;
    this._end = 0;
    this.next();
  }

  /** Moves to the next token and returns the current one. */
  next() {
    const token = this.token;
    TOKEN.lastIndex = this._end;
    const found = TOKEN.exec(this._text);
    this.token = found ? found[1] : "";
    this.start = found ? TOKEN.lastIndex - this.token.length : this._text.length;
    this._end = found ? TOKEN.lastIndex : this._text.length;
    return token;
  }
}

/** Returns the offset of the value that the steps lead to, from the value at the reader's position. */
function find(reader, steps) {
  const start = reader.start;
  if (steps.length === 0) return start;
  const isObject = reader.token === "{";
  if (!isObject && reader.token !== "[") return start;
  reader.next();
  for (let index = 0; reader.token && reader.token !== "}" && reader.token !== "]"; index++) {
    let key = String(index);
    if (isObject) {
      key = JSON.parse(reader.next());
      reader.next(); // the colon
    }
    if (key === steps[0]) return find(reader, steps.slice(1));
    skip(reader);
    if (reader.token === ",") reader.next();
  }
  return start;
}

function skip(reader) {
  let depth = 0;
  do {
    const token = reader.next();
    if (!token) throw new SyntaxError("the text ends in a value");
    if (token === "{" || token === "[") depth++;
    if (token === "}" || token === "]") depth--;
  } while (depth > 0);
}
