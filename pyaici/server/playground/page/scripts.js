// Scripts in Python and JavaScript as entries of the list of controllers; each starts with a working example.

export const PYTHON = `from aici import *


async def main():
    await fixed(" was born in ")
    year = await gen(regex="1[0-9]{3}")
    await fixed(" and is known as ")
    work = await gen(options=argument or ["a mathematician", "a poet", "a painter"])
    set_var("work", work)
    print(year, work)
`;

const JAVASCRIPT = `import { argument, fixed, gen, setVar } from "aici";

export async function main() {
  await fixed(" was born in ");
  const year = await gen({ regex: /1[0-9]{3}/ });
  await fixed(" and is known as ");
  const work = await gen({ options: argument ?? ["a mathematician", "a poet", "a painter"] });
  setVar("work", work);
  console.log(year, work);
}
`;

/** `language` is the server's name of the language, `indent` is inserted by Tab, `interpreter` is the controller. */
const SCRIPTS = [
  {
    name: "Python script", language: "python", suffixes: [".py"],
    interpreter: "pyctrl", indent: "    ", example: PYTHON,
  },
  {
    name: "JavaScript script", language: "javascript", suffixes: [".js", ".mjs"],
    interpreter: "jsctrl", indent: "  ", example: JAVASCRIPT,
  },
];

/** Returns the server's name for the language of a file; undefined if the file is not a script. */
export function languageOf(fileName) {
  const suffix = fileName.toLowerCase().match(/\.[a-z]+$/)?.[0];
  return SCRIPTS.find(({ suffixes }) => suffixes.includes(suffix))?.language;
}

/** Returns the value of a language's entry in the list of controllers. */
export function scriptValue(language) {
  return `script ${language}`;
}

/** Returns the entries for these bundled controllers; a language whose interpreter was not built has none. */
export function scriptChoices(bundled) {
  const built = new Set(bundled.map(({ name }) => name));
  return SCRIPTS.filter(({ interpreter }) => built.has(interpreter)).map((script) => ({
    // no tag has a space
    value: scriptValue(script.language), description: "a controller that you write here", takesArgument: true, ...script,
  }));
}
