/** A watermark: after each token, a key makes a share of all tokens likelier; a detector counts these.
 *
 * The same as green_list.py, which has the paper: both choose the same tokens.
 *
 * Prompt: Write about the sea.
 * Argument: {"key": 42, "share": 0.5, "bias": 2, "tokens": 200}
 */
import { TokenSet, arg, promptTokens, sample, setVar, tokens, vocabSize } from "aici";

const SIZE = vocabSize();
const SHARE = arg.share ?? 0.5;
const GREEN = Math.floor(SIZE * SHARE);

function mix(x) {
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}

const HASHES = Array.from({ length: SIZE }, (_, token) => mix(token ^ mix(arg.key)));
const RING = HASHES.map((_, token) => token).sort((a, b) => HASHES[a] - HASHES[b]);
const PLACE = new Array(SIZE);
RING.forEach((token, place) => (PLACE[token] = place));
RING.push(...RING.slice());
const TEXT = TokenSet.text();

const start = (last) => mix((last + mix(arg.key + 1)) >>> 0) % SIZE;
const isGreen = (last, token) => (PLACE[token] - start(last) + SIZE) % SIZE < GREEN;

function score(found) {
  const pairs = new Map(found.slice(1).map((token, at) => [`${found[at]} ${token}`, [found[at], token]]));
  const hits = [...pairs.values()].filter(([last, token]) => isGreen(last, token)).length;
  return (hits - SHARE * pairs.size) / Math.sqrt(Math.max(1, pairs.size) * SHARE * (1 - SHARE));
}

export async function main() {
  if (arg.detect) {
    setVar("z", score(promptTokens()).toFixed(2));
    return;
  }
  let last = promptTokens().at(-1);
  for (let count = 0; count < arg.tokens; count++) {
    const begin = start(last);
    const favoured = new TokenSet(RING.slice(begin, begin + GREEN));
    last = (await sample(TEXT, { favoured, bias: arg.bias })).token;
  }
  setVar("z", score(tokens()).toFixed(2));
}
