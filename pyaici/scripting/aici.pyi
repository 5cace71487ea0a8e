"""The module that scripts of the controller `pyctrl` import, for editors and type checkers.

A script is `async def main()`, which awaits what the functions below begin, or a function `mid_process(step)`
and other callbacks. Its top level runs once, before there is a prompt. docs/guide is the manual.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Literal, NoReturn

#: how a text ended: nothing can follow in its pattern; by the model; at a stop string; at a limit
Finish = Literal["complete", "end", "stop", "max_tokens", "max_bytes"]
#: what the engine may be able to do: see `capability`
Capability = Literal[
    "fork",
    "backtrack",
    "ff_tokens",
    "suspend",
    "logprobs",
    "top_k",
    "dense",
    "tokenizer",
    "max_forks",
    "hold_end",
]

#: The script's own argument: what was given beside it, a text or any value of JSON; None if nothing was.
argument: Any

class Error(Exception):
    """What the core refuses: a pattern that is none, a label that was taken back, an engine's limits."""

# ---- texts: fixed ones and generated ones

def fixed(text: str | bytes | list[int] | tuple[int, ...], *, after: Label | None = None) -> Awaitable[None]:
    """Appends a text, or tokens. The model reads it and spends no time on writing it.

    With `after`, all that came after that label is taken back first.

    End a fixed text before a blank, not after it: most tokens of models begin with their blank, so let
    the generated text begin with it.

        await fixed("The answer is")
        number = await gen(regex=" [0-9]+")
    """

def gen(
    pattern: Pattern | None = None,
    *,
    regex: str = ...,
    options: Iterable[str] = ...,
    schema: dict[str, Any] | str | bool = ...,
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
    store: str | None = None,
    leave: bool = True,
) -> Awaitable[str]:
    """Lets the model write; returns the text.

        name = await gen(regex="[A-Z][a-z]+", max_tokens=8)

    The text follows one pattern, which was made before (`pattern`) or is named here (`regex`, `options`...);
    without any it is free. It ends where the pattern is complete, where the model ends it, before a `stop`
    string (after it with `include_stop`), even within a token, or at a limit. Without limit and end it goes
    on until the request's own `max_tokens`.

    `temperature`: 0 takes the most likely token; None is the request's own.
    `store`: also sets the variable of that name.
    `leave`: where the pattern may end, the text also ends if the model would rather write something that the
    pattern does not allow. With False, only the model's end token ends it early.
    Raises `Error` for a pattern that is none, TypeError and ValueError for other arguments.
    """

def generate(
    pattern: Pattern | None = None,
    *,
    regex: str = ...,
    options: Iterable[str] = ...,
    schema: dict[str, Any] | str | bool = ...,
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
    store: str | None = None,
    leave: bool = True,
    logprobs: bool = True,
    top: int = 0,
) -> Awaitable[Generated]:
    """`gen` that returns all that is known of the text: see `Generated`.

    `logprobs`: have the engine find the probability of each token. `top`: list so many likeliest tokens at
    each place, too.
    """

def sample(
    allowed: TokenSet | None = None, *, temperature: float | None = None, top: int = 0
) -> Awaitable[Token]:
    """One token out of a set, or any; it may be an end token, which ends nothing here.

        one = await sample(TokenSet(tokenize("abc")), top=1)

    `top`: list so many likeliest tokens, too. With 1 or more the token's probability is known.
    """

class Generated:
    """A generated text, with what is known of it."""

    text: str
    finish: Finish
    #: one for each token
    details: list[Token]

    @property
    def tokens(self) -> list[int]: ...
    @property
    def logprob(self) -> float:
        """The sum over its tokens: how likely the model finds the text, as a natural logarithm."""

class Token:
    """One token that was sampled."""

    token: int
    #: natural logarithm of its probability before any pattern, at the sampling's temperature (1 if it is 0);
    #: None: nothing else was possible, or nobody asked
    logprob: float | Any
    #: the probability of all tokens together that were allowed, likewise
    allowed_mass: float | Any
    #: the likeliest tokens with their log-probabilities, if `top` asked for them
    top: list[tuple[int, float]]

# ---- labels: going back

class Label:
    """A place in the sequence. `label()` makes it."""

    @property
    def position(self) -> int:
        """How many tokens are before it, the prompt's too. Raises `Error` if it was taken back itself."""
    @property
    def tokens(self) -> list[int]:
        """What came after it."""
    @property
    def text(self) -> str:
        """What came after it."""

def label() -> Label:
    """Marks the present end of the text.

    here = label()
    await gen(max_tokens=5)
    print(here.text)  # what came since
    await rewind(here)  # as if it had never been
    """

def rewind(label: Label) -> Awaitable[None]:
    """Takes back all that came after the label; the model forgets it."""

# ---- patterns

class Pattern:
    """What a generated text has to be like: made by `regex`, `options`, `schema` and so on.

    Make it at the top level if you can: it is then compiled before any request, and once for all of them.
    """

    def __init__(self, kind: int, source: str) -> None: ...
    def follow(self) -> Constraint:
        """A constraint of your own that follows a text token by token."""

class Constraint:
    """Follows a text by hand. `gen` does this for you; use it with `sample`, or to combine patterns."""

    def __init__(self, pattern: Pattern) -> None: ...
    def append(self, tokens: str | bytes | list[int] | tuple[int, ...]) -> None:
        """The text goes on so. Raises `Error` where the pattern does not allow it."""
    @property
    def ended(self) -> bool:
        """Can nothing follow?"""
    @property
    def may_end(self) -> bool:
        """Is the text a whole one?"""
    def allowed(self) -> TokenSet:
        """The tokens that may come next."""
    def forced(self) -> list[int]:
        """The tokens that have to come next, if they are certain; else empty."""
    def close(self) -> None:
        """Gives its memory back."""

def regex(pattern: str) -> Pattern:
    """A regular expression, for the whole text: docs/regex.md has its syntax."""

def options(texts: Iterable[str]) -> Pattern:
    """One of some texts."""

def schema(
    schema: dict[str, Any] | str | bool, whitespace: Literal["flexible", "compact", "spaced"] = "flexible"
) -> Pattern:
    """JSON of a schema, a dictionary or its JSON. `whitespace`: as the model likes, none, or one blank after
    each comma and colon. docs/json_schema.md says what is enforced."""

def substring(text: str, end: str | None = None) -> Pattern:
    """A quotation: any part of a text; with `end`, that follows it, for the model to say that it is over."""

def kbnf(grammar: str) -> Pattern:
    """A grammar in KBNF: docs/grammars.md."""

def lark(grammar: str) -> Pattern:
    """A grammar in the syntax of Lark: docs/grammars.md."""

def gbnf(grammar: str) -> Pattern:
    """A grammar in GBNF, as llama.cpp has it: docs/grammars.md."""

def yacc(grammar: str) -> Pattern:
    """A grammar in the syntax of yacc: docs/grammars.md."""

# ---- forks, and what they tell each other

def fork(count: int) -> Awaitable[int]:
    """Makes `count` sequences of this one; returns 0 in the first, 1 in the second, and so on.

    All of the script's state is copied. Raises `Error` if the engine cannot: see `capability`.
    """

async def gather(*functions: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Runs each function in a fork of its own, all at the same time; returns what they returned.

    What they return goes through JSON. Their texts are gone afterwards: the text goes on from where `gather`
    was called. Raises `Error` if one of them fails.

        first, second = await gather(poem, story)
    """

def wait(*names: str) -> Awaitable[Any]:
    """Waits until these variables exist, which costs the engine nothing; returns their values, or the one."""

def stop() -> NoReturn:
    """Ends this sequence; of forks, this one alone. To return from `main` does the same."""

def fail(message: str) -> NoReturn:
    """Ends this sequence with an error, which its caller gets."""

def next_step() -> Awaitable[None]:
    """Brings what was fixed into the sequence now, and waits for the engine's next step: seldom needed."""

def get_var(name: str, default: Any = None) -> Any:
    """The value of a variable, a text; `default` if there is none.

    Variables belong to a request: all its forks have the same, and the caller gets them with the result.
    """

def set_var(name: str, value: str | bytes, *, if_version: int | None = None) -> int:
    """Sets a variable; returns its new version.

    With `if_version`, only if its version is still this (0: it is not there yet); otherwise it returns 0
    and nothing has changed. So exactly one of several forks takes something on itself.
    """

def append_var(name: str, value: str | bytes) -> int:
    """Appends to a variable, or makes it; returns its new version."""

def var_version(name: str) -> int:
    """How often a variable has been written; 0: never."""

# ---- what there is so far

def prompt() -> str:
    """The prompt, as text."""

def prompt_tokens() -> list[int]: ...
def text() -> str:
    """All that came after the prompt, what was fixed included."""

def tokens() -> list[int]:
    """All that came after the prompt, as tokens."""

def capability(name: Capability) -> int:
    """What the engine can do: 0 is no. Raises ValueError for a name that is none."""

# ---- tokens

class TokenSet:
    """A set of tokens, one bit each: to say which may come.

    vowels = TokenSet(tokenize("aeiou"))
    others = TokenSet.text() - vowels
    """

    def __init__(self, tokens: int | Iterable[int] | None = None) -> None: ...
    @staticmethod
    def all() -> TokenSet:
        """Every token, special ones too."""
    @staticmethod
    def text() -> TokenSet:
        """Every token that is text: no special ones, so none that ends the text."""
    def copy(self) -> TokenSet: ...
    def allow(self, tokens: int | Iterable[int]) -> None:
        """Puts a token in, or several."""
    def forbid(self, tokens: int | Iterable[int]) -> None:
        """Takes a token out, or several."""
    def __contains__(self, token: int) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def __or__(self, other: TokenSet) -> TokenSet: ...
    def __and__(self, other: TokenSet) -> TokenSet: ...
    def __sub__(self, other: TokenSet) -> TokenSet: ...

def tokenize(text: str | bytes) -> list[int]:
    """The tokens that the model's tokenizer makes of a text."""

def detokenize(tokens: Iterable[int]) -> bytes:
    """The bytes that tokens stand for: a token may end within a character."""

def token_bytes(token: int) -> bytes:
    """The bytes of one token; none for a special one."""

def is_special(token: int) -> bool: ...
def vocab_size() -> int: ...
def end_tokens() -> list[int]:
    """The tokens with which the model ends its text."""

# ---- callbacks: scripts without `main`

class Step:
    """What has happened to this sequence since the last step: the argument of callbacks."""

    #: the number of this sequence
    sequence: int
    #: the number of the step, from 1
    number: int
    #: what was appended, after `backtrack` tokens were taken back
    tokens: list[int]
    backtrack: int
    #: was it sampled (or given by this script)?
    sampled: bool
    #: of what was sampled, as in `Token`; None if they are not known
    logprob: float | Any
    allowed_mass: float | Any
    top: list[tuple[int, float]]
    #: right after a fork, the numbers of all that it made, in order; this one is among them
    fork_group: list[int]

class Sample:
    """Answer of `mid_process`: sample one token, out of a set or any."""

    allowed: TokenSet | None
    temperature: float | None
    top: int
    def __init__(
        self, allowed: TokenSet | None = None, *, temperature: float | None = None, top: int = 0
    ) -> None: ...

class Splice:
    """Answer of `mid_process`: take some tokens back, and append others (or a text)."""

    tokens: str | bytes | list[int] | tuple[int, ...]
    backtrack: int
    def __init__(
        self, tokens: str | bytes | list[int] | tuple[int, ...] = (), *, backtrack: int = 0
    ) -> None: ...

class Stop:
    """Answer of any callback but `init_prompt`: the sequence is over."""

class Fork:
    """Answer of `pre_process`: go on as so many sequences."""

    count: int
    def __init__(self, count: int) -> None: ...

class Suspend:
    """Answer of `pre_process`: sit this step out."""
