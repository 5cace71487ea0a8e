/** The best of four answers: four forks write in parallel, and the likeliest text wins.
 *
 * Prompt: Write a slogan for a bakery.
 */
import { force, gather, generate, regex, setVar } from "aici";

const SLOGAN = regex(/[A-Z][^\n"]{5,60}[.!]/);

async function attempt() {
  // generate is gen with all details; at this temperature, the forks write different texts
  const out = await generate(SLOGAN, { temperature: 0.9, maxTokens: 16 });
  // the mean over the tokens, since the sum would favour short texts
  return { score: out.logprob / Math.max(1, out.details.length), text: out.text };
}

export async function main() {
  // the forks share the prompt's cache and a forward pass, so four cost little more than one
  const tries = await gather([attempt, attempt, attempt, attempt]);
  const best = tries.reduce((one, other) => (other.score > one.score ? other : one));
  force(best.text);
  setVar("score", best.score.toFixed(3));
}
