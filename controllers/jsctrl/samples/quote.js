/** Quotes from a document verbatim: only text that occurs in the document can be written.
 *
 * Prompt: When did the bridge open, and who built it?
 * Argument: The old bridge was built by Anna Lind. It opened in 1932. Boats pass below it every day.
 */
import { arg, force, gen, label, substring } from "aici";

// The document is the script's argument, so it is read once for all requests about it. The model may write
// the quotation mark, which ends the quotation, at any place.
const QUOTE = substring(arg, '"');

export async function main() {
  const start = label();
  // the model needs the document, but the user does not
  force(`The document says: ${arg}\n\nThe part that answers the question: "`);
  const quotation = await gen(QUOTE, { maxTokens: 24 });
  force(`The document says: "${quotation}`, { after: start });
  if (!quotation.endsWith('"')) force('"');
}
