// The server's API: requests with the user's token, the server's errors, and streams of events.

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
