"""The module that scripts of the controller `pyctrl` import, for editors and type checkers.

A script defines `async def main()`, which awaits actions such as `gen`, or `mid_process(step)` and other
callbacks. Its top level runs once, before the prompt is known. docs/guide is the manual.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Literal, NoReturn, TypeVar

_T = TypeVar("_T")

#: how a generated text ended: nothing can follow in its pattern (`complete`); the model ended it, or
#: preferred a token that the pattern forbids (`eos`); at a stop string; at a limit of tokens or bytes
FinishReason = Literal["complete", "eos", "stop", "max_tokens", "max_bytes"]
#: the names that `capability` accepts
Capability = Literal[
    "fork",
    "backtrack",
    "ff_tokens",
    "suspend",
    "logprobs",
    "top_logprobs",
    "dense",
    "tokenizer",
    "max_forks",
    "hold_end",
    "calls",
    "look",
    "follow",
    "drafts",
]

#: the script's argument: a text, or any JSON value; None if there is none
arg: Any

class _Json:
    """Generates JSON of a model, and returns the value; `json.dumps` and `json.loads` are Python's.

        class Order:
            fruit = "apples", "pears"
            count = int

        order = await json(Order, temperature=0)
        await force(f" So {2 * order.count} halves of {order.fruit}.")

    A model is a class with the models of its members as attributes; or `int`, `float`, `str` or `bool`; a
    list of one model, that of each item; a dictionary of models by name; a tuple of models of which one
    applies; or a text, a number, a bool or None, which stands for itself. A class is called without
    arguments, and its methods are no members. The other arguments are those of `gen`, without a pattern.

    Raises TypeError if this is no model, and ValueError if a limit has cut the text.
    """

    def __call__(self, model: Any, **how: Any) -> Awaitable[Any]: ...
    @staticmethod
    def dumps(value: Any) -> str: ...
    @staticmethod
    def loads(text: str | bytes) -> Any: ...

json: _Json

class Error(Exception):
    """Raised for an invalid pattern, an invalid label, or an action that exceeds the engine's limits."""

# ---- forced and generated text

def force(text: str | bytes | list[int] | tuple[int, ...], *, after: Label | None = None) -> Awaitable[None]:
    """Appends a text, or tokens. The model reads them and does not generate them.

    With `after`, first removes everything after that label.

    End a forced text before a space, not after it. Most tokens that begin a word include the space before
    the word, so let the generated text begin with the space.

        await force("The answer is")
        number = await gen(regex=" [0-9]+")
    """

def user(text: str | bytes) -> Awaitable[None]:
    """Appends a user's message to the chat, as the model's chat template writes it.

    Ends the model's answer before, unless the model has ended it, and begins the next answer. A message that
    follows another one directly takes the place of this beginning. The text never becomes special tokens.

    Raises Error if the model has no chat template, if it cannot be continued or has no such message here, and
    if the prompt is not a chat.

        answer = await gen(max_tokens=100)
        await user("And tomorrow?")
        await gen(max_tokens=100)
    """

def system(text: str | bytes) -> Awaitable[None]:
    """Appends a system message, as `user` does. Many templates take one only at the beginning of a chat."""

def tool(name: str, result: Any) -> Awaitable[None]:
    """Appends the result of a tool, as `user` does: a text, or any other value as JSON.

    Results of several calls follow each other: await other actions before the first of them.
    """

def assistant() -> Awaitable[None]:
    """Ends the model's answer and begins another one. Writes nothing where an answer has just begun."""

def gen(
    pattern: Pattern | None = None,
    *,
    regex: str | re.Pattern[str] = ...,
    choice: Iterable[str] = ...,
    schema: dict[str, Any] | str | bool | Call = ...,
    substring: str = ...,
    kbnf: str = ...,
    lark: str = ...,
    gbnf: str = ...,
    yacc: str = ...,
    stop: str | Iterable[str] | None = None,
    include_stop: bool = False,
    max_tokens: int | None = None,
    max_bytes: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    typical_p: float | None = None,
    top_n_sigma: float | None = None,
    favoured: TokenSet | None = None,
    bias: float = 0,
    biases: dict[int, float] | Sequence[float] | None = None,
    prediction: str | bytes | Sequence[int] | None = None,
    store: str | None = None,
    leave: bool = True,
) -> Awaitable[str]:
    """Generates a text and returns it.

        name = await gen(regex="[A-Z][a-z]+", max_tokens=8)

    The text matches one pattern: an existing one (`pattern`), or one defined here (`regex`, `choice`, ...).
    Without a pattern, any text is allowed.

    The text ends where nothing can follow in the pattern, where the model ends it, at a `stop` string, or at
    a limit. Without a limit, a model that does not end its text writes until the request's own `max_tokens`.

    `stop`: the text ends before one of these strings, even within a token.
    `include_stop`: keeps the stop string at the end of the text.
    `max_tokens`: maximum number of tokens.
    `max_bytes`: maximum number of bytes. The text is never cut within a character.
    `temperature` and the options after it are those of `sample`; the pattern applies, too.
    `prediction`: an expected text or its tokens. The model reads several of them at once where the text
    follows it, which takes less time; the text is the same, right or wrong (see `capability("drafts")`).
    `store`: also sets the variable of this name to the text.
    `leave`: where the pattern may end, the text also ends if the model prefers a token that the pattern
    forbids. If False, only the model's end token ends the text early.

    Raises `Error` if the pattern is invalid, and TypeError or ValueError if another argument is.
    """

def generate(
    pattern: Pattern | None = None,
    *,
    regex: str | re.Pattern[str] = ...,
    choice: Iterable[str] = ...,
    schema: dict[str, Any] | str | bool | Call = ...,
    substring: str = ...,
    kbnf: str = ...,
    lark: str = ...,
    gbnf: str = ...,
    yacc: str = ...,
    stop: str | Iterable[str] | None = None,
    include_stop: bool = False,
    max_tokens: int | None = None,
    max_bytes: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    typical_p: float | None = None,
    top_n_sigma: float | None = None,
    favoured: TokenSet | None = None,
    bias: float = 0,
    biases: dict[int, float] | Sequence[float] | None = None,
    prediction: str | bytes | Sequence[int] | None = None,
    store: str | None = None,
    leave: bool = True,
    logprobs: bool = True,
    top_logprobs: int = 0,
) -> Awaitable[Generated]:
    """Generates a text as `gen` does, and returns it with its details.

    `logprobs`: whether to compute the probability of each token.
    `top_logprobs`: number of most likely tokens to list at each position.
    """

def sample(
    allowed: TokenSet | None = None,
    *,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    typical_p: float | None = None,
    top_n_sigma: float | None = None,
    favoured: TokenSet | None = None,
    bias: float = 0,
    biases: dict[int, float] | Sequence[float] | None = None,
    prediction: str | bytes | Sequence[int] | None = None,
    top_logprobs: int = 0,
) -> Awaitable[Token]:
    """Samples one token, from a set or from all tokens.

        one = await sample(TokenSet(tokenize("abc")), top_logprobs=1)

    An end token does not end the sequence here, unless `capability("hold_end")` is 0.

    `temperature`: 0 selects the most likely token.
    `top_p`: keeps the most likely tokens that together reach this probability; 1 keeps all.
    `top_k`: keeps so many most likely tokens; 0 keeps all.
    `min_p`: keeps tokens with this share of the largest probability; 0 keeps all.
    `typical_p`: like `top_p`, for the tokens whose surprise is nearest to its mean; 1 keeps all.
    `top_n_sigma`: keeps logits up to so many standard deviations below the largest; 0 keeps all.
    None is the request's own option. docs/abi.md defines these options and their order.
    `favoured`, `bias`: adds `bias` to the logits of these tokens; +0.7 doubles their odds against others.
    `biases`: adds to the logit of each token its own number, in a dictionary by token or in a list with one
    for each token of the vocabulary; -infinity forbids a token.
    `prediction`: the text or the tokens that are expected, from this token on; see `gen`.
    `top_logprobs`: number of most likely tokens to list. With 1 or more, the token's probability is known.

    Raises TypeError or ValueError if an option is invalid, and `Error` if there are biases and
    `capability("dense")` is 0.
    """

class Distribution:
    """The model's distribution of the next token: without any pattern or bias, at temperature 1."""

    #: the logits of all tokens, as the model has computed them; -inf for ids that are no tokens
    logits: memoryview

    def logprob(self, token: int) -> float:
        """Returns the natural logarithm of a token's probability."""
    def likely(self, count: int) -> list[tuple[int, float]]:
        """Returns the most likely tokens with their log-probabilities, most likely first."""
    def mass(self, tokens: TokenSet) -> float:
        """Returns the probability of a set of tokens."""
    @property
    def entropy(self) -> float:
        """The entropy of the distribution, in nats."""

def distribution(own: bool = False) -> Awaitable[Distribution]:
    """Looks at the distribution of the next token before it is sampled.

        seen = await distribution()
        await sample(temperature=0.5 if seen.entropy > 2 else 1)

    The text does not change, and the token that follows costs no further pass of the model. Each look makes
    the engine wait for the script once more, and costs a copy of all logits. `own`: the distribution of this
    sequence alone, without what `mix` adds.

    Raises `Error` if `capability("look")` is below 2. With 1, `likely` works.
    """

def likely(count: int, own: bool = False) -> Awaitable[list[tuple[int, float]]]:
    """Looks at the most likely next tokens before one is sampled, with their log-probabilities as in
    `Distribution`. At most `capability("top_logprobs")` of them.

    Raises `Error` if `capability("look")` is 0.
    """

class Generated:
    """A generated text with its details."""

    text: str
    finish_reason: FinishReason
    #: the details of each token
    details: list[Token]

    @property
    def tokens(self) -> list[int]: ...
    @property
    def logprob(self) -> float:
        """The natural logarithm of the text's probability: the sum of its tokens' known log-probabilities."""

class Token:
    """A sampled token."""

    token: int
    #: natural logarithm of the token's probability before any pattern applies, at the sampling temperature
    #: (1 for temperature 0); None if the token was forced, or if the value was not requested or is not
    #: available
    logprob: float | None
    #: total probability of all allowed tokens, at the same temperature; None in the same cases
    allowed_mass: float | None
    #: the most likely tokens with their log-probabilities, if `top_logprobs` requested them
    top_logprobs: list[tuple[int, float]]

# ---- labels and backtracking

class Label:
    """A position in the sequence, made by `label()`.

    A label inside removed text becomes invalid: using it raises `Error`.
    """

    @property
    def position(self) -> int:
        """The number of tokens before the label, including the prompt's."""
    @property
    def tokens(self) -> list[int]:
        """The tokens after the label."""
    @property
    def text(self) -> str:
        """The text after the label."""

def label() -> Label:
    """Returns a label at the current end of the sequence.

    Use it to read the text since then, or to remove it:

        here = label()
        await gen(max_tokens=5)
        print(here.text)  # the generated text
        await backtrack(here)  # removes it
    """

def backtrack(label: Label) -> Awaitable[None]:
    """Removes everything after the label; the model forgets it.

    Raises `Error` if the engine cannot backtrack: see `capability`.
    """

# ---- patterns

class Pattern:
    """A pattern that a generated text must match, made by `regex`, `choice`, `schema` and so on.

    Make patterns at the top level if possible: they are then compiled before any request, and all requests
    share them.
    """

    def __init__(self, kind: int, source: str) -> None: ...
    def follow(self) -> Constraint:
        """Returns a new constraint, which follows the pattern token by token."""

class Constraint:
    """Follows a pattern by hand. `gen` does this for you.

    Use a constraint with `sample`, in callbacks, or to combine patterns.
    """

    def __init__(self, pattern: Pattern) -> None: ...
    def append(self, tokens: str | bytes | list[int] | tuple[int, ...]) -> None:
        """Continues the text with these tokens. Raises `Error` if the pattern forbids them."""
    @property
    def ended(self) -> bool:
        """Whether an end token was appended, or the text of a `kbnf` pattern is complete.

        For other patterns, False does not mean that something can follow: see `allowed`.
        """
    @property
    def may_end(self) -> bool:
        """Whether the text is complete, so that it may end here."""
    def allowed(self) -> TokenSet:
        """Returns the tokens that may come next; an empty set where nothing can follow."""
    def forced(self) -> list[int]:
        """Returns the tokens that must come next, if they are certain; otherwise none."""
    def close(self) -> None:
        """Frees the constraint's memory. The constraint cannot be used afterwards."""

def regex(pattern: str | re.Pattern[str]) -> Pattern:
    """Returns a pattern for a regular expression, which the whole text matches. Syntax: docs/regex.md.

    `pattern`: a text, or an object that `re.compile` returned.
    """

def choice(texts: Iterable[str]) -> Pattern:
    """Returns a pattern for one of several texts."""

def schema(
    schema: dict[str, Any] | str | bool, whitespace: Literal["flexible", "compact", "spaced"] = "flexible"
) -> Pattern:
    """Returns a pattern for JSON that matches a schema. docs/json_schema.md describes what is enforced.

    `schema`: a dictionary or a bool, or its JSON.
    `whitespace`: "flexible" lets the model choose, "compact" has none, "spaced" has one space after each
    comma and colon.
    """

def substring(text: str, end: str | None = None) -> Pattern:
    """Returns a pattern for a quotation: any part of a text, word for word.

    `end`: a marker that the model writes after the part, and that ends the quotation.
    """

def kbnf(grammar: str) -> Pattern:
    """Returns a pattern for a grammar in KBNF: docs/grammars.md."""

def lark(grammar: str) -> Pattern:
    """Returns a pattern for a grammar in the syntax of Lark: docs/grammars.md."""

def gbnf(grammar: str) -> Pattern:
    """Returns a pattern for a grammar in GBNF, the syntax of llama.cpp: docs/grammars.md."""

def yacc(grammar: str) -> Pattern:
    """Returns a pattern for a grammar in the syntax of yacc: docs/grammars.md."""

# ---- forks and variables

def fork(count: int) -> Awaitable[int]:
    """Turns this sequence into `count` sequences; returns 0 in the first, 1 in the second, and so on.

    Each sequence has a copy of the script's whole state. Raises `Error` if the engine cannot fork, or not
    into so many sequences: see `capability`.
    """

async def retry(check: Callable[[], Awaitable[_T | Literal[False] | None]], attempts: int) -> _T:
    """Awaits `check()` until it returns something other than None or False, and returns that.

    Removes what `check` has written before each further attempt. Give it a temperature, or it may write the
    same again.

        async def write():
            line = await gen(max_tokens=20, temperature=0.8)
            return line if len(line.split()) == 7 else None

        line = await retry(write, attempts=5)

    Raises `Error` after the last attempt, whose text it has removed, or if the engine cannot backtrack; and
    ValueError if `attempts` is below 1.
    """

async def choose(texts: Sequence[str]) -> str:
    """Writes the most likely of several texts, and returns it.

    Compares the probabilities of whole texts, each in a fork: the products of those of its tokens, so a
    longer text of the same beginning is never more likely. `gen(choice=...)` decides token by token, in this
    sequence alone.

        mood = await choose([" good", " bad", " neither"])

    Raises `Error` if the engine cannot fork into so many sequences, and ValueError if there is no text.
    """

async def mix(function: Callable[[], Awaitable[Any]] | None, weight: float, model: str = "") -> None:
    """Adds the logits after another text to those of this sequence, times `weight`, from now on.

    `function` runs in a fork, where it writes the other text. The fork then gets every token of this
    sequence, ends with it, and costs as much as any sequence. The weights of all together are 1: this
    sequence has what the others leave. So with a weight of -0.5 its own is 1.5: tokens that are likely after
    both texts lose, and those that are likely after this one only win.

        await mix(without_the_document, weight=-0.5)
        await gen(max_tokens=100)

    `model`: a second model of the engine (`aici serve --second NAME=MODEL`), which reads the other text. With
    None in place of a function, it reads the text of this sequence:

        await mix(None, weight=-0.5, model="amateur")

    If the engine has no model of this name, this sequence ends with an error.

    Raises `Error` if `capability("follow")` is 0.
    """

async def gather(*functions: Callable[[], Awaitable[Any]] | Awaitable[Any]) -> list[Any]:
    """Runs each function in its own fork, all at the same time; returns their results.

    With actions and calls instead of functions, awaits all of them in this sequence:

        weather, text = await gather(call("weather", city="Oslo"), gen(max_tokens=20))

    The results are converted as JSON would convert them. The texts of the forks are discarded: the sequence
    continues from where `gather` was called.

    If the first function raises an exception, `gather` raises that exception. If another function does,
    `gather` raises `Error`.

        first, second = await gather(poem, story)
    """

def wait(*names: str) -> Awaitable[Any]:
    """Waits until these variables exist; returns a list of their values, or for one name its value.

    Waiting costs the engine nothing if it can suspend sequences: see `capability`.
    """

def sleep(seconds: float) -> Awaitable[None]:
    """Waits for so long."""

class CallError(Error):
    """A call has failed; docs/guide/script_calls.md lists the codes."""

    code: str

class Call:
    """A call under way, which `call` has made. Await it for the answer, also several times."""

    name: str

    @property
    def done(self) -> bool:
        """Whether the answer is there."""

    def __await__(self) -> Generator[Any, Any, Any]: ...
    async def wait(self, timeout: float | None = None) -> Any:
        """Waits for the answer, at most so many seconds; then raises `CallError`, and the call goes on."""

def receive() -> Call:
    """Waits for the next message to this run, which its `name` or `await call("aici.run")` identifies.

        while (question := await receive()) is not None: ...

    After a timeout of `receive().wait(2)`, `receive()` goes on waiting for the same message. Raises `Error`
    if the run has no name and may not make calls.
    """

def send(run: str, value: Any) -> Call:
    """Sends a message, a JSON value, to the run of the same user that has this name.

        await send("planner", {"done": True})

    Awaiting it raises `CallError`: `unknown_run` if there is no such run, `owner_limit` if too much waits.
    """

def call(*what: Any, **named: Any) -> Call:
    """Makes a call by its name, with named arguments or one value. It begins at once: await the answer.

        weather = await call("weather", city="Oslo")
        total = await call("add", [1, 2])

    Arguments and answer are JSON values. Awaiting it raises `CallError` if it has failed. Raises `Error` if
    nobody answers calls: see `capability`.
    """

def tool_arguments(name: str) -> Call:
    """Asks for the JSON schema of a call's arguments, which `gen` and `generate` take as `schema`.

        arguments = await gen(schema=tool_arguments("calc.add"))
        total = await call("calc.add", json.loads(arguments))

    Awaiting it returns the schema. If nobody answers this call, or it has no schema, awaiting it or the `gen`
    raises `CallError` with the code `unknown_call` or `no_schema`.
    """

def stop() -> NoReturn:
    """Ends this sequence; other forks continue. Returning from `main` does the same."""

def fail(message: str) -> NoReturn:
    """Ends this sequence with an error, which the caller receives."""

def next_step() -> Awaitable[None]:
    """Sends pending `force` and `backtrack` calls, and waits for the engine's next step. Rarely needed."""

def get_var(name: str, default: Any = None) -> Any:
    """Returns the value of a variable, a text; `default` if the variable does not exist.

    All forks of a request share its variables. The caller receives them with the result.
    """

def set_var(name: str, value: str | bytes, *, if_version: int | None = None) -> int:
    """Sets a variable; returns its new version.

    With `if_version`, sets the variable only if this is its current version (0: it does not exist yet).
    Otherwise returns 0 and changes nothing. So exactly one of several forks can claim a job.
    """

def append_var(name: str, value: str | bytes) -> int:
    """Appends to a variable, or creates it; returns its new version."""

def var_version(name: str) -> int:
    """Returns how often a variable has been written; 0 if it does not exist."""

class Variable:
    """A variable with a JSON value. Its model, if there is one, is as in `json`.

        votes = Variable("votes", {"yes": int, "no": int})
        votes.update(lambda found: {**found, "yes": found["yes"] + 1}, {"yes": 0, "no": 0})

    The caller receives JSON. Methods raise TypeError for a value that does not fit the model.
    """

    def __init__(self, name: str, model: Any = None) -> None: ...
    @property
    def version(self) -> int:
        """How often the variable has been written; 0 if it does not exist."""
    def get(self, default: Any = None) -> Any:
        """Returns the value; `default` if the variable does not exist."""
    def set(self, value: Any, *, if_version: int | None = None) -> int:
        """Sets the value; returns the new version. `if_version` is as in `set_var`."""
    def update(self, change: Callable[[Any], Any], default: Any = None) -> Any:
        """Sets the value to `change(value)`, again if another fork has written it meanwhile; returns it."""

# ---- the sequence

def prompt() -> str:
    """Returns the prompt as text."""

def prompt_tokens() -> list[int]: ...
def text() -> str:
    """Returns everything after the prompt as text, including forced text."""

def tokens() -> list[int]:
    """Returns everything after the prompt as tokens, including forced text."""

def capability(name: Capability) -> int:
    """Returns what the engine supports: a maximum for "top_logprobs" and "max_forks", otherwise 1 or 0.

    Raises ValueError if the name is unknown.
    """

# ---- tokens

class TokenSet:
    """A set of tokens, with one bit for each token.

    Use it to choose the tokens that may come next:

        vowels = TokenSet(tokenize("aeiou"))
        others = TokenSet.text() - vowels
    """

    def __init__(self, tokens: int | Iterable[int] | None = None) -> None: ...
    @staticmethod
    def all() -> TokenSet:
        """Returns the set of all tokens, including special tokens."""
    @staticmethod
    def text() -> TokenSet:
        """Returns the set of all text tokens: no special tokens, and so no end tokens."""
    def copy(self) -> TokenSet: ...
    def allow(self, tokens: int | Iterable[int]) -> None:
        """Adds a token, or several."""
    def forbid(self, tokens: int | Iterable[int]) -> None:
        """Removes a token, or several."""
    def __contains__(self, token: int) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def __or__(self, other: TokenSet) -> TokenSet: ...
    def __and__(self, other: TokenSet) -> TokenSet: ...
    def __sub__(self, other: TokenSet) -> TokenSet: ...

def tokenize(text: str | bytes) -> list[int]:
    """Returns the tokens of a text, from the model's tokenizer if `capability("tokenizer")` is 1."""

def detokenize(tokens: Iterable[int]) -> bytes:
    """Returns the bytes of tokens. A token may end within a character."""

def token_bytes(token: int) -> bytes:
    """Returns the bytes of a token; for a special token, its display name."""

def is_special(token: int) -> bool: ...
def vocab_size() -> int: ...
def eos_tokens() -> list[int]:
    """Returns the tokens with which the model ends its text."""

# ---- callbacks, for scripts without `main`

class Step:
    """The changes to this sequence since the last step; the argument of callbacks."""

    #: the number of this sequence
    sequence: int
    #: the number of the step, starting at 1
    number: int
    #: the tokens that were appended, after `backtrack` tokens were removed
    tokens: list[int]
    backtrack: int
    #: whether the first of `tokens` was sampled; False if this script appended them
    sampled: bool
    #: details of the sampled token, as in `Token`; None if they are unknown
    logprob: float | None
    allowed_mass: float | None
    top_logprobs: list[tuple[int, float]]
    #: right after a fork, the numbers of all sequences that it made, in order, including this one; otherwise
    #: only the number of this sequence
    fork_group: list[int]
    #: whether this call follows a `Look`: nothing has been sampled since
    looked: bool
    #: after `Look()`, the distribution of the next token
    distribution: Distribution | None

class Sample:
    """Answer of `mid_process`: samples one token, from a set or from all tokens."""

    def __init__(
        self,
        allowed: TokenSet | None = None,
        *,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        typical_p: float | None = None,
        top_n_sigma: float | None = None,
        favoured: TokenSet | None = None,
        bias: float = 0,
        biases: dict[int, float] | Sequence[float] | None = None,
        prediction: str | bytes | Sequence[int] | None = None,
        top_logprobs: int = 0,
    ) -> None:
        """Has the same arguments as `sample`."""

class Look:
    """Answer of `mid_process`: shows the distribution of the next token, and calls `mid_process` again.

    `top_logprobs`: only this number of most likely tokens, in `Step.top_logprobs`. 0: `Step.distribution`.
    """

    def __init__(self, top_logprobs: int = 0) -> None: ...

class Splice:
    """Answer of `mid_process`: removes tokens at the end, then appends tokens or a text."""

    tokens: str | bytes | list[int] | tuple[int, ...]
    backtrack: int
    def __init__(
        self, tokens: str | bytes | list[int] | tuple[int, ...] = (), *, backtrack: int = 0
    ) -> None: ...

class Stop:
    """Answer of any callback except `init_prompt`: ends the sequence."""

class Fork:
    """Answer of `pre_process`: turns this sequence into `count` sequences."""

    count: int
    def __init__(self, count: int) -> None: ...

class Suspend:
    """Answer of `pre_process`: sits out this step."""
