"""JSON of models, and variables that have it: the same script in both languages has the same effect."""

from __future__ import annotations

import json

import pytest

from tests.controllers.script.conftest import Pair, Play, check, failed

ORDER: Pair = (
    """
import json
from aici import *
class Item:
    name = str
    count = int
    def twice(self):
        return 2 * self.count
class Order:
    items = [Item]
    kind = "sweet", "sour", None
    price = float
    paid = bool
async def main():
    order = await json(Order, max_tokens=200)
    print(order.items[0].name, order.items[0].twice(), order.kind or "-", order.price, order.paid + 0)
    Variable("order", Order).set(order)
    print(Variable("order", Order).get().items[0].twice(), len(json.dumps([1])))
""",
    """
import { json, Variable, Integer } from "aici";
class Item {
  name = String;
  count = Integer;
  twice() {
    return 2 * this.count;
  }
}
class Order {
  items = [Item];
  kind = new Set(["sweet", "sour", null]);
  price = Number;
  paid = Boolean;
}
export async function main() {
  const order = await json(Order, { maxTokens: 200 });
  console.log(order.items[0].name, order.items[0].twice(), order.kind ?? "-", order.price, +order.paid);
  new Variable("order", Order).set(order);
  console.log(new Variable("order", Order).get().items[0].twice(), 3);
}
""",
)


def test_json_of_a_class_and_a_variable_of_it(play: Play) -> None:
    wish = '{"items": [{"name": "x", "count": 4}], "kind": null, "price": 2.5, "paid": true}'
    transcript = check(play(ORDER, wish))
    assert transcript.log.splitlines() == ["x 8 - 2.5 1", "8 3"]
    assert json.loads(transcript.variables["order"]) == json.loads(wish)


def printed(python: str, javascript: str) -> Pair:
    """Returns scripts that generate JSON of a model and print it."""
    call = f"await json({javascript}, {{ maxTokens: 50 }})"
    return (
        "from aici import *\n"
        f"async def main():\n    print(json.dumps(await json({python}, max_tokens=50)))\n",
        'import { json, Integer } from "aici";\n'
        f"export async function main() {{ console.log(JSON.stringify({call})); }}\n",
    )


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        (printed("[int]", "[Integer]"), "[1, -2]"),
        (printed("(int, [str])", "new Set([Integer, [String]])"), '["a"]'),
        (printed('{"a": {"b": None}, "c": 7}', "{ a: { b: null }, c: 7 }"), '{"a": {"b": null}, "c": 7}'),
        (printed("float", "Number"), "2.5"),
        (printed("True", "true"), "true"),
    ],
)
def test_models_of_all_kinds(play: Play, pair: Pair, text: str) -> None:
    assert json.loads(check(play(pair, text)).log) == json.loads(text)


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (printed("[int, str]", "[Integer, String]"), "has one member, the model of each item"),
        (printed("gather", "Symbol()"), "this is no model"),
    ],
)
def test_what_is_no_model(play: Play, pair: Pair, words: str) -> None:
    assert words in failed(play, pair)


VOTES: Pair = (
    """
from aici import *
votes = Variable("votes", {"a": int})
async def main():
    print(votes.get("none"), votes.version)
    print(votes.set({"a": 1}, if_version=3), votes.set({"a": 1}), votes.set({"a": 2}, if_version=1))

    def change(found):
        if votes.version == 2:
            votes.set({"a": 40})  # as another fork might
        return {"a": found["a"] + 2}

    print(votes.update(change)["a"], votes.version)
    for wrong in ({"a": "x"}, {"a": True}, {"a": 1, "b": 2}, 5):
        try:
            votes.set(wrong)
        except TypeError:
            print("wrong")
    set_var("votes", '{"a": null}')
    try:
        votes.get()
    except TypeError:
        print("wrong")
""",
    """
import { Variable, Integer, setVar } from "aici";
const votes = new Variable("votes", { a: Integer });
export async function main() {
  console.log(votes.get("none"), votes.version);
  const set = (a, ifVersion) => votes.set({ a }, { ifVersion });
  console.log(set(1, 3), set(1), set(2, 1));
  const change = ({ a }) => {
    if (votes.version === 2) votes.set({ a: 40 }); // as another fork might
    return { a: a + 2 };
  };
  console.log(votes.update(change).a, votes.version);
  for (const wrong of [{ a: "x" }, { a: true }, { a: 1, b: 2 }, 5]) {
    try {
      votes.set(wrong);
    } catch (error) {
      console.log(error instanceof TypeError ? "wrong" : error);
    }
  }
  setVar("votes", '{"a": null}');
  try {
    votes.get();
  } catch (error) {
    console.log(error instanceof TypeError ? "wrong" : error);
  }
}
""",
)


def test_variables_with_json_values(play: Play) -> None:
    log = check(play(VOTES)).log
    assert log.splitlines() == ["none 0", "0 1 2", "42 4", *["wrong"] * 5]
