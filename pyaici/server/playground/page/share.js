// The inputs of a run as a link, as a command of curl, and as a program in Python.

/** Most characters of a link: longer ones do not survive mail and chat programs. */
const LONGEST_LINK = 16_000;
const MARK = "#run?";

/** Returns a link that fills in these inputs when it is opened; null if they are too long for a link. */
export function asLink(body) {
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const link = `${location.origin}${location.pathname}${MARK}${text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
  return link.length <= LONGEST_LINK ? link : null;
}

/** Returns the inputs in the page's address; null if it has none. Throws an Error if they cannot be read. */
export function linkedInputs() {
  if (!location.hash.startsWith(MARK)) return null;
  try {
    const text = atob(location.hash.slice(MARK.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
    const body = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (body === null || typeof body !== "object" || Array.isArray(body)) throw new Error("not an object");
    return body;
  } catch {
    throw new Error("The inputs in this page's address cannot be read. The link may have been cut: copy it again.");
  }
}

/** Returns a command of curl. A token is not part of it: the shell's variable AICI_TOKEN has it. */
export function asCurl(body, hasToken) {
  const auth = hasToken ? ' -H "Authorization: Bearer $AICI_TOKEN"' : "";
  const json = JSON.stringify({ ...body, stream: false }, null, 2).replaceAll("'", "'\\''");
  return `curl -s ${location.origin}/v1/run -H 'Content-Type: application/json'${auth} -d '${json}'\n`;
}

/** Returns a program in Python, for its standard library. A token is in the environment variable AICI_TOKEN. */
export function asPython(body, hasToken) {
  const auth = hasToken ? ', "Authorization": "Bearer " + os.environ["AICI_TOKEN"]' : "";
  return `import json
${hasToken ? "import os\n" : ""}import urllib.request

body = ${pythonValue({ ...body, stream: false })}
headers = {"Content-Type": "application/json"${auth}}
request = urllib.request.Request("${location.origin}/v1/run", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as answer:
    for fork in json.load(answer)["forks"]:
        print(fork["text"])
`;
}

/** Writes JSON as Python does. The texts of JSON are also texts of Python. */
function pythonValue(value, indent = "") {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}    `;
  const entries = Array.isArray(value)
    ? value.map((each) => pythonValue(each, deeper))
    : Object.entries(value).map(([key, each]) => `${JSON.stringify(key)}: ${pythonValue(each, deeper)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return entries.length ? `${open}\n${entries.map((entry) => `${deeper}${entry},\n`).join("")}${indent}${close}` : open + close;
}

/** Copies a text. Browsers have no clipboard on pages without TLS, except for localhost, but still this command. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    if (!done) throw new Error("The browser does not allow this page to copy.");
  }
}
