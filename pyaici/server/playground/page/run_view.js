// The tab "Run": runs a controller on the server, and shows the events as they arrive.

import { Argument } from "./argument.js";
import { Controllers } from "./controllers.js";
import { byId, describe, fieldValues, make, showText } from "./dom.js";
import { Figures } from "./figures.js";
import { ForkTree } from "./fork_tree.js";
import { Prompt } from "./prompt.js";
import { Transcript } from "./transcript.js";

export class RunView {
  constructor(api) {
    this._api = api;
    this._argument = new Argument();
    this._prompt = new Prompt();
    this._controllers = new Controllers(api);
    this._controllers.onchange = (controller) => this._argument.show(controller);
    this._tree = new ForkTree(byId("forks"), byId("details"));
    this._figures = new Figures(byId("figures"));
    /** AbortController of the current run; null if there is none */
    this._abort = null;
    this._form = byId("run-form");
    this._form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this._abort) this._run();
    });
    byId("stop").addEventListener("click", () => this._abort?.abort());
    document.addEventListener("keydown", (event) => this._key(event));
    document.querySelector(".story .choice").addEventListener("change", (event) => {
      byId("story").dataset.colour = event.target.value;
    });
  }

  /** Loads the list of controllers. */
  async load() {
    showText(byId("run-error"), "");
    try {
      await this._controllers.load();
    } catch (error) {
      this._fail(error);
    }
  }

  _key(event) {
    if (byId("panel-run").hidden) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this._form.requestSubmit();
    } else if (event.key === "Escape") {
      this._abort?.abort();
    }
  }

  _request() {
    return {
      ...this._argument.wire,
      ...this._prompt.wire,
      ...fieldValues(byId("parameters")),
      top_logprobs: 5,
      details: true,
    };
  }

  async _run() {
    this._abort = new AbortController();
    const transcript = new Transcript();
    this._begin();
    try {
      const request = this._request();
      for await (const { data } of this._api.events("/v1/run", request, this._abort.signal)) {
        this._showStatus("Running …", "running");
        this._tree.update(transcript.take(data), transcript.vocabulary);
        this._figures.update(transcript);
        showVariables(transcript.variables);
      }
      this._showStatus(ending(transcript), "done");
      const failed = [...transcript.lanes.values()].find((lane) => lane.error);
      if (failed) this._argument.failed(failed.error.message, request);
    } catch (error) {
      if (error.name === "AbortError") this._showStatus("Stopped.", "stopped");
      else this._fail(error);
    } finally {
      this._abort = null;
      this._showRunning(false);
    }
  }

  /** Shows whether a run is in progress. */
  _showRunning(running) {
    byId("stop").disabled = !running;
    // not `disabled`: a user who pressed it by a key would lose the focus
    byId("run").setAttribute("aria-disabled", running);
  }

  _begin() {
    this._showRunning(true);
    this._tree.clear();
    this._figures.begin();
    this._argument.accept();
    showVariables({});
    showText(byId("run-error"), "");
    this._showStatus("Waiting for the server …", "running");
    if (matchMedia("(max-width: 760px)").matches) byId("story").scrollIntoView();
  }

  _fail(error) {
    this._showStatus("The run failed.", "failed");
    if (error.param === "controller_arg") {
      this._argument.refuse(error.message);
      this._showStatus("The controller refuses its argument.", "failed");
    } else if (error.param?.startsWith("script.")) {
      this._argument.refuse(error.message, error.param);
      this._showStatus("The script is refused.", "failed");
    } else {
      showText(byId("run-error"), [error.message, error.log].filter(Boolean).join("\n"));
    }
  }

  _showStatus(text, state) {
    const status = byId("run-state");
    if (status.textContent !== text) status.textContent = text;
    status.dataset.state = state;
  }
}

function ending({ lanes, timing }) {
  const failed = [...lanes.values()].filter((lane) => lane.error).length;
  const seconds = timing?.seconds == null ? "" : ` in ${timing.seconds.toFixed(2)} s`;
  if (failed === 0) return `Finished${seconds}.`;
  return lanes.size === 1 ? `Failed${seconds}.` : `Finished${seconds}; ${failed} of ${lanes.size} forks failed.`;
}

function showVariables(variables) {
  const box = byId("variables");
  const rows = Object.entries(variables).map(([name, value]) => [
    name,
    typeof value === "string" ? value : `${value.base64} (base64)`,
  ]);
  const list = make("dl", { className: "facts" });
  describe(list, rows);
  box.replaceChildren(make("h2", {}, "Variables"), list);
  box.hidden = rows.length === 0;
}
