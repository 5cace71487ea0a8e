// Shows the details of one token: origin, probability, mask, and the most likely alternatives.

import { describe, make } from "./dom.js";
import { allowedWords, nameOf, percent, probabilityOf, visible } from "./token_view.js";

const ORIGINS = {
  sampled: "sampled among the tokens that the mask allowed",
  forced: "appended by the controller",
};

export class TokenDetails {
  constructor(panel) {
    this._panel = panel;
    this.clear();
  }

  clear() {
    this._panel.classList.remove("shows-token");
    this._panel.replaceChildren(
      make("h2", {}, "Token"),
      make("p", { className: "hint" }, "Point at a token, or use the arrow keys."),
    );
  }

  show(piece, vocabulary) {
    const facts = make("dl", { className: "facts" });
    const rows = [["origin", ORIGINS[piece.kind]], ["id", piece.tokens.join(", ")]];
    if (piece.kind === "sampled") rows.push(["probability", percent(probabilityOf(piece))]);
    if (piece.allowed != null) rows.push(["mask", allowedWords(piece.allowed, vocabulary)]);
    if (piece.taken) rows.push(["later", "backtracked by the controller"]);
    describe(facts, rows);
    const title = make("h2", {}, "Token ", make("code", {}, quoted(nameOf(piece))));
    const parts = make("div", { className: "parts" }, make("div", {}, title, facts), ...alternatives(piece));
    this._panel.replaceChildren(parts);
    this._panel.classList.add("shows-token");
  }
}

function quoted(text) {
  return `“${visible(text)}”`;
}

function alternatives(piece) {
  if (!piece.top) return [];
  const rows = piece.top.map(({ token, text, logprob }) => {
    const probability = logprob === null ? 0 : Math.exp(logprob);
    const bar = make("span", { className: "bar", "aria-hidden": "true" });
    bar.style.setProperty("--share", probability.toFixed(4));
    const row = make("li", {}, make("code", {}, quoted(text)), bar, make("span", {}, percent(probability)));
    row.classList.toggle("picked", token === piece.tokens[0]);
    return row;
  });
  const note = make("p", { className: "hint" }, "Most likely tokens without the mask:");
  return [make("div", {}, note, make("ol", { className: "alternatives" }, ...rows))];
}
