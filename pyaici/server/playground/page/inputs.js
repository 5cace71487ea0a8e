// The inputs of a run: the prompt, inputs from examples, links and earlier runs, and copies for other programs.

import { PYTHON } from "./controllers.js";
import { byId, make } from "./dom.js";

const ROLES = ["system", "user", "assistant"];

/** The prompt: a text that is used as it is, or the messages of a chat. */
export class Prompt {
  constructor() {
    this._text = byId("prompt");
    this._messages = byId("messages");
    byId("prompt-kind").addEventListener("change", () => this._switch());
    byId("message-add").addEventListener("click", () => this._add("user").focus());
    this._add("system").value = "You answer in one short sentence.";
    this._add("user").value = "Who was Ada Lovelace?";
  }

  /** The fields of the prompt for `POST /v1/run`. */
  get wire() {
    if (!this._isChat) return { prompt: this._text.value };
    const rows = [...this._messages.children];
    return {
      messages: rows.map((row) => ({
        role: row.querySelector("select").value,
        content: row.querySelector("textarea").value,
      })),
    };
  }

  /** Fills in the prompt of a request, or its messages. */
  fill({ prompt, messages }) {
    const kind = messages ? "chat" : "text";
    byId("prompt-kind").querySelector(`[value=${kind}]`).checked = true;
    this._switch();
    if (messages) this._messages.replaceChildren();
    for (const { role, content } of messages ?? []) {
      const field = this._add("user");
      field.value = String(content);
      if (ROLES.includes(role)) field.parentElement.querySelector("select").value = role;
    }
    if (!messages) this._text.value = String(prompt ?? "");
  }

  get _isChat() {
    return byId("prompt-kind").querySelector("input:checked").value === "chat";
  }

  _switch() {
    byId("prompt-text").hidden = this._isChat;
    byId("prompt-chat").hidden = !this._isChat;
  }

  /** Adds a message at the end and returns its field. */
  _add(role) {
    const select = make("select", { "aria-label": "Role" }, ...ROLES.map((name) => make("option", {}, name)));
    select.value = role;
    const field = make("textarea", { rows: 2, "aria-label": "Message", spellcheck: false });
    const remove = make("button", { type: "button", className: "quiet", "aria-label": "Remove message" }, "×");
    const row = make("div", { className: "message" }, select, remove, field);
    remove.addEventListener("click", () => row.remove());
    this._messages.append(row);
    return field;
  }
}

// -- examples, shown before the first run: one click fills in the inputs and runs them -------------------------------

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

// -- earlier runs of this browser: their inputs, how they ended, and how their texts begin ---------------------------

const KEY = "aici-runs";
/** Most runs that are kept, and most characters of all of them together. Browsers allow some five million. */
const MAX_RUNS = 30;
const MAX_CHARACTERS = 500_000;

export class History {
  /** Called with the inputs of the run that the user selects. */
  onpick = () => {};

  constructor(box) {
    this._title = make("h2");
    this._list = make("ol");
    const clear = make("button", { type: "button", className: "quiet" }, "Clear");
    const hint = make("p", { className: "hint" }, "Kept in this browser only. Select a run to use its inputs again.");
    this._box = box;
    box.append(make("summary", {}, this._title), make("div", { className: "row" }, hint, clear), this._list);
    clear.addEventListener("click", () => this._keep([]));
    // another tab of this browser has run something
    addEventListener("storage", (event) => event.key === KEY && this._show());
    this._show();
  }

  /** Adds a run: its inputs, the status line, whether it failed, and the text of its first fork. */
  add(inputs, status, state, text) {
    const run = { when: Date.now(), inputs, status, state, text: [...text.slice(0, 200)].slice(0, 80).join("") };
    this._keep([run, ...this._runs()]);
  }

  _runs() {
    try {
      const runs = JSON.parse(localStorage.getItem(KEY) ?? "[]");
      return Array.isArray(runs) ? runs.filter((run) => run?.inputs) : [];
    } catch {
      return []; // another program has written there, or the browser allows no storage
    }
  }

  _keep(runs) {
    let kept = runs.slice(0, MAX_RUNS);
    while (kept.length > 0 && JSON.stringify(kept).length > MAX_CHARACTERS) kept = kept.slice(0, -1);
    try {
      if (kept.length > 0) localStorage.setItem(KEY, JSON.stringify(kept));
      else localStorage.removeItem(KEY);
    } catch {
      // the browser allows no storage, or none is left: the page works without a history
    }
    this._show();
  }

  _show() {
    const runs = this._runs();
    this._box.hidden = runs.length === 0;
    this._title.textContent = `Earlier runs (${runs.length})`;
    this._list.replaceChildren(
      ...runs.map((run) => {
        const when = make("time", { className: "hint", dateTime: new Date(run.when).toISOString() }, timeOf(run.when));
        const name = make("code", {}, run.inputs.script?.language ?? String(run.inputs.controller));
        const status = make("span", { className: "status" }, String(run.status));
        status.dataset.state = run.state;
        const text = make("span", { className: "excerpt" }, String(run.text));
        const button = make("button", { type: "button" }, when, name, status, text);
        button.addEventListener("click", () => this.onpick(run.inputs));
        return make("li", {}, button);
      }),
    );
  }
}

function timeOf(when) {
  const today = new Date(when).toDateString() === new Date().toDateString();
  return new Date(when).toLocaleString("en-GB", { timeStyle: "short", ...(today ? {} : { dateStyle: "medium" }) });
}

// -- copies of the inputs: a link, a command of curl, and a program in Python ----------------------------------------

/** Most characters of a link: longer ones do not survive mail and chat programs. */
const LONGEST_LINK = 16_000;
const MARK = "#run?";

/** Returns a link that fills in these inputs when it is opened; null if they are too long for a link. */
export function asLink(body) {
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const link = `${location.origin}${location.pathname}${MARK}${text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
  return link.length <= LONGEST_LINK ? link : null;
}

/** Returns the inputs in the page's address; null if it has none. Throws an Error if they cannot be read. */
export function linkedInputs() {
  if (!location.hash.startsWith(MARK)) return null;
  try {
    const text = atob(location.hash.slice(MARK.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const body = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (body === null || typeof body !== "object" || Array.isArray(body)) throw new Error("not an object");
    return body;
  } catch {
    throw new Error("The inputs in this page's address cannot be read. The link may have been cut: copy it again.");
  }
}

/** Returns a command of curl. A token is not part of it: the shell's variable AICI_TOKEN has it. */
export function asCurl(body, hasToken) {
  const auth = hasToken ? ' -H "Authorization: Bearer $AICI_TOKEN"' : "";
  const json = JSON.stringify({ ...body, stream: false }, null, 2).replaceAll("'", "'\\''");
  return `curl -s ${location.origin}/v1/run -H 'Content-Type: application/json'${auth} -d '${json}'\n`;
}

/** Returns a program in Python, for its standard library. A token is in the environment variable AICI_TOKEN. */
export function asPython(body, hasToken) {
  const auth = hasToken ? ', "Authorization": "Bearer " + os.environ["AICI_TOKEN"]' : "";
  return `import json
${hasToken ? "import os\n" : ""}import urllib.request

body = ${pythonValue({ ...body, stream: false })}
headers = {"Content-Type": "application/json"${auth}}
request = urllib.request.Request("${location.origin}/v1/run", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as answer:
    for fork in json.load(answer)["forks"]:
        print(fork["text"])
`;
}

/** Writes JSON as Python does. The texts of JSON are also texts of Python. */
function pythonValue(value, indent = "") {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}    `;
  const entries = Array.isArray(value)
    ? value.map((each) => pythonValue(each, deeper))
    : Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${pythonValue(each, deeper)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return entries.length ? `${open}\n${entries.map((entry) => `${deeper}${entry},\n`).join("")}${indent}${close}` : open + close;
}

/** Copies a text. Browsers have no clipboard on pages without TLS, except for localhost, but still this command. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) throw new Error("The browser does not allow this page to copy.");
  }
}
