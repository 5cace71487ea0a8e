// How a piece of text looks: what it is, how likely it was, and how many tokens the mask allowed there.

import { make } from "./dom.js";

/** A text of which every letter can be seen. */
export function visible(text) {
  return text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥\t");
}

/** A piece's text. A token without one is a special token, or a part of a character: as the server calls it. */
export function nameOf(piece) {
  if (piece.text !== "" || piece.tokens.length === 0) return piece.text;
  return piece.top?.find(({ token }) => token === piece.tokens[0])?.text ?? "·";
}

export function probabilityOf(piece) {
  return piece.logprob === null ? null : Math.exp(piece.logprob);
}

export function percent(probability) {
  if (probability === null) return "not known";
  if (probability >= 0.0005) return `${(100 * probability).toFixed(1)} %`;
  return `${(100 * probability).toExponential(1)} %`;
}

/** Characters of what was there before a fork that are shown where there is little room. */
const LAST_LETTERS = 16;

/** A span for a piece; its background is as strong as the piece was unlikely, or as its mask was narrow. */
export function tokenView(piece, vocabulary) {
  const view = make("span", { className: `token ${piece.kind}` });
  if (piece.kind === "shared") view.append(...earlyAndLast(visible(piece.text)));
  else view.textContent = visible(nameOf(piece));
  view.classList.toggle("empty", piece.text === "");
  if (piece.kind === "sampled" || piece.kind === "forced") {
    view.setAttribute("role", "option");
    view.setAttribute("aria-selected", "false");
    view.tabIndex = -1;
  }
  if (piece.kind === "sampled") {
    view.title = summary(piece, vocabulary);
    view.style.setProperty("--surprise", surprise(piece).toFixed(3));
    view.style.setProperty("--narrow", narrowness(piece.allowed, vocabulary).toFixed(3));
  }
  showTaken(view, piece);
  return view;
}

/** In two parts, if it is long: what can be left out in a line, and its end. */
function earlyAndLast(text) {
  const letters = [...text];
  if (letters.length <= LAST_LETTERS) return [text];
  const early = make("span", { className: "early" }, letters.slice(0, -LAST_LETTERS).join(""));
  return [early, letters.slice(-LAST_LETTERS).join("")];
}

export function showTaken(view, piece) {
  view.classList.toggle("taken", piece.taken);
}

function summary(piece, vocabulary) {
  const allowed = piece.allowed === null ? "" : `, ${allowedWords(piece.allowed, vocabulary)}`;
  return `probability ${percent(probabilityOf(piece))}${allowed}`;
}

export function allowedWords(allowed, vocabulary) {
  return `${allowed.toLocaleString("en")} of ${vocabulary.toLocaleString("en")} tokens allowed`;
}

/** 0 for a token that was certain, 1 for one of a thousandth or less. */
function surprise(piece) {
  return piece.logprob === null ? 0 : Math.min(1, -piece.logprob / Math.log(1000));
}

/** 0 for a mask that allowed all, 1 for one of a single token; each factor counts the same. */
function narrowness(allowed, vocabulary) {
  if (allowed === null || vocabulary < 2) return 0;
  return 1 - Math.log(Math.max(1, allowed)) / Math.log(vocabulary);
}
