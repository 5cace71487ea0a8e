// NAME: the model writes without the letters of the argument ("e", if there is none).
//
// Try: aici run NAME.wasm --prompt "Tell me a story" --arg aeiou
import { ARG, MidResult, TokenSet, fail, log, readBytes, sample, tokenBytes, vocabulary } from "aici";

// What the host looks for in every controller.
export { aici_abi_v1, aici_arg } from "aici";

// What a sequence remembers lives in ordinary variables: every fork gets its own copy of the memory.
const allowed = new TokenSet();

/** Once per argument, before there is a prompt. Not 0 refuses the argument. */
export function aici_init(arg_len: u32): u32 {
  const letters = readBytes(ARG, arg_len);
  allowed.allowText();
  for (let token: u32 = 0; token < vocabulary().vocab_size; token++) {
    if (allowed.allows(token) && hasOneOf(tokenBytes(token), letters)) allowed.forbid(token);
  }
  if (allowed.count == 0) fail("no token is left without these letters");
  allowed.allowEos(); // the text may end anywhere
  log(`${allowed.count} of ${vocabulary().vocab_size} tokens are allowed`);
  return 0;
}

/** Once per token, while the model computes the logits for the next one. */
export function aici_mid_process(): MidResult {
  return sample(allowed);
}

function hasOneOf(text: StaticArray<u8>, letters: Uint8Array): bool {
  for (let i = 0; i < text.length; i++) {
    if (letters.length == 0 && lower(text[i]) == 0x65) return true; // e
    for (let k = 0; k < letters.length; k++) if (lower(text[i]) == lower(letters[k])) return true;
  }
  return false;
}

function lower(letter: u8): u8 {
  return letter >= 0x41 && letter <= 0x5a ? letter + 0x20 : letter;
}
