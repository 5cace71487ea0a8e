/** Self-consistency: five forks reason independently, and the most frequent answer wins.
 *
 * Prompt: Anna has 3 apples and buys 4 more. How many apples has she?
 */
import { backtrack, force, fork, gen, label, regex, stop, wait } from "aici";

const FORKS = 5;
const NUMBER = regex(/ [0-9]{1,3}/);

export async function main() {
  const start = label();
  const mine = await fork(FORKS); // from here on, five copies of this script run; mine is 0, 1, 2, 3 or 4
  await gen({ stop: "\n", maxTokens: 20, temperature: 0.7 });
  force("\nThe answer is");
  // variables belong to the whole request, so forks communicate through them
  await gen(NUMBER, { store: `vote${mine}` });
  if (mine !== 0) stop();

  // the first fork waits, at no cost, until all have voted
  const votes = await wait(...Array.from({ length: FORKS }, (_, number) => `vote${number}`));
  const count = (answer) => votes.filter((vote) => vote === answer).length;
  const winner = votes.reduce((one, other) => (count(other) > count(one) ? other : one));
  backtrack(start);
  force(`${winner.trim()} (${count(winner)} of ${FORKS} say so)`);
}
