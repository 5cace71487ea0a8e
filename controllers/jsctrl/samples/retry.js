/** Tries again until a checker accepts: a sum that is right.
 *
 * Prompt: Write a sum of two numbers between 10 and 30.
 */
import { fixed, gen, label, regex, rewind, setVar } from "aici";

// a pattern promises the form; that the sum is right is more than a pattern can say
const SUM = regex(/[1-2][0-9] \+ [1-2][0-9] = [0-9]{2}/);

function right(line) {
  const [one, other, total] = line.match(/\d+/g).map(Number);
  return one + other === total;
}

export async function main() {
  const start = label();
  for (let attempt = 1; attempt <= 8; attempt++) {
    // a little warmer each time, so that it does not write the same again
    const line = await gen(SUM, { temperature: 0.1 + 0.15 * attempt });
    if (right(line)) {
      setVar("attempts", attempt);
      return;
    }
    console.log("wrong:", line);
    rewind(start);
  }
  // say so rather than let something wrong through
  fixed("I found none.");
}
