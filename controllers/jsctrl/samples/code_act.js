/** Acts by code (CodeAct): a tool runs the model's function against checks, and errors come back.
 *
 * The published method (arXiv 2402.01030) lets the code call the tools, keeps the state of its interpreter
 * from one turn to the next, and trains the model for it. Here each attempt is a program of its own, and
 * checks decide.
 *
 * Prompt: Write a Python function double(n) that returns twice the number n.
 * Argument: assert [double(n) for n in (0, 1, 4)] == [0, 2, 8]
 */
import { CallError, arg, call, force, gen, regex, setVar } from "aici";

// The pattern limits the code to arithmetic, so the tool may run whatever the model writes, for a short
// time. The code may still be wrong, and it need not be valid Python.
const BODY = regex(/ [n0-9+*() -]{1,20}/);

export async function main() {
  for (let attempt = 1; attempt <= 4; attempt++) {
    force("```python\ndef double(n):\n    return");
    // a higher temperature each time, so that the model does not write the same again
    const body = await gen(BODY, { temperature: 0.3 * attempt });
    const code = `def double(n):\n    return${body}\n`;
    force("\n```\n");
    try {
      await call("tools.run", { code: code + arg });
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      // the model reads its error before it tries again
      force(`Error: ${error.message}\n`);
      continue;
    }
    force("All checks pass.");
    setVar("code", code);
    setVar("attempts", attempt);
    return;
  }
  force("I give up.");
}
