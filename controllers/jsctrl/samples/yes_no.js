/** Yes or no, then one sentence with the reason.
 *
 * Prompt: Do cats have fur?
 */
import { choice, force, gen, regex } from "aici";

// Made at the top level, which runs once before any prompt, so every request finds its patterns compiled.
const ANSWER = choice(["Yes", "No"]);
const REASON = regex(/ [^.\n]{5,80}\./);

export async function main() {
  const answer = await gen(ANSWER, { store: "answer" });
  // a script is a program: the next text may depend on the text so far
  force(answer === "Yes" ? ", because" : ":");
  await gen(REASON, { maxTokens: 24 });
}
