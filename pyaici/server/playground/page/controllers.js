// The list of controllers: bundled, uploaded, scripts in Python and JavaScript, and none.

import { byId, make } from "./dom.js";

const NONE = {
  value: "none", name: "none", description: "the model writes without a controller", example: null, takesArgument: false,
};

export class Controllers {
  /** Called with the selected controller {value, name, description, example, takesArgument}; for scripts see SCRIPTS. */
  onchange = () => {};

  constructor(api) {
    this._api = api;
    this._list = byId("controllers");
    this._uploadStatus = byId("upload-news");
    this._all = [NONE];
    this._list.addEventListener("change", () => this.onchange(this.chosen));
    byId("upload").addEventListener("change", (event) => this._upload(event.target));
  }

  get chosen() {
    const value = this._list.querySelector("input:checked")?.value;
    return this._all.find((controller) => controller.value === value) ?? NONE;
  }

  /** The values of all controllers that can be selected, and the names of the bundled ones. */
  get names() {
    return new Set(this._all.map(({ value, interpreter }) => interpreter ?? value));
  }

  /** Selects a controller, or throws an Error if the server does not have it. */
  choose(value) {
    const input = [...this._list.querySelectorAll("input")].find((each) => each.value === value);
    if (!input) throw new Error(`This server has no controller ${value}, or it needs another access token.`);
    this._select(input);
  }

  /** Loads the list from the server. Throws ApiError. */
  async load(wanted = this.chosen.value) {
    const { data, bundled } = await this._api.get("/v1/controllers");
    const own = bundled.map(({ name, description, example_arg }) => ({
      value: name, name, description, example: example_arg, takesArgument: example_arg !== null,
    }));
    const uploaded = data.flatMap(asChoices);
    const scripts = scriptChoices(bundled);
    this._all = [NONE, ...own, ...uploaded, ...scripts];
    this._list.replaceChildren(
      ...group("Scripts", scripts), ...group("Uploaded", uploaded), ...group("Bundled", own),
      ...group("No control", [NONE]),
    );
    const inputs = [...this._list.querySelectorAll("input")];
    const first = inputs.find((input) => input.value === wanted && wanted !== "none");
    const input = first ?? inputs.find((each) => each.value === "json_schema") ?? inputs[0];
    this._select(input);
  }

  _select(input) {
    input.checked = true;
    // scrolls only the list, not the page
    this._list.scrollTop = input.parentElement.offsetTop - this._list.clientHeight / 3;
    this.onchange(this.chosen);
  }

  async _upload(input) {
    const [file] = input.files;
    if (!file) return;
    const tag = byId("upload-tag").value.trim();
    this._showUpload(`Uploading ${file.name} …`);
    try {
      const language = languageOf(file.name);
      const { id } = language
        ? await this._api.send("POST", "/v1/scripts", { language, name: file.name, source: await file.text() })
        : await this._api.send("POST", "/v1/controllers", file, "application/wasm");
      if (tag) await this._api.send("PUT", `/v1/tags/${encodeURIComponent(tag)}`, { controller: id });
      this._showUpload(`Uploaded ${file.name} as ${tag || `${id.slice(0, 12)}…`}.`);
      await this.load(tag || id);
    } catch (error) {
      this._showUpload(`Uploading ${file.name} failed: ${error.message}`, true);
    } finally {
      input.value = ""; // so that the same file can be chosen again
    }
  }

  _showUpload(text, failed = false) {
    this._uploadStatus.textContent = text;
    this._uploadStatus.classList.toggle("failed", failed);
    if (failed) this._uploadStatus.scrollIntoView({ block: "nearest" });
  }
}

/** Returns an entry for each tag of a module, or one for its id. Whether it takes an argument is unknown. */
function asChoices({ id, tags, owners, size, callbacks, language, script }) {
  const what = language ? `${script}, a script in ${language}` : callbacks.join(", ");
  const description = `${Math.ceil(size / 1024)} KiB, owner: ${owners.join(", ") || "none"}; ${what}`;
  const known = { description, example: null, takesArgument: null };
  if (tags.length === 0) return [{ value: id, name: `${id.slice(0, 12)}…`, ...known }];
  return tags.map((tag) => ({ value: tag, name: tag, ...known }));
}

function group(title, choices) {
  if (choices.length === 0) return [];
  const entries = choices.map(({ value, name, description }) =>
    make(
      "label",
      { title: description },
      make("input", { type: "radio", name: "controller", value }),
      make("code", {}, name),
      make("span", {}, description),
    ),
  );
  return [make("p", { className: "group" }, title), ...entries];
}

// -- scripts: entries of the list, each with a working example -------------------------------------------------------

export const PYTHON = `from aici import *


async def main():
    await force(" was born in ")
    year = await gen(regex="1[0-9]{3}")
    await force(" and is known as ")
    work = await gen(choice=arg or ["a mathematician", "a poet", "a painter"])
    set_var("work", work)
    print(year, work)
`;

const JAVASCRIPT = `import { arg, force, gen, setVar } from "aici";

export async function main() {
  await force(" was born in ");
  const year = await gen({ regex: /1[0-9]{3}/ });
  await force(" and is known as ");
  const work = await gen({ choice: arg ?? ["a mathematician", "a poet", "a painter"] });
  setVar("work", work);
  console.log(year, work);
}
`;

/** `language` is the server's name of the language, `indent` is inserted by Tab, `interpreter` is the controller. */
const SCRIPTS = [
  {
    name: "Python script", language: "python", suffixes: [".py"],
    interpreter: "pyctrl", indent: "    ", example: PYTHON,
  },
  {
    name: "JavaScript script", language: "javascript", suffixes: [".js", ".mjs"],
    interpreter: "jsctrl", indent: "  ", example: JAVASCRIPT,
  },
];

/** Returns the server's name for the language of a file; undefined if the file is not a script. */
function languageOf(fileName) {
  const suffix = fileName.toLowerCase().match(/\.[a-z]+$/)?.[0];
  return SCRIPTS.find(({ suffixes }) => suffixes.includes(suffix))?.language;
}

/** Returns the value of a language's entry in the list of controllers. */
export function scriptValue(language) {
  return `script ${language}`;
}

/** Returns the entries for these bundled controllers; a language whose interpreter was not built has none. */
function scriptChoices(bundled) {
  const built = new Set(bundled.map(({ name }) => name));
  return SCRIPTS.filter(({ interpreter }) => built.has(interpreter)).map((script) => ({
    // no tag has a space
    value: scriptValue(script.language), description: "a controller that you write here", takesArgument: true, ...script,
  }));
}
