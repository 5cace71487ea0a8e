/** Map and reduce: forks summarize texts at the same time, then pairs of summaries, until one is left.
 *
 * No fork sees more than one text, or two summaries, so the whole may be longer than the model's context.
 * Published methods (LLMxMapReduce, arXiv 2410.09342) also pass on reasons and confidence, to settle
 * contradictions between texts.
 *
 * Prompt: What did the town decide?
 * Argument: ["The council met on Monday.", "The bridge is old.", "A new one is costly.", "They repair it."]
 */
import { arg, force, gather, gen, regex, setVar } from "aici";

const SENTENCE = regex(/ [A-Z][^\n.]{10,80}\./);

const summarize = (texts) => async () => {
  force(`Text:\n${texts.join("\n")}\nThe text in one sentence:`);
  return (await gen(SENTENCE)).trim();
};

export async function main() {
  let notes = await gather(arg.map((text) => summarize([text])));
  while (notes.length > 1) {
    console.log(notes.length, "notes");
    const pairs = notes.flatMap((_, at) => (at % 2 === 0 ? [notes.slice(at, at + 2)] : []));
    notes = await gather(pairs.map(summarize));
  }
  force(notes[0]);
  setVar("summary", notes[0]);
}
