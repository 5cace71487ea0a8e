// A card that can be folded to one line: by suggestion, until the user decides.

import { make } from "./dom.js";

export class Fold {
  constructor(card, heading) {
    this._card = card;
    this._heading = heading;
    this._button = null;
    this._suggested = false;
    /** the user's last choice; null if there is none */
    this._chosen = null;
    card.addEventListener("click", () => this._folded && this._choose(false));
  }

  /** Suggests whether the card is folded, and gives the user a button for it. */
  suggest(folded) {
    if (this._button && folded === this._suggested) return;
    this._suggested = folded;
    if (!this._button) this._addButton();
    this._show();
  }

  open() {
    if (this._folded) this._choose(false);
  }

  get _folded() {
    return this._button !== null && (this._chosen ?? this._suggested);
  }

  _addButton() {
    this._button = make("button", { type: "button", className: "fold" }, this._heading.textContent);
    this._button.addEventListener("click", (event) => {
      event.stopPropagation(); // otherwise the card would open again
      this._choose(!this._folded);
    });
    this._heading.replaceChildren(this._button);
  }

  _choose(folded) {
    this._chosen = folded;
    this._show();
  }

  _show() {
    this._card.classList.toggle("folded", this._folded);
    this._button.setAttribute("aria-expanded", !this._folded);
  }
}
