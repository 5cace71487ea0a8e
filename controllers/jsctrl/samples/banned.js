/** Words that may not be used: as soon as one comes, it is taken back and another takes its place.
 *
 * Prompt: Describe a nice day at the beach.
 * Argument: ["sun", "beach", "sand", "water", "waves"]
 */
import { TokenSet, argument, endTokens, generate, sample, tokenBytes, tokens, vocabSize } from "aici";

const WORDS = (argument ?? ["very", "really"]).map((word) => " " + word);

// All tokens but those with which one of the words begins. To look at the whole vocabulary takes a moment: at
// the top level it is done once, for all requests.
const OTHERS = TokenSet.text();
OTHERS.allow(endTokens());
for (let token = 0; token < vocabSize(); token++) {
  const piece = String.fromCharCode(...tokenBytes(token));
  if (piece && WORDS.some((word) => word.startsWith(piece) || piece.startsWith(word))) OTHERS.forbid(token);
}

export async function main() {
  const length = 25;
  while (tokens().length < length) {
    // a text under a stop string ends right before it, even if that is within a token
    const out = await generate({ stop: WORDS, maxTokens: length - tokens().length, logprobs: false });
    if (out.finish !== "stop") return;
    // here the model wanted one of the words: it says something else, and is free again
    const one = await sample(OTHERS);
    if (endTokens().includes(one.token)) return;
  }
}
