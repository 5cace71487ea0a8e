// The prompt: a text that is used as it is, or the messages of a chat.

import { byId, make } from "./dom.js";

const ROLES = ["system", "user", "assistant"];

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
