// The tab "Run": runs a controller on the server, and shows the events as they arrive.

import { Argument } from "./argument.js";
import { Controllers, scriptValue } from "./controllers.js";
import { byId, fieldValues, setFieldValues, showText } from "./dom.js";
import { Calls, Figures, Timeline, Variables } from "./figures.js";
import { ForkTree } from "./forks.js";
import { Examples, History, Prompt, asCurl, asLink, asPython, copy, linkedInputs } from "./inputs.js";
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
    this._timeline = new Timeline(byId("timeline"), byId("timeline-caption"));
    this._calls = new Calls(byId("calls"));
    this._variables = new Variables(byId("variables"));
    this._history = new History(byId("history"));
    this._history.onpick = (inputs) => this._fill(inputs);
    this._examples = new Examples();
    this._examples.onpick = (inputs) => this._fill(inputs) && this._form.requestSubmit();
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
    byId("copy-curl").addEventListener("click", () => this._copy((inputs) => asCurl(inputs, api.hasToken)));
    byId("copy-python").addEventListener("click", () => this._copy((inputs) => asPython(inputs, api.hasToken)));
    byId("copy-link").addEventListener("click", () => this._copy(asLink));
    try {
      /** the inputs in the address, which the first list of controllers that has theirs fills in */
      this._linked = linkedInputs();
    } catch (error) {
      this._linkError = error;
    }
  }

  /** Loads the list of controllers, then fills in the inputs that the page's address has. */
  async load() {
    showText(byId("run-error"), "");
    try {
      await this._controllers.load();
    } catch (error) {
      this._fail(error);
      return;
    }
    this._examples.show(this._controllers.names);
    if (this._linkError) this._fail(this._linkError);
    if (this._linked && this._fill(this._linked)) this._linked = null;
    this._linkError = null;
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

  /** The inputs of a run: what a request to `POST /v1/run` has of them. */
  get _inputs() {
    return { ...this._argument.wire, ...this._prompt.wire, ...fieldValues(byId("parameters")) };
  }

  /** Fills in the inputs of an example, a link or an earlier run. Returns whether the server has their controller. */
  _fill(inputs) {
    try {
      this._controllers.choose(inputs.script ? scriptValue(inputs.script.language) : (inputs.controller ?? "none"));
      this._argument.fill(inputs);
      this._prompt.fill(inputs);
      setFieldValues(byId("parameters"), inputs);
    } catch (error) {
      // a link may have anything in place of messages
      this._fail(error instanceof TypeError ? new Error(`These inputs cannot be used: ${error.message}`) : error);
      return false;
    }
    showText(byId("run-error"), "");
    return true;
  }

  async _copy(write) {
    const news = byId("copy-news");
    try {
      const text = write(this._inputs);
      if (text === null) throw new Error("Too long for a link.");
      await copy(text);
      news.textContent = "Copied.";
    } catch (error) {
      news.textContent = error.message;
    }
  }

  async _run() {
    this._abort = new AbortController();
    const transcript = new Transcript();
    this._begin();
    let inputs = null;
    try {
      inputs = this._inputs;
      const request = { ...inputs, top_logprobs: 5, details: true };
      for await (const { data } of this._api.events("/v1/run", request, this._abort.signal)) {
        this._showStatus("Running …", "running");
        this._show(transcript, transcript.take(data));
      }
      this._showStatus(ending(transcript), transcript.failed ? "failed" : "done");
      const failed = [...transcript.lanes.values()].find((lane) => lane.error);
      if (failed) this._argument.failed(failed.error.message, request);
    } catch (error) {
      const stopped = error.name === "AbortError";
      this._show(transcript, transcript.interrupt(stopped ? "stopped" : "interrupted"));
      if (stopped) this._showStatus("Stopped.", "stopped");
      else this._fail(error);
    } finally {
      this._abort = null;
      this._showRunning(false);
      const { textContent, dataset } = byId("run-state");
      if (inputs) this._history.add(inputs, textContent, dataset.state, transcript.text);
    }
  }

  _show(transcript, lanes) {
    this._tree.update(lanes, transcript);
    this._figures.update(transcript);
    this._timeline.show(transcript.times);
    this._calls.show(transcript.calls);
    this._variables.show(transcript.variables);
  }

  /** Shows whether a run is in progress. */
  _showRunning(running) {
    byId("stop").disabled = !running;
    // not `disabled`: a user who pressed it by a key would lose the focus
    byId("run").setAttribute("aria-disabled", running);
  }

  _begin() {
    this._showRunning(true);
    this._examples.hide();
    this._tree.clear();
    this._figures.begin();
    this._timeline.clear();
    this._argument.accept();
    this._calls.clear();
    this._variables.clear();
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
