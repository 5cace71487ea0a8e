/** A yes or a no, then one sentence that says why.
 *
 * Prompt: Do cats have fur?
 */
import { fixed, gen, options, regex } from "aici";

// Made at the top level, which runs once, before any prompt: every request finds its patterns ready.
const ANSWER = options(["Yes", "No"]);
const REASON = regex(/ [^.\n]{5,80}\./);

export async function main() {
  const answer = await gen(ANSWER, { store: "answer" });
  // a script is a program: what comes next may depend on what came
  fixed(answer === "Yes" ? ", because" : ":");
  await gen(REASON, { maxTokens: 24 });
}
