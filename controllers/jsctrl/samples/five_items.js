/** A numbered list of exactly five items.
 *
 * Prompt: Name five fruits.
 */
import { fixed, gen, label, regex, rewind, setVar } from "aici";

// The blank before an item is the model's to write: most of its tokens begin with one (" Apple"), and after a
// blank that is fixed it could not use them.
const ITEM = regex(/ [A-Z][a-z]+( [a-z]+)?/);

export async function main() {
  const items = [];
  for (let number = 1; number <= 5; number++) {
    // what is fixed costs no time of the model: only the items are written by it
    fixed(`${number}.`);
    const here = label();
    let item;
    for (const temperature of [0, 0.7, 1, 1.5]) {
      item = await gen(ITEM, { maxTokens: 6, temperature });
      if (!items.includes(item)) break;
      // small models repeat themselves: take it back, and try once more with more courage
      rewind(here);
    }
    items.push(item);
    // after rewind there is nothing here, so the last try is put back in
    fixed(item + "\n", { after: here });
  }
  // a variable goes to the caller beside the text, who then need not take the text apart
  setVar("items", items.join(",").trim());
}
