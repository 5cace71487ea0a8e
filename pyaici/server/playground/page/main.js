// Starts the page: its tabs, the access token, and the model's name.

import { Access } from "./access.js";
import { Api } from "./api.js";
import { CompleteView } from "./complete_view.js";
import { byId } from "./dom.js";
import { RunView } from "./run_view.js";
import { Tabs } from "./tabs.js";

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
