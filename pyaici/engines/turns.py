"""Finds what a model's chat template writes between messages, so that a chat can grow inside a run.

The template is rendered with marker texts as contents, and the result is tokenized as a prompt is. What lies
between two markers is the piece between these messages. Chats that are composed of the pieces must then equal
what the template writes for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pyaici.engines.prompts import chat_text, template_of
from pyaici.tokens.turns import Form, Item, Role, Turns

if TYPE_CHECKING:
    from pyaici.tokens import Vocabulary

#: markers: contents by role, and parts of a call. Some templates take only ids of nine letters and digits
_CONTENTS = {Role.USER: "qvuser", Role.SYSTEM: "qvsystem", Role.TOOL: "qvresult", Role.ASSISTANT: "qvanswer"}
_NAME, _VALUE, _ID, _THOUGHT = "qvname", "qvvalue", "qvidqvid9", "qvthought"
#: what a template may strip from contents or write in another way, before and after a marker
_EDGES = (' "', '"\\\n<&> ')
_FORMS = (Form.AS_IS, Form.STRIP_START | Form.STRIP_END, Form.STRIP_START, Form.STRIP_END, Form.JSON)
#: chats that are compared with the template, where it has all their pieces
_CHATS = ("UAU", "UAUAUAU")
_REPEATED = ("UAUUU", "UAUUAU")
_CHATS_OF = {Role.SYSTEM: ("UASUAU",), Role.TOOL: ("UATAU", "UATTTAU", "UATUAU", "UATATU")}
_LETTERS = dict(zip("USTA", Role, strict=True))
#: how the answer before a tool's result has its call: arguments as an object or as text, or no call
_Calls = Literal["object", "text", "none"]


@dataclass(frozen=True)
class TemplateTurns:
    """The pieces of a template, and what it does to a chat that grows."""

    turns: Turns
    #: What the template would write differently once later messages follow, while a chat that grows keeps it:
    #: "reasoning" of earlier answers, which it removes; "opening": it begins earlier answers in another way
    #: than a new one; "system": it moves the system prompt.
    changes: frozenset[str] = frozenset()


class _CutError(Exception):
    """The template cannot be cut into pieces; the message says why."""


def with_turns(vocabulary: Vocabulary, tokenizer: Any) -> Vocabulary:
    """Returns the vocabulary with what the chat template of its tokenizer writes between messages.

    It stays as it is if it has turns, or the tokenizer no template.
    """
    if vocabulary.turns or not template_of(tokenizer):
        return vocabulary
    return replace(vocabulary, turns=template_turns(tokenizer, vocabulary).turns.to_bytes())


def template_turns(tokenizer: Any, vocabulary: Vocabulary) -> TemplateTurns:
    """Returns the pieces of a tokenizer's chat template; without pieces, `Turns.problem` says why.

    `tokenizer`: has a template. Renders some forty short chats. The pieces have the tokens with which prompts
    are encoded.
    """
    try:
        return _Template(tokenizer, vocabulary).find()
    except _CutError as error:
        return TemplateTurns(Turns(problem=str(error)))
    except ModuleNotFoundError as error:
        return TemplateTurns(Turns(problem=f"the engine cannot read the model's chat template: {error}"))


def formed(content: str, form: Form) -> str:
    """Returns a content as a template with this form writes it."""
    if form & Form.JSON:
        return json.dumps(content, ensure_ascii=False)[1:-1]
    content = content.lstrip() if form & Form.STRIP_START else content
    return content.rstrip() if form & Form.STRIP_END else content


class _Template:
    def __init__(self, tokenizer: Any, vocabulary: Vocabulary) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._marks = vocabulary.text_marks
        self._pieces: dict[tuple[Role, Role], list[Item]] = {}
        self._forms: dict[Role, Form] = {}
        self._changes: set[str] = set()

    def find(self) -> TemplateTurns:
        """Returns the pieces. Raises _CutError."""
        for before in (Role.ASSISTANT, Role.USER, Role.SYSTEM, Role.TOOL):
            for after in Role:
                if (piece := self._piece(before, after)) is not None:
                    self._pieces[before, after] = piece
        if not {(Role.USER, Role.ASSISTANT), (Role.ASSISTANT, Role.USER)} <= self._pieces.keys():
            raise _CutError("the model's chat template does not write each message once, in order")
        for role in (Role.USER, Role.SYSTEM, Role.TOOL):
            self._find_form(role)
        self._verify()
        tokens = {item for piece in self._pieces.values() for item in piece if isinstance(item, int)}
        turns = Turns(self._pieces, self._forms, sorted(tokens & self._marks))
        return TemplateTurns(turns, frozenset(self._changes))

    def _piece(self, before: Role, after: Role) -> list[Item] | None:
        """Returns what the template writes between two messages; None if it writes no such messages."""
        start = [Role.USER, Role.ASSISTANT] + [before] * (before is not Role.ASSISTANT)
        # between two answers; a template may refuse a chat that ends with one
        more = [Role.USER] if before is after is Role.ASSISTANT else []
        roles = start if after is Role.ASSISTANT and not more else [*start, after, *more]
        for calls in _ways(roles):
            shown = self._render(_chat(roles, calls))
            if shown is None:
                continue
            if calls != "none" and (before, after) == (Role.ASSISTANT, Role.TOOL):
                rest = self._after_call(shown, len(start) - 1)
            else:
                rest = _after(shown, _content(before, len(start) - 1))
            if rest is not None and len(roles) > len(start):
                rest = _before(rest, _content(after, len(start)))
            if rest is not None and not _has(rest, _ID, *_CONTENTS.values()):
                return list(_with_names(rest))
        return None

    def _after_call(self, shown: Sequence[Item], number: int) -> list[Item] | None:
        """Returns what follows a call, which the model itself writes: from the token that ends it on."""
        rest = _after(shown, _value(number)) or []
        ends = {*self._vocabulary.eos, *self._pieces.get((Role.ASSISTANT, Role.USER), [])[:1]}
        found = (at for at, item in enumerate(rest) if isinstance(item, int) and item in ends)
        return None if (at := next(found, None)) is None else rest[at:]

    def _render(self, chat: list[dict[str, Any]]) -> list[Item] | None:
        """Returns a chat up to where a new answer begins; None if the template refuses it.

        Control tokens and the texts between them are one item each.
        """
        try:
            text = chat_text(self._tokenizer, chat)
        except ValueError:
            return None
        found: list[Item] = []
        try:
            for token in self._tokenizer.encode(text, add_special_tokens=False):
                control = token in self._vocabulary.special or token in self._marks
                _append(found, int(token) if control else self._vocabulary.token_bytes(token))
        except IndexError:
            raise _CutError("the tokenizer has other tokens than the model's vocabulary") from None
        return found

    def _find_form(self, role: Role) -> None:
        """Finds what the template does to contents; drops the role's pieces if it is something unknown."""
        if not {(Role.ASSISTANT, role), (role, Role.ASSISTANT)} <= self._pieces.keys():
            self._drop_role(role)
            return
        roles = [Role.USER, Role.ASSISTANT, role]
        content = _content(role, 2).join(_EDGES)
        for calls in _ways(roles):
            chat = _chat(roles, calls)
            chat[-1]["content"] = content
            shown = self._render(chat)
            for form in _FORMS:
                items = list(_filled(self._pieces[Role.ASSISTANT, role]))
                for item in (formed(content, form).encode(), *self._pieces[role, Role.ASSISTANT]):
                    _append(items, item)
                if shown is not None and _ends_with(shown, items):
                    self._forms[role] = form
                    return
        if role is Role.USER:
            raise _CutError("the model's chat template changes the contents of messages")
        self._drop_role(role)

    def _drop_role(self, role: Role) -> None:
        self._pieces = {pair: piece for pair, piece in self._pieces.items() if role not in pair}
        self._forms.pop(role, None)

    def _verify(self) -> None:
        """Compares chats with what the template writes, and finds what it changes. Raises _CutError.

        Drops the pieces of a role that the template does not write in the same way each time.
        """
        if not all(map(self._agrees, _CHATS)):
            raise _CutError(
                "the model's chat template writes earlier messages differently when later ones follow"
            )
        if not all(map(self._agrees, _REPEATED)):
            del self._pieces[Role.USER, Role.USER]
        for role, chats in _CHATS_OF.items():
            if not all(map(self._agrees, chats)):
                self._drop_role(role)
        if not self._agrees("SUAUAU"):
            self._changes.add("system")
        chat = _chat([Role.USER, Role.ASSISTANT, Role.USER], "none")
        chat[1]["content"] = f"<think>\n{_THOUGHT}\n</think>\n\n{chat[1]['content']}"
        shown = self._render(chat)
        if shown is None or not _has(shown, _THOUGHT):
            self._changes.add("reasoning")

    def _agrees(self, letters: str) -> bool:
        """Returns whether the template writes a chat as its pieces do, up to how earlier answers begin.

        True as well if there are not all pieces, or the template refuses the chat.
        """
        roles = [_LETTERS[letter] for letter in letters]
        pairs = list(zip(roles, [*roles[1:], Role.ASSISTANT], strict=True))
        first = int(roles[0] is Role.SYSTEM)
        if any(pair not in self._pieces for pair in pairs[first:]):
            return True
        chats = [_chat(roles, calls) for calls in _ways(roles)]
        shown = [(chat, items) for chat in chats if (items := self._render(chat)) is not None]
        return not shown or any(self._equal(chat, first, items, pairs) for chat, items in shown)

    def _equal(
        self,
        chat: Sequence[dict[str, Any]],
        first: int,
        shown: list[Item],
        pairs: Sequence[tuple[Role, Role]],
    ) -> bool:
        for number, message in list(enumerate(chat))[first:]:
            calls = "tool_calls" in message
            rest = self._after_call(shown, number) if calls else _after(shown, message["content"])
            last = number + 1 == len(chat)
            if rest is None or not (last or self._same_piece(pairs[number], rest, chat[number + 1])):
                return False
            shown = rest
        return shown == _filled(self._pieces[pairs[-1]])

    def _same_piece(self, pair: tuple[Role, Role], rest: Sequence[Item], after: dict[str, Any]) -> bool:
        """Returns whether `rest` begins with a piece before the message `after`."""
        piece, shown = _filled(self._pieces[pair]), _before(rest, after["content"])
        if shown == piece or "tool_calls" in after:  # its content may be left out
            return True
        if shown is None or pair[1] is not Role.ASSISTANT:
            return False
        if _begins_with(shown, piece):  # the model writes the rest itself
            return True
        self._changes.add("opening")
        return _begins_with(piece, shown)


def _ways(roles: Sequence[Role]) -> tuple[_Calls, ...]:
    return ("object", "text", "none") if Role.TOOL in roles else ("none",)


def _content(role: Role, number: int) -> str:
    """Returns the marker that is the content of a chat's message."""
    return f"{_CONTENTS[role]}{number}q"


def _value(number: int) -> str:
    """Returns the marker that is the argument of the call in a chat's message."""
    return f"{_VALUE}{number}q"


def _chat(roles: Sequence[Role], calls: _Calls) -> list[dict[str, Any]]:
    """Returns a chat with markers as contents; the answer before a tool's result calls the tool."""
    chat: list[dict[str, Any]] = []
    for number, (role, after) in enumerate(zip(roles, [*roles[1:], None], strict=True)):
        message: dict[str, Any] = {"role": role.name.lower(), "content": _content(role, number)}
        if role is Role.TOOL:
            message |= {"name": _NAME, "tool_call_id": _ID}
        elif role is Role.ASSISTANT and after is Role.TOOL and calls != "none":
            arguments: Any = {"qvkey": _value(number)}
            function = {"name": _NAME, "arguments": arguments if calls == "object" else json.dumps(arguments)}
            message["tool_calls"] = [{"id": _ID, "type": "function", "function": function}]
        chat.append(message)
    return chat


# -- items ------------------------------------------------------------------------------------------------


def _append(items: list[Item], item: Item) -> None:
    """Appends an item; adjacent texts become one."""
    if isinstance(item, bytes) and items and isinstance(items[-1], bytes):
        items[-1] += item
    elif item != b"":
        items.append(item)


def _find(items: Sequence[Item], marker: str) -> tuple[int, bytes, bytes] | None:
    """Returns where a marker is that occurs once: the item's number, the text before and after it."""
    found = [
        (at, *item.split(marker.encode()))
        for at, item in enumerate(items)
        if isinstance(item, bytes) and marker.encode() in item
    ]
    return found[0] if len(found) == 1 and len(found[0]) == 3 else None  # type: ignore[return-value]


def _after(items: Sequence[Item], marker: str) -> list[Item] | None:
    """Returns what follows a marker; None if it does not occur once."""
    if (found := _find(items, marker)) is None:
        return None
    at, _, rest = found
    return [*([rest] if rest else []), *items[at + 1 :]]


def _before(items: Sequence[Item], marker: str) -> list[Item] | None:
    """Returns what is before a marker; None if it does not occur once."""
    if (found := _find(items, marker)) is None:
        return None
    at, start, _ = found
    return [*items[:at], *([start] if start else [])]


def _has(items: Sequence[Item], *markers: str) -> bool:
    return any(marker.encode() in item for item in items if isinstance(item, bytes) for marker in markers)


def _with_names(items: Sequence[Item]) -> Iterator[Item]:
    """Yields the items with None for the tool's name."""
    for item in items:
        texts = item.split(_NAME.encode()) if isinstance(item, bytes) else []
        if not texts:
            yield item
        for number, text in enumerate(texts):
            if number:
                yield None
            if text:
                yield text


def _filled(piece: Sequence[Item]) -> list[Item]:
    """Returns a piece with the marker as the tool's name."""
    found: list[Item] = []
    for item in piece:
        _append(found, _NAME.encode() if item is None else item)
    return found


def _begins_with(items: Sequence[Item], start: Sequence[Item]) -> bool:
    if not start:
        return True
    *whole, last = start
    if list(items[: len(whole)]) != whole or len(items) < len(start):
        return False
    item = items[len(whole)]
    return item == last or (isinstance(item, bytes) and isinstance(last, bytes) and item.startswith(last))


def _ends_with(items: Sequence[Item], end: Sequence[Item]) -> bool:
    if not end or len(items) < len(end) or list(items[len(items) - len(end) + 1 :]) != list(end[1:]):
        return False
    item = items[len(items) - len(end)]
    return item == end[0] or (isinstance(item, bytes) and isinstance(end[0], bytes) and item.endswith(end[0]))
