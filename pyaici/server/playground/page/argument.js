// The controller's argument: an editor that keeps what was written for each controller, and shows what is wrong.

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
    byId("argument-example").addEventListener("click", () => this._useExample());
  }

  /** Another controller is chosen: what was written for it before, or its example. */
  show(controller) {
    if (this._controller?.value === controller.value) return;
    if (this._controller) this._written.set(this._controller.value, this.editor.value);
    this._controller = controller;
    byId("argument-example").hidden = controller.example === null;
    say(byId("argument-note"), controller.takesArgument === false ? noArgument(controller) : "");
    this.editor.field.placeholder = controller.takesArgument === null ? "optional" : "";
    this._set(this._written.get(controller.value) ?? readable(controller.example));
  }

  get value() {
    return this.editor.value;
  }

  /** What the server says against it. */
  refuse(message) {
    say(byId("argument-error"), message);
    const place = findPlace(message, this.editor.value);
    if (place) this.editor.mark(place.from, place.to);
    byId("argument-error").parentElement.scrollIntoView({ block: "nearest" });
  }

  accept() {
    say(byId("argument-error"), "");
    this.editor.clearMark();
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

function noArgument({ value, name }) {
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
