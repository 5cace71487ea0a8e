/** A record in JSON, in which one field is computed from another.
 *
 * Prompt: Describe a famous scientist of the 19th century.
 */
import { force, gen, regex, setVar, text } from "aici";

// a JSON string without escapes, which is enough for a name; the quotation marks are fixed
const NAME = regex(/[A-Z][A-Za-z .]{2,30}/);
const YEAR = regex(/1[78][0-9]{2}/);

export async function main() {
  force('{"name": "');
  await gen(NAME);
  force('", "born": ');
  const born = Number(await gen(YEAR));
  // models know names but are bad at arithmetic, so the script computes the century
  force(`, "century": ${Math.ceil(born / 100)}}`);
  setVar("record", JSON.stringify(JSON.parse(text())));
}
