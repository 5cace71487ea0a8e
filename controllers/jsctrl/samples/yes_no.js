/** Yes or no, then one sentence with the reason.
 *
 * Prompt: Do cats have fur?
 */
import { fixed, gen, options, regex } from "aici";

// Made at the top level, which runs once before any prompt, so every request finds its patterns compiled.
const ANSWER = options(["Yes", "No"]);
const REASON = regex(/ [^.\n]{5,80}\./);

export async function main() {
  const answer = await gen(ANSWER, { store: "answer" });
  // a script is a program: the next text may depend on the text so far
  fixed(answer === "Yes" ? ", because" : ":");
  await gen(REASON, { maxTokens: 24 });
}
