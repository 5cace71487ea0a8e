// The server's API: the access token, requests with it, the server's errors, and streams of events.

import { byId, showText } from "./dom.js";

const KEY = "aici-token";

/** The access token: entered by the user, kept for this browser tab only, sent with every request. */
export class Access {
  /** Called when the token changes. */
  onchange = () => {};

  constructor() {
    this._box = byId("access");
    this._field = byId("token");
    this._field.value = this.token;
    byId("access-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this._set(this._field.value.trim());
    });
    byId("token-forget").addEventListener("click", () => this._set(""));
    this._box.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this._box.open) {
        event.stopPropagation();
        this._close();
      }
    });
    this._mark();
  }

  get token() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  /** The headers that authenticate a request. */
  get headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Opens the form with the reason why the server has refused the token, or asks for one. */
  ask(reason) {
    this._box.open = true;
    showText(byId("access-reason"), reason);
    this._field.focus();
  }

  _set(token) {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
    this._field.value = token;
    this._mark();
    this._close();
    this.onchange();
  }

  _close() {
    this._box.open = false;
    showText(byId("access-reason"), "");
    this._box.querySelector("summary").focus();
  }

  _mark() {
    this._box.classList.toggle("has-token", this.token !== "");
  }
}

/** An error of the server, or a failed connection, whose `status` is 0. */
export class ApiError extends Error {
  constructor(status, message, { param = null, log = "" } = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.log = log;
  }
}

export class Api {
  constructor(access) {
    this._access = access;
  }

  /** Whether requests have a token. */
  get hasToken() {
    return this._access.token !== "";
  }

  async get(path) {
    return (await this._fetch(path, {})).json();
  }

  /** Sends JSON; with another `type`, any body that `fetch` accepts. */
  async send(method, path, body, type = "application/json") {
    const content = type === "application/json" ? JSON.stringify(body) : body;
    const answer = await this._fetch(path, { method, body: content, headers: { "Content-Type": type } });
    return answer.json();
  }

  /** Yields the events {name, data} of a POST as they arrive. Throws an AbortError when `signal` is aborted. */
  async *events(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    const answer = await this._fetch(path, { method: "POST", body: JSON.stringify(body), headers, signal });
    yield* readEvents(answer.body);
  }

  async _fetch(path, options) {
    const headers = { ...options.headers, ...this._access.headers };
    let answer;
    try {
      answer = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The server does not answer. Check that it is still running.");
    }
    if (answer.ok) return answer;
    const error = await readError(answer);
    if (answer.status === 401) this._access.ask(error.message);
    throw error;
  }
}

async function readError(answer) {
  let error = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {
    // not an error of our server, but for example of a proxy
  }
  return new ApiError(answer.status, error.message ?? `The server answered with status ${answer.status}.`, error);
}

async function* readEvents(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await read(reader);
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const event = readEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // fails if the stream has failed already
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The connection to the server was lost.");
  }
}

/** Returns an event; null for comments and for the end of the stream. */
function readEvent(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data.push(line.slice(6));
  }
  const text = data.join("\n");
  return text && text !== "[DONE]" ? { name, data: JSON.parse(text) } : null;
}
