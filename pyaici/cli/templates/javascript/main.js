// NAME: a controller in JavaScript. It decides what the model writes, part by part.
import { arg, choice, force, gen, regex, setVar } from "aici";

// The value of --arg, or two animals. Patterns at the top level are compiled before the first request.
const animals = choice(arg ?? ["cat", "dog"]);
const nameOfAnimal = regex(/[A-Z][a-z]{1,10}/);

export async function main() {
  force("Once upon a time there was a ");
  const animal = await gen(animals);
  force(" called ");
  const name = await gen(nameOfAnimal);
  setVar("name", name);
  console.log(name, "is a", animal);
  force(". ");
  await gen({ stop: ".", includeStop: true, maxTokens: 40 });
}
