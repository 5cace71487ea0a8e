// Shows a piece of text: its origin, its probability, and how many tokens the mask allowed there.

import { make } from "./dom.js";

/** Returns a text with visible line ends and tabs. */
export function visible(text) {
  return text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥\t");
}

/** Returns a piece's text. For a token without text (special, or part of a character), returns the server's name. */
export function nameOf(piece) {
  if (piece.text !== "" || piece.tokens.length === 0) return piece.text;
  return piece.top?.find(({ token }) => token === piece.tokens[0])?.text ?? "·";
}

export function probabilityOf(piece) {
  return piece.logprob === null ? null : Math.exp(piece.logprob);
}

export function percent(probability) {
  if (probability === null) return "unknown";
  if (probability >= 0.0005) return `${(100 * probability).toFixed(1)} %`;
  return `${(100 * probability).toExponential(1)} %`;
}

/** Number of characters of the text before a fork that folded lanes show. */
const LAST_LETTERS = 16;

/** Creates a span for a piece; its background is stronger if the piece was unlikely, or its mask narrow. */
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

/** Splits a long text in two: a part that a folded lane leaves out, and the end. */
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

/** Returns 0 for a certain token, and 1 for a probability of a thousandth or less. */
function surprise(piece) {
  return piece.logprob === null ? 0 : Math.min(1, -piece.logprob / Math.log(1000));
}

/** Returns 0 for a mask that allows all tokens, and 1 for a single token, on a logarithmic scale. */
function narrowness(allowed, vocabulary) {
  if (allowed === null || vocabulary < 2) return 0;
  return 1 - Math.log(Math.max(1, allowed)) / Math.log(vocabulary);
}
