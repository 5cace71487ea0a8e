/** Avoids certain words: as soon as one appears, the script removes it, and another word takes its place.
 *
 * Prompt: Describe a nice day at the beach.
 * Argument: ["sun", "beach", "sand", "water", "waves"]
 */
import { TokenSet, arg, eosTokens, generate, sample, tokenBytes, tokens, vocabSize } from "aici";

const WORDS = (arg ?? ["very", "really"]).map((word) => " " + word);

// All tokens except those with which one of the words begins. Checking the whole vocabulary takes a moment,
// but code at the top level runs once, for all requests.
const OTHERS = TokenSet.text();
OTHERS.allow(eosTokens());
for (let token = 0; token < vocabSize(); token++) {
  const piece = String.fromCharCode(...tokenBytes(token));
  if (piece && WORDS.some((word) => word.startsWith(piece) || piece.startsWith(word))) OTHERS.forbid(token);
}

export async function main() {
  const length = 25;
  while (tokens().length < length) {
    // a text with a stop string ends right before that string, even within a token
    const out = await generate({ stop: WORDS, maxTokens: length - tokens().length, logprobs: false });
    if (out.finishReason !== "stop") return;
    // here the model wanted one of the words: sample another token, then let the model continue
    const one = await sample(OTHERS);
    if (eosTokens().includes(one.token)) return;
  }
}
