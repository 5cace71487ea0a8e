/** Quotes from a document, word for word: nothing that is not in it can be written.
 *
 * Prompt: When did the bridge open, and who built it?
 * Argument: The old bridge was built by Anna Lind. It opened in 1932. Boats pass below it every day.
 */
import { argument, fixed, gen, label, substring } from "aici";

// The document is the script's argument, so it is read once for all requests about it. The quotation mark at
// the end means: the model may close the quotation wherever it likes.
const QUOTE = substring(argument, '"');

export async function main() {
  const start = label();
  // the model has to see the document, the reader does not
  fixed(`The document says: ${argument}\n\nThe part that answers the question: "`);
  const quotation = await gen(QUOTE, { maxTokens: 24 });
  fixed(`The document says: "${quotation}`, { after: start });
  if (!quotation.endsWith('"')) fixed('"');
}
