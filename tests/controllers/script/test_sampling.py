"""Options for sampling a token in scripts: biases, and what leaves out tokens."""

from __future__ import annotations

import math

import numpy as np

from aicirt.contract.abi import RowKind
from aicirt.contract.messages import Truncation
from tests.controllers.script.conftest import Pair, Play, check

#: a token's own bias, one for each token, an order of tokens, a forbidden token, and a pattern with each
GIVEN_BIASES: Pair = (
    "from aici import *\n"
    "a, b, c = tokenize('abc')\n"
    "each = [0.0] * vocab_size()\n"
    "each[c] = 999\n"
    "async def main():\n"
    "    await sample(biases={c: 9999})\n"
    "    await sample(TokenSet([a, b]), biases={c: 9999, b: 999})\n"
    "    await sample(biases=each)\n"
    "    await sample(favoured=TokenSet([a, b]), bias=500, biases={a: 490, c: 980})\n"
    "    await sample(TokenSet([a, b]), biases={a: float('-inf')})\n"
    "    await gen(regex='[ab]{2}', biases={b: 999, c: 9999})\n"
    "    await gen(choice=['aac', 'bbc'], favoured=TokenSet([b]), bias=999)\n"
    "    await gen(max_tokens=2, biases={c: 999})\n"
    "    await force('.')\n",
    'import { TokenSet, force, gen, sample, tokenize, vocabSize } from "aici";\n'
    "const [a, b, c] = tokenize('abc');\n"
    "const each = new Float32Array(vocabSize());\n"
    "each[c] = 999;\n"
    "export async function main() {\n"
    "  await sample(undefined, { biases: { [c]: 9999 } });\n"
    "  await sample(new TokenSet([a, b]), { biases: new Map([[c, 9999], [b, 999]]) });\n"
    "  await sample(undefined, { biases: each });\n"
    "  await sample(undefined, { favoured: new TokenSet([a, b]), bias: 500, "
    "biases: { [a]: 490, [c]: 980 } });\n"
    "  await sample(new TokenSet([a, b]), { biases: { [a]: -Infinity } });\n"
    "  await gen({ regex: '[ab]{2}', biases: { [b]: 999, [c]: 9999 } });\n"
    "  await gen({ choice: ['aac', 'bbc'], favoured: new TokenSet([b]), bias: 999 });\n"
    "  await gen({ maxTokens: 2, biases: { [c]: 9999 } });\n"
    "  force('.');\n}\n",
)


def test_biases_of_single_tokens_and_of_all_tokens(play: Play) -> None:
    transcript = check(play(GIVEN_BIASES, "aaaaaaaaaaaaaaa"))
    assert transcript.text == "cbcabbbbbccc."
    rows = [answer.row for answer in transcript.answers if answer.row is not None]
    kinds = [row.kind for row in rows]
    assert kinds[:6] == [RowKind.SPARSE] * 6, "a dense row is for many different biases alone"
    few = rows[4]
    assert few.tokens is not None and few.default == -math.inf and len(few.tokens) == 1


MANY_BIASES: Pair = (
    "from aici import *\n"
    "async def main():\n"
    "    await sample(TokenSet.text(), biases=[token % 7 - 3 for token in range(vocab_size())])\n",
    'import { TokenSet, sample, vocabSize } from "aici";\n'
    "export const main = async () =>\n"
    "  sample(TokenSet.text(), { biases: Array.from({ length: vocabSize() }, (_, t) => (t % 7) - 3) });\n",
)


def test_a_bias_for_each_token_of_a_set(play: Play) -> None:
    transcript = check(play(MANY_BIASES, "a", max_tokens=1))
    (row,) = (answer.row for answer in transcript.answers if answer.row is not None)
    assert row.kind == RowKind.DENSE and row.bias is not None
    text = [token for token, bias in enumerate(row.bias.tolist()) if bias == token % 7 - 3]
    forbidden = [token for token, bias in enumerate(row.bias.tolist()) if bias == -math.inf]
    assert sorted(text + forbidden) == list(range(len(row.bias))) and text and forbidden


OPTIONS: Pair = (
    "from aici import *\n"
    "async def main():\n"
    "    await sample(top_p=0.5, top_k=40, min_p=0.25, typical_p=0.75, top_n_sigma=1.5)\n"
    "    await sample(top_p=1, top_k=0, min_p=0, typical_p=1, top_n_sigma=0)\n"
    "    await sample(temperature=0.5)\n"
    "    await gen(regex='[0-9]', temperature=0.5, min_p=0.25)\n"
    "    await generate(max_tokens=1, top_n_sigma=1.5, top_logprobs=3)\n",
    'import { gen, generate, sample } from "aici";\n'
    "export async function main() {\n"
    "  await sample(undefined, { topP: 0.5, topK: 40, minP: 0.25, typicalP: 0.75, topNSigma: 1.5 });\n"
    "  await sample(undefined, { topP: 1, topK: 0, minP: 0, typicalP: 1, topNSigma: 0 });\n"
    "  await sample(undefined, { temperature: 0.5 });\n"
    "  await gen({ regex: '[0-9]', temperature: 0.5, minP: 0.25 });\n"
    "  await generate({ maxTokens: 1, topNSigma: 1.5, topLogprobs: 3 });\n}\n",
)


def test_options_that_leave_out_tokens(play: Play) -> None:
    transcript = check(play(OPTIONS, "abc1d"))
    rows = [answer.row for answer in transcript.answers if answer.row is not None]
    tiny, large = (float(np.float32(number)) for number in (1e-30, 1e30))
    assert [(row.temperature, row.truncation, row.top_logprobs) for row in rows] == [
        (None, Truncation(0.5, 40, 0.25, 0.75, 1.5), 0),
        (None, Truncation(1.0, 0xFFFFFFFF, tiny, 1.0, large), 0),
        (0.5, None, 0),
        (0.5, Truncation(min_p=0.25), 0),
        (None, Truncation(top_n_sigma=1.5), 3),
    ]


BAD_OPTIONS: Pair = (
    "from aici import *\n"
    "inf, nan = float('inf'), float('nan')\n"
    "async def main():\n"
    "    for how in (dict(top_p=0), dict(top_p=1.5), dict(typical_p=-1), dict(min_p=2), dict(top_k=-1),\n"
    "                dict(top_k=0.5), dict(top_n_sigma=inf), dict(min_p=nan), dict(temperature=-1),\n"
    "                dict(biases={9999999: 1}), dict(biases={-1: 1}), dict(biases={5: inf}),\n"
    "                dict(biases={5: nan}), dict(biases=[0.5]), dict(bias=inf), dict(biases=3),\n"
    "                dict(top=3)):\n"
    "        for action in (sample, gen):\n"
    "            try:\n"
    "                await action(**how)\n"
    "            except (ValueError, TypeError) as error:\n"
    "                if action is sample:\n"
    "                    print(str(error).split(':')[0].split(' ')[0], end=' ')\n"
    "            else:\n"
    "                fail('accepted')\n",
    'import { fail, gen, sample } from "aici";\n'
    "export async function main() {\n"
    "  for (const how of [{ topP: 0 }, { topP: 1.5 }, { typicalP: -1 }, { minP: 2 }, { topK: -1 },\n"
    "    { topK: 0.5 }, { topNSigma: Infinity }, { minP: NaN }, { temperature: -1 },\n"
    "    { biases: { 9999999: 1 } }, { biases: { '-1': 1 } }, { biases: { 5: Infinity } },\n"
    "    { biases: { 5: NaN } }, { biases: [0.5] }, { bias: Infinity }, { biases: 3 }, { top: 3 }])\n"
    "    for (const action of [(o) => sample(undefined, o), gen]) {\n"
    "      let wrong;\n"
    "      try { await action(how); } catch (error) { wrong = error; }\n"
    "      if (!(wrong instanceof RangeError || wrong instanceof TypeError)) fail('accepted ' + wrong);\n"
    "    }\n"
    "  console.log('all');\n}\n",
)


def test_bad_options_are_refused_where_they_are_awaited(play: Play) -> None:
    transcript = check(play(BAD_OPTIONS, "abc"))
    assert not transcript.text
    words = "top_p top_p typical_p min_p top_k top_k top_n_sigma an a biases biases biases biases biases a"
    assert transcript.log.strip() == "all" or transcript.log.startswith(words), transcript.log
