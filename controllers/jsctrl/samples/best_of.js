/** The best of four answers: four forks write at the same time, the likeliest text wins.
 *
 * Prompt: Write a slogan for a bakery.
 */
import { fixed, gather, generate, regex, setVar } from "aici";

const SLOGAN = regex(/[A-Z][^\n"]{5,60}[.!]/);

async function attempt() {
  // generate is gen that tells all it knows. At this temperature every fork writes something else
  const out = await generate(SLOGAN, { temperature: 0.9, maxTokens: 16 });
  // the mean over tokens: the sum would favour short texts
  return { score: out.logprob / Math.max(1, out.details.length), text: out.text };
}

export async function main() {
  // the forks share the prompt's cache and a forward pass: four cost little more than one
  const tries = await gather([attempt, attempt, attempt, attempt]);
  const best = tries.reduce((one, other) => (other.score > one.score ? other : one));
  fixed(best.text);
  setVar("score", best.score.toFixed(3));
}
