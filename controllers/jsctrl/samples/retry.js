/** Retries until a checker accepts the text: a sum that is correct.
 *
 * Prompt: Write a sum of two numbers between 10 and 30.
 */
import { Variable, force, gen, regex, retry } from "aici";

// a pattern enforces the form, but cannot check that the sum is correct
const SUM = regex(/[1-2][0-9] \+ [1-2][0-9] = [0-9]{2}/);

function right(line) {
  const [one, other, total] = line.match(/\d+/g).map(Number);
  return one + other === total;
}

let attempt = 0;

async function write() {
  attempt++;
  // a higher temperature each time, so that the model does not write the same again
  const line = await gen(SUM, { temperature: 0.1 + 0.15 * attempt });
  if (right(line)) return line;
  console.log("wrong:", line);
}

export async function main() {
  try {
    await retry(write, 8);
    new Variable("attempts").set(attempt);
  } catch {
    // report the failure instead of returning a wrong sum
    force("I found none.");
  }
}
