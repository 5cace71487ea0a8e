// Finds the place of an error in a text from its message: a traceback, line and column, byte, or path in JSON.

import { findInJson } from "./json_path.js";

/** Returns the range [from, to) that a message refers to, as offsets into `text`; null if it names no place. */
export function findPlace(message, text) {
  const line = lineOfPython(message);
  if (line !== null) return wholeLine(text, line);
  const from = findOffset(message, text);
  if (from === null) return null;
  const word = /^(?:[\p{L}\p{N}_]+|"[^"\n]*")/u.exec(text.slice(from));
  const length = word ? word[0].length : 1;
  return { from, to: Math.min(text.length, from + length) };
}

/** Returns the innermost line of a Python traceback, which is the last one; null if the message has none. */
function lineOfPython(message) {
  const frames = [...message.matchAll(/File "script(?:\.py)?", line (\d+)/g)];
  return frames.length ? Number(frames.at(-1)[1]) : null;
}

/** Returns the range of a line, without blanks around it. */
function wholeLine(text, line) {
  const content = text.split("\n")[line - 1] ?? "";
  const from = offsetOf(text, line, 1) + content.length - content.trimStart().length;
  return { from, to: from + content.trim().length };
}

function findOffset(message, text) {
  // in JavaScript, the innermost place comes first
  const frame = /\bscript(?:\.js)?:(\d+):(\d+)/.exec(message);
  if (frame) return offsetOf(text, Number(frame[1]), Number(frame[2]));
  const place = /\bline (\d+)(?:, column (\d+))?/.exec(message);
  if (place) return offsetOf(text, Number(place[1]), Number(place[2] ?? 1));
  const column = /\bcolumn (\d+)/.exec(message);
  if (column) return offsetOf(text, 1, Number(column[1]));
  const byte = /\bat byte (\d+)/.exec(message);
  if (byte) return offsetOfByte(text, Number(byte[1]));
  const path = /^#(\/\S*?):(?:\s|$)/m.exec(message);
  return path ? findInJson(text, path[1]) : null;
}

/** Lines and columns count from 1. Columns count characters, some of which are two units of a JavaScript string. */
function offsetOf(text, line, column) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  const inLine = [...(lines[line - 1] ?? "")].slice(0, column - 1).join("").length;
  return Math.min(text.length, before + inLine);
}

function offsetOfByte(text, byte) {
  const bytes = new TextEncoder().encode(text);
  return new TextDecoder().decode(bytes.slice(0, byte)).length;
}
