/** Self-consistency that stops early: forks vote in pairs, until the rest cannot change the result.
 *
 * The result is always that of all votes. Published methods save more and are sometimes wrong:
 * Adaptive-Consistency (arXiv 2305.11860) stops when a majority is likely enough, and ESC (arXiv 2401.10480)
 * when a few answers in a row agree.
 *
 * Prompt: Anna has 3 apples and buys 4 more. How many apples has she?
 */
import { force, gather, gen, regex, setVar } from "aici";

const VOTES = 5;
const NUMBER = regex(/ [0-9]{1,3}/);

const count = (votes, answer) => votes.filter((vote) => vote === answer).length;

function decided(votes, left) {
  // whether the first answer stays ahead even if all votes that are left are for the second one
  const counts = [...new Set(votes)].map((vote) => count(votes, vote)).concat(0, 0);
  const [first, second] = counts.sort((one, other) => other - one);
  return first > second + left;
}

function winner(votes) {
  return votes.reduce((one, other) => (count(votes, other) > count(votes, one) ? other : one));
}

async function vote() {
  await gen({ stop: "\n", maxTokens: 10, temperature: 0.7 });
  force("\nThe answer is");
  return (await gen(NUMBER)).trim();
}

export async function main() {
  const votes = [];
  while (votes.length < VOTES && !decided(votes, VOTES - votes.length)) {
    // larger groups wait less often, smaller ones vote less in vain
    votes.push(...(await gather(Array(Math.min(2, VOTES - votes.length)).fill(vote))));
  }
  const found = winner(votes);
  force(`${found} (${count(votes, found)} of ${votes.length} say so)`);
  setVar("votes", votes.join(" "));
}
