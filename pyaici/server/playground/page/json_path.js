// Finds the place of a JSON pointer, such as /properties/age/type, in the text that was parsed.

const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+)/y;

/** Returns the offset of the value at `pointer`, or of its nearest ancestor; null if the text is not JSON. */
export function findInJson(text, pointer) {
  const steps = pointer.split("/").slice(1).map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  const reader = new Reader(text);
  try {
    return find(reader, steps);
  } catch {
    return null;
  }
}

class Reader {
  constructor(text) {
    this._text = text;
    this._end = 0;
    this.next();
  }

  /** Moves to the next token and returns the current one. */
  next() {
    const token = this.token;
    TOKEN.lastIndex = this._end;
    const found = TOKEN.exec(this._text);
    this.token = found ? found[1] : "";
    this.start = found ? TOKEN.lastIndex - this.token.length : this._text.length;
    this._end = found ? TOKEN.lastIndex : this._text.length;
    return token;
  }
}

/** Returns the offset of the value that the steps lead to, from the value at the reader's position. */
function find(reader, steps) {
  const start = reader.start;
  if (steps.length === 0) return start;
  const isObject = reader.token === "{";
  if (!isObject && reader.token !== "[") return start;
  reader.next();
  for (let index = 0; reader.token && reader.token !== "}" && reader.token !== "]"; index++) {
    let key = String(index);
    if (isObject) {
      key = JSON.parse(reader.next());
      reader.next(); // the colon
    }
    if (key === steps[0]) return find(reader, steps.slice(1));
    skip(reader);
    if (reader.token === ",") reader.next();
  }
  return start;
}

function skip(reader) {
  let depth = 0;
  do {
    const token = reader.next();
    if (!token) throw new SyntaxError("the text ends in a value");
    if (token === "{" || token === "[") depth++;
    if (token === "}" || token === "]") depth--;
  } while (depth > 0);
}
