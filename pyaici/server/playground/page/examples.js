// Examples on the right side of the page before the first run: one click fills in the inputs and runs them.

import { byId, make } from "./dom.js";
import { PYTHON } from "./scripts.js";

const PERSON = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 30 },
    born: { type: "integer", minimum: 1000, maximum: 2030 },
    known_for: { type: "array", items: { enum: ["mathematics", "poetry", "physics"] }, minItems: 1, maxItems: 2 },
  },
  required: ["name", "born", "known_for"],
  additionalProperties: false,
};

/** Each needs a controller, and has the inputs of a run. */
const EXAMPLES = [
  {
    title: "JSON of a schema", needs: "json_schema",
    what: "The model chooses the values; the controller forces everything that the schema leaves no choice about.",
    inputs: {
      controller: "json_schema", controller_arg: JSON.stringify(PERSON, null, 2),
      prompt: "Ada Lovelace as JSON: ", temperature: 0, max_tokens: 100,
    },
  },
  {
    title: "A script in Python", needs: "pyctrl",
    what: "A program writes fixed texts, and lets the model fill in the rest by patterns and options.",
    inputs: { script: { language: "python", source: PYTHON, arg: null }, prompt: "Ada Lovelace", temperature: 0, max_tokens: 100 },
  },
  {
    title: "Forks and backtracking", needs: "showcase",
    what: "A controller forks the text, removes tokens again, and lets its forks vote.",
    inputs: { controller: "showcase", controller_arg: "", prompt: "Hello", temperature: 0, max_tokens: 100 },
  },
  {
    title: "Beam search", needs: "beam",
    what: "A controller keeps the three most likely continuations, and drops the other forks.",
    inputs: { controller: "beam", controller_arg: "3 9", prompt: "Once upon a time", temperature: 0, max_tokens: 40 },
  },
];

export class Examples {
  /** Called with the inputs of the example that the user selects. */
  onpick = () => {};

  constructor() {
    this._box = byId("examples");
  }

  /** Shows the examples for these controllers. */
  show(controllers) {
    const there = EXAMPLES.filter(({ needs }) => controllers.has(needs));
    byId("examples-list").replaceChildren(
      ...there.map(({ title, what, inputs }) => {
        const button = make("button", { type: "button", className: "example" }, make("b", {}, title), make("span", {}, what));
        button.addEventListener("click", () => this.onpick(inputs));
        return button;
      }),
    );
    if (there.length === 0) this.hide();
  }

  hide() {
    this._box.hidden = true;
  }
}
