// NAME: a controller in JavaScript. It decides what the model writes, part by part.
import { argument, fixed, gen, options, regex, setVar } from "aici";

// The value of --arg, or two animals. Patterns at the top level are compiled before the first request.
const animals = options(argument ?? ["cat", "dog"]);
const nameOfAnimal = regex(/[A-Z][a-z]{1,10}/);

export async function main() {
  fixed("Once upon a time there was a ");
  const animal = await gen(animals);
  fixed(" called ");
  const name = await gen(nameOfAnimal);
  setVar("name", name);
  console.log(name, "is a", animal);
  fixed(". ");
  await gen({ stop: ".", includeStop: true, maxTokens: 40 });
}
