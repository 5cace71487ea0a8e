// Scripts in Python and JavaScript, as choices beside the controllers: each begins with one that works.

const PYTHON = `from aici import *


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

/** `language` is the server's word for it, `indent` what Tab writes, `interpreter` the controller that runs it. */
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

/** The server's word for the language of a file; undefined for one that is no script. */
export function languageOf(fileName) {
  const suffix = fileName.toLowerCase().match(/\.[a-z]+$/)?.[0];
  return SCRIPTS.find(({ suffixes }) => suffixes.includes(suffix))?.language;
}

/** The choices on a server with these bundled controllers: a language whose interpreter was not built has none. */
export function scriptChoices(bundled) {
  const built = new Set(bundled.map(({ name }) => name));
  return SCRIPTS.filter(({ interpreter }) => built.has(interpreter)).map((script) => ({
    // no tag has a space
    value: `script ${script.language}`, description: "a controller that is written here", takesArgument: true, ...script,
  }));
}
