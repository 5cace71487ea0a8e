// Starts the page: its tabs, the access token, and the model's name.

import { Access, Api } from "./api.js";
import { CompleteView } from "./complete_view.js";
import { byId } from "./dom.js";
import { RunView } from "./run_view.js";

/** Tabs: one panel is shown; arrow keys switch, and the address stores the selected tab. */
class Tabs {
  /** Called with the name of the selected tab. */
  onchange = () => {};

  constructor(...buttons) {
    this._buttons = buttons;
    for (const button of buttons) {
      button.addEventListener("click", () => this._show(button));
      button.addEventListener("keydown", (event) => this._move(event));
    }
    const wanted = buttons.find((button) => nameOf(button) === location.hash.slice(1).split("?")[0]);
    if (wanted) queueMicrotask(() => this._show(wanted));
  }

  _move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const count = this._buttons.length;
    const next = this._buttons[(this._buttons.indexOf(event.currentTarget) + step + count) % count];
    next.focus();
    this._show(next);
  }

  _show(shown) {
    for (const button of this._buttons) {
      const selected = button === shown;
      button.setAttribute("aria-selected", selected);
      button.tabIndex = selected ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")).hidden = !selected;
    }
    history.replaceState(null, "", `#${nameOf(shown)}`);
    this.onchange(nameOf(shown));
  }
}

function nameOf(button) {
  return button.id.replace("tab-", "");
}

const access = new Access();
const api = new Api(access);
const tabs = new Tabs(byId("tab-run"), byId("tab-complete"));
const run = new RunView(api);
const complete = new CompleteView(api);
tabs.onchange = (name) => (name === "complete" ? complete.shown() : complete.hidden());

/** Loads the controllers and the model's name, which depend on the server and on the access token. */
async function load() {
  await run.load();
  try {
    const [model] = (await api.get("/v1/models")).data;
    byId("model").textContent = `${model.id}, ${model.max_model_len.toLocaleString("en")} tokens of context`;
  } catch {
    byId("model").textContent = ""; // loading the controllers has already shown the error
  }
}

access.onchange = load;
await load();
