/** A numbered list of exactly five items.
 *
 * Prompt: Name five fruits.
 */
import { backtrack, force, gen, label, regex, setVar } from "aici";

// The model writes the space before an item, since most of its tokens begin with one (" Apple"). After a
// fixed space it could not use those tokens.
const ITEM = regex(/ [A-Z][a-z]+( [a-z]+)?/);

export async function main() {
  const items = [];
  for (let number = 1; number <= 5; number++) {
    // fixed text takes no time of the model, which writes only the items
    force(`${number}.`);
    const here = label();
    let item;
    for (const temperature of [0, 0.7, 1, 1.5]) {
      item = await gen(ITEM, { maxTokens: 6, temperature });
      if (!items.includes(item)) break;
      // small models repeat themselves: remove the item, and try again at a higher temperature
      backtrack(here);
    }
    items.push(item);
    // after backtrack the item is gone, so write the last attempt again
    force(item + "\n", { after: here });
  }
  // the caller gets the variable in addition to the text, and need not parse the text
  setVar("items", items.join(",").trim());
}
