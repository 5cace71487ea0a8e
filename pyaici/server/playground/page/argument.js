// The editor of the controller's argument or script: it keeps the text of each controller, and marks errors.

import { byId, showText } from "./dom.js";
import { Editor } from "./editor.js";
import { findPlace } from "./error_place.js";

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
