// The access token: entered by the user, kept for this browser tab only, sent with every request.

import { byId, showText } from "./dom.js";

const KEY = "aici-token";

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
