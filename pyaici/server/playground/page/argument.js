// The controller's argument, or a script: an editor that keeps what was written for each, and shows what is wrong.

import { byId, say } from "./dom.js";
import { Editor } from "./editor.js";
import { findPlace } from "./error_place.js";

export class Argument {
  constructor() {
    this.editor = new Editor(byId("argument"), {
      id: "argument-field", labelledBy: "argument-title", describedBy: "argument-note argument-error", rows: 5,
    });
    this.editor.oninput = () => say(byId("argument-error"), "");
    this._controller = null;
    this._written = new Map();
    /** of each script, what it shall see as its argument */
    this._args = new Map();
    /** Escape was the last key: Tab shall move on */
    this._leaving = false;
    this.editor.field.addEventListener("keydown", (event) => this._key(event));
    byId("script-arg").addEventListener("input", () => this.accept());
    byId("argument-example").addEventListener("click", () => this._useExample());
  }

  /** Another controller is chosen: what was written for it before, or its example. */
  show(controller) {
    if (this._controller?.value === controller.value) return;
    if (this._controller) this._keep();
    this._controller = controller;
    this._showKind();
    byId("argument-example").hidden = controller.example === null;
    say(byId("argument-note"), noteOf(controller));
    this.editor.field.placeholder = controller.takesArgument === null ? "optional" : "";
    this._set(this._written.get(controller.value) ?? readable(controller.example));
  }

  /** What a request says of it: a controller with its argument, or a script. Throws an error with a `param`. */
  get wire() {
    const { value, language } = this._controller;
    if (language) return { script: { language, source: this.editor.value, arg: readArg(byId("script-arg").value) } };
    return value === "none" ? { controller: value } : { controller: value, controller_arg: this.editor.value };
  }

  /** What the server says against it, and against which field of the request. */
  refuse(message, param) {
    say(byId("argument-error"), message);
    if (param === "script.arg") byId("script-arg").setAttribute("aria-invalid", true);
    else this._mark(message);
    byId("argument-error").parentElement.scrollIntoView({ block: "nearest" });
  }

  /** Marks where a script has failed, if it is still the one that has run. */
  failed(message, { script }) {
    const { language } = this._controller;
    if (language && script?.language === language && script.source === this.editor.value) this._mark(message);
  }

  accept() {
    say(byId("argument-error"), "");
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

  /** In a script Tab indents, but for one behind Escape. */
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
    say(byId("argument-error"), "");
  }
}

function noteOf({ value, name, takesArgument, language }) {
  if (language) return "Tab indents; after Esc, Tab moves on.";
  if (takesArgument !== false) return "";
  return value === "none" ? "Without a controller there is no argument." : `${name} takes no argument.`;
}

/** An object of JSON in lines; everything else as it is. */
function readable(example) {
  if (!example?.startsWith("{")) return example ?? "";
  try {
    return JSON.stringify(JSON.parse(example), null, 2);
  } catch {
    return example;
  }
}

/** Nothing is null, as in a request. */
function readArg(text) {
  if (text.trim() === "") return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(new Error(`the argument is not JSON: ${error.message}`), { param: "script.arg" });
  }
}
