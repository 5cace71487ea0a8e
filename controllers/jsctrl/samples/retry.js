/** Retries until a checker accepts the text: a sum that is correct.
 *
 * Prompt: Write a sum of two numbers between 10 and 30.
 */
import { fixed, gen, label, regex, rewind, setVar } from "aici";

// a pattern enforces the form, but cannot check that the sum is correct
const SUM = regex(/[1-2][0-9] \+ [1-2][0-9] = [0-9]{2}/);

function right(line) {
  const [one, other, total] = line.match(/\d+/g).map(Number);
  return one + other === total;
}

export async function main() {
  const start = label();
  for (let attempt = 1; attempt <= 8; attempt++) {
    // a higher temperature each time, so that the model does not write the same again
    const line = await gen(SUM, { temperature: 0.1 + 0.15 * attempt });
    if (right(line)) {
      setVar("attempts", attempt);
      return;
    }
    console.log("wrong:", line);
    rewind(start);
  }
  // report the failure instead of returning a wrong sum
  fixed("I found none.");
}
