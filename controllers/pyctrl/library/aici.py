# aici: the library for scripts. docs/guide is the manual; aici.pyi has the types.
#
# `main` awaits actions (gen, fork, ...). The core carries them out step by step, without the interpreter. The
# script continues when they are complete.

import json as _json
import re as _re

import _aici
import _host

Error = _aici.Error
#: the script's argument (`--arg`): a text, or any JSON value
arg = _json.loads(globals()["_argument"])


# ---- actions


_unawaited = []


class _Action:
    def __init__(self, name, begin, result):
        self._name = name
        self._begin = begin
        self._result = result
        self._begun = False
        _unawaited.append(self)

    def __iter__(self):
        return self

    __await__ = __iter__

    def __getattr__(self, name):
        said = self._name + "(...)"
        raise AttributeError(
            "this is an action, not its result: write await " + said + " to have it carried out"
        )

    def __next__(self):
        if not self._begun:
            self._begun = True
            _unawaited.remove(self)
            self._begin()
            return None
        raise StopIteration(self._result())


def _ended():
    # Called when `main` has ended.
    for action in _unawaited:
        print("warning: " + action._name + "(...) was never awaited: write await " + action._name + "(...)")


class _Later(_Action):
    # An action that a call has to be answered for.
    def __init__(self, name, answer, action):
        super().__init__(name, None, None)
        self._answer = answer
        self._action = action

    def __await__(self):
        if self in _unawaited:
            _unawaited.remove(self)
        return self._run()

    __iter__ = __await__

    async def _run(self):
        return await self._action(await self._answer)


class _Done:
    # The result of a completed call, so that `await` is optional.
    def __iter__(self):
        return self

    __await__ = __iter__

    def __next__(self):
        raise StopIteration(None)


_done = _Done()


class Label:
    # A place in the sequence, to read the text since then, or to backtrack to.
    def __init__(self):
        self._mark = _aici.mark()

    @property
    def position(self):
        return _aici.place(self._mark)

    @property
    def tokens(self):
        return _aici.tokens_between(self.position, _aici.size())

    @property
    def text(self):
        return _aici.text_between(self.position, _aici.size())


def label():
    return Label()


def force(text, *, after=None):
    if not isinstance(text, (str, bytes, list, tuple)):
        raise TypeError("force takes a text or tokens, not " + type(text).__name__)
    if after is not None:
        _aici.rewind_to(after.position)
    _aici.force(text)
    return _done


def backtrack(label):
    _aici.rewind_to(label.position)
    return _done


# ---- messages of the chat, as the model's chat template writes them

_USER, _SYSTEM, _TOOL, _ASSISTANT = range(4)


def _turn(role, name, content):
    _aici.turn(role, name, content)
    return _done


def user(text):
    return _turn(_USER, "", text)


def system(text):
    return _turn(_SYSTEM, "", text)


def tool(name, result):
    return _turn(_TOOL, name, result if isinstance(result, (str, bytes)) else _json.dumps(result))


def assistant():
    return _turn(_ASSISTANT, "", "")


# ---- patterns

_REGEX, _CHOICE, _SCHEMA, _SUBSTRING, _KBNF, _LARK, _GBNF, _YACC = range(8)


class Pattern:
    # A pattern for generated texts. Patterns made at the top level are compiled before any request.
    def __init__(self, kind, source):
        self._number = _aici.pattern(kind, source)

    def follow(self):
        return Constraint(self)


class Constraint:
    # A constraint that callbacks advance token by token.
    def __init__(self, pattern):
        self._number = _aici.follow(pattern._number)

    def append(self, tokens):
        _aici.follow_append(self._number, tokens)

    @property
    def ended(self):
        return _aici.follow_end(self._number)[0]

    @property
    def may_end(self):
        return _aici.follow_end(self._number)[1]

    def allowed(self):
        next = _aici.follow_next(self._number)
        found = TokenSet()
        if isinstance(next, list):
            found.allow(next[0])
        elif next is not None:
            found._bits = next
        return found

    def forced(self):
        next = _aici.follow_next(self._number)
        return next if isinstance(next, list) else []

    def close(self):
        _aici.unfollow(self._number)


_FLAGS = {"(?i)": _re.I, "(?m)": _re.M, "(?s)": _re.S, "(?x)": _re.X, "(?-u)": _re.A}
_Compiled = type(_re.compile(""))


def regex(pattern):
    if isinstance(pattern, _Compiled):
        flags = [text for text, flag in _FLAGS.items() if pattern.flags & flag]
        pattern = "".join(flags) + _text(pattern.pattern)
    elif not isinstance(pattern, (str, bytes)):
        raise TypeError("regex takes a text or a compiled pattern, not " + type(pattern).__name__)
    return Pattern(_REGEX, pattern)


def _text(of):
    return of.decode() if isinstance(of, bytes) else of


def choice(texts):
    if isinstance(texts, (str, bytes)):
        raise TypeError("choice takes a list of texts, not one text: write choice([" + repr(texts) + "])")
    return Pattern(_CHOICE, _json.dumps(list(texts)))


def schema(schema, whitespace="flexible"):
    if isinstance(schema, str):
        schema = _json.loads(schema)
    return Pattern(_SCHEMA, _json.dumps({"schema": schema, "whitespace": whitespace}))


def substring(text, end=None):
    what = {"text": text}
    if end is not None:
        what["end"] = end
    return Pattern(_SUBSTRING, _json.dumps(what))


def kbnf(grammar):
    return Pattern(_KBNF, grammar)


def lark(grammar):
    return Pattern(_LARK, grammar)


def gbnf(grammar):
    return Pattern(_GBNF, grammar)


def yacc(grammar):
    return Pattern(_YACC, grammar)


_MAKERS = {
    "regex": regex,
    "choice": choice,
    "schema": schema,
    "substring": substring,
    "kbnf": kbnf,
    "lark": lark,
    "gbnf": gbnf,
    "yacc": yacc,
}


def _pattern(pattern, ways):
    for name, value in ways.items():
        if name not in _MAKERS:
            raise TypeError("gen has no argument " + name)
        if pattern is not None:
            raise TypeError("gen takes one pattern: not " + name + " besides another one")
        pattern = _MAKERS[name](value)
    if pattern is None:
        return 0
    if not isinstance(pattern, Pattern):
        raise TypeError("a pattern is made by regex(), choice(), schema() and so on")
    return pattern._number


# ---- generating


class Token:
    # A token of a generated text.
    def __init__(self, token, logprob, allowed_mass, top_logprobs):
        self.token = token
        self.logprob = logprob
        self.allowed_mass = allowed_mass
        self.top_logprobs = top_logprobs


class Generated:
    def __init__(self, text, finish_reason, tokens):
        self.text = text
        self.finish_reason = finish_reason
        self.details = [Token(*token) for token in tokens]

    @property
    def tokens(self):
        return [token.token for token in self.details]

    @property
    def logprob(self):
        return sum([token.logprob for token in self.details if token.logprob is not None])


def _texts(stop):
    if stop is None:
        return ()
    stops = (stop,) if isinstance(stop, (str, bytes)) else tuple(stop)
    if "" in stops:
        raise ValueError("a stop string is empty")
    return stops


def _generation(name, pattern, how, read, whole):
    answer = how.get("schema")
    if isinstance(answer, Call):
        return _Later(
            name, answer, lambda found: _generation(name, pattern, dict(how, schema=found), read, whole)
        )
    option = how.pop
    store = option("store", None)
    options = (
        option("max_tokens", None),
        option("max_bytes", None),
        option("logprobs", True) if whole else False,
        _texts(option("stop", None)),
        option("include_stop", False),
        option("leave", True),
        _sampling(how, whole),
    )
    number = _pattern(pattern, how)

    def end():
        found = read()
        if store is not None:
            set_var(store, found.text if whole else found)
        return found

    return _Action(name, lambda: _aici.begin_generation(number, *options), end)


def gen(pattern=None, **how):
    return _generation("gen", pattern, how, _aici.generated_text, False)


def generate(pattern=None, **how):
    return _generation("generate", pattern, how, lambda: Generated(*_aici.generated()), True)


def _bits(tokens):
    return None if tokens is None else tokens._bits


def _sampling(how, whole=True):
    """Takes the options of sampling a token out of the named arguments."""
    option = how.pop
    return (
        option("temperature", None),
        option("top_p", None),
        option("top_k", None),
        option("min_p", None),
        option("typical_p", None),
        option("top_n_sigma", None),
        _bits(option("favoured", None)),
        option("bias", 0),
        option("biases", None),
        option("prediction", None),
        option("top_logprobs", 0) if whole else 0,
    )


def _row(name, allowed, how):
    row = _bits(allowed), _sampling(how)
    for wrong in how:
        raise TypeError(f"{name} has no argument {wrong!r}")
    return row


def sample(allowed=None, **how):
    row = _row("sample", allowed, how)
    return _Action("sample", lambda: _aici.begin_sample(*row), lambda: Token(*_aici.sampled()))


# ---- the distribution of the next token, before it is sampled


class Distribution:
    # The model's logits for every token, without any pattern, at temperature 1.
    def __init__(self, logits):
        self.logits = logits
        self._norm = _aici.norm(logits)

    def logprob(self, token):
        return self.logits[token] - self._norm

    def likely(self, count):
        return _aici.likely(self.logits, self._norm, count)

    def mass(self, tokens):
        return _aici.mass(self.logits, self._norm, tokens._bits)

    @property
    def entropy(self):
        return _aici.entropy(self.logits, self._norm)


def distribution(own=False):
    return _Action("distribution", lambda: _aici.begin_look(0, own), lambda: Distribution(_aici.looked()))


def likely(count, own=False):
    return _Action("likely", lambda: _aici.begin_look(max(count, 1), own), _aici.looked)


# ---- attempts and choices


async def retry(check, attempts):
    # Awaits check() until it returns something, and removes what it has written before each other attempt.
    if attempts < 1:
        raise ValueError("attempts is " + str(attempts) + "; it must be at least 1")
    start = label()
    for _ in range(attempts):
        found = await check()
        if found is not None and found is not False:
            return found
        backtrack(start)
    raise Error("none of " + str(attempts) + " attempts has passed its check")


async def choose(texts):
    # Writes the text that is the most likely as a whole. A fork for each text computes its probability.
    tokens = [tokenize(text) for text in texts]
    if not texts or [] in tokens:
        raise ValueError("choose takes one text or more, and none may be empty")
    scores = [0] if len(texts) == 1 else await gather(*[_scorer(each) for each in tokens])
    best = scores.index(max(scores))
    force(tokens[best])
    return texts[best]


#: of a token that the model never writes; results of forks are JSON, which has no infinity
_NEVER = -1e9


def _scorer(tokens):
    async def score():
        total = 0
        for token in tokens:
            total += max(_NEVER, (await sample(TokenSet(token), temperature=0, top_logprobs=1)).logprob)
        return total

    return score


# ---- JSON of a model: a class with types as attributes, a type, or a dict, list or tuple of models

_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def _members(model):
    # The members of an object by name, with their models; None if it is a model of something else.
    if isinstance(model, dict):
        return model
    if not isinstance(model, type) or model in _TYPES:
        return None
    own = [(name, each) for name, each in model.__dict__.items() if name[0] != "_"]
    return {name: each for name, each in own if isinstance(each, type) or not callable(each)}


def _schema_of(model):
    members = _members(model)
    if members is not None:
        schemas = {name: _schema_of(each) for name, each in members.items()}
        return {
            "type": "object",
            "properties": schemas,
            "required": list(schemas),
            "additionalProperties": False,
        }
    if isinstance(model, list):
        if len(model) != 1:
            raise TypeError("the model of a list has one member, the model of each item")
        return {"type": "array", "items": _schema_of(model[0])}
    if isinstance(model, tuple):
        return {"anyOf": [_schema_of(each) for each in model]}
    if isinstance(model, type):
        return {"type": _TYPES[model]}
    if model is None or isinstance(model, (bool, int, float, str)):
        return {"const": model}
    raise TypeError("this is no model: " + repr(model))


def _made(model, value):
    # Returns the value that JSON of this model stands for. Raises TypeError if it does not fit.
    members = _members(model)
    if members is not None and isinstance(value, dict) and set(value) == set(members):
        made = {name: _made(each, value[name]) for name, each in members.items()}
        if isinstance(model, dict):
            return made
        found = model()
        for name in made:
            setattr(found, name, made[name])
        return found
    if isinstance(model, list) and isinstance(value, list):
        return [_made(model[0], each) for each in value]
    if isinstance(model, tuple):
        for each in model:
            try:
                return _made(each, value)
            except TypeError:
                pass
    elif isinstance(model, type) and model in _TYPES:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if (
            type(value) is model
            or (number and model is float)
            or (number and model is int and value % 1 == 0)
        ):
            return model(value)
    elif members is None and type(value) is type(model) and value == model:
        return value
    raise TypeError(repr(value) + " does not fit the model " + repr(model))


def _plain(value):
    # Returns what JSON has for a value that may have objects of models.
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return _plain(value.__dict__) if hasattr(value, "__dict__") else value


class _Json:
    # The name is also that of Python's module, which a script may import before all names of this one.
    dumps = staticmethod(_json.dumps)
    loads = staticmethod(_json.loads)

    async def __call__(self, model, **how):
        return _made(model, _json.loads(await gen(schema=_schema_of(model), **how)))


json = _Json()


# ---- forks


def fork(count):
    return _Action("fork", lambda: _aici.begin_fork(count), _aici.forked)


def wait(*names):
    def result():
        _aici.waited()
        values = [get_var(name) for name in names]
        return values[0] if len(values) == 1 else values

    return _Action("wait", lambda: _aici.begin_wait(0, *names), result)


def sleep(seconds):
    return _Action("sleep", lambda: _aici.begin_wait(_milliseconds(seconds)), lambda: None)


def _milliseconds(seconds):
    return 0 if seconds is None else max(1, int(1000 * seconds))


_gathered = 0


async def gather(*functions):
    # Awaits actions and calls; or runs each function in its own fork. Returns the results in this sequence.
    if any(isinstance(action, (_Action, Call)) for action in functions):
        results = [None] * len(functions)
        for calls in (False, True):  # calls go on beside the actions, whatever comes first
            for i, action in enumerate(functions):
                if isinstance(action, Call) == calls:
                    results[i] = await action
        return results
    return await _gather_functions(functions)


async def _gather_functions(functions):
    global _gathered
    _gathered += 1
    names = ["aici.gather." + str(_gathered) + "." + str(i) for i in range(len(functions))]
    start = label()
    mine = await fork(len(functions))
    try:
        answer = {"value": await functions[mine]()}
    except Exception as error:
        if mine == 0:
            raise
        answer = {"error": type(error).__name__ + ": " + str(error)}
    set_var(names[mine], _json.dumps(answer))
    if mine != 0:
        stop()
    backtrack(start)
    await wait(*names)
    answers = [_json.loads(get_var(name)) for name in names]
    for answer in answers:
        if "error" in answer:
            raise Error("a function given to gather failed: " + answer["error"])
    return [answer["value"] for answer in answers]


async def mix(function, weight, model=""):
    # Runs a function in a fork that then follows this sequence, whose logits it changes.
    if await fork(2) == 0:
        await wait("aici.follows." + str(_aici.fork_group()[1]))
        return
    leader = _aici.fork_group()[0]
    if function is not None:
        await function()
    await _Action("mix", lambda: _aici.begin_follow(leader, weight, model), lambda: None)


# ---- calls, which somebody outside answers


class CallError(Error):
    # A call has failed.
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Call:
    # A call under way: await it for its answer.
    def __init__(self, name, arguments):
        self.name = name
        self._taken = False  # whether somebody has got the answer
        self._result = _host.call(name, _json.dumps(arguments))

    @property
    def done(self):
        return _host.get_variable(self._result) is not None

    def __await__(self):
        return self.wait()

    __iter__ = __await__

    async def wait(self, timeout=None):
        if not self.done:
            most = _milliseconds(timeout)
            if not await _Action("call", lambda: _aici.begin_wait(most, self._result), _aici.waited):
                raise CallError("timeout", self.name + " has not answered within " + str(timeout) + " s")
        answer = _json.loads(_host.get_variable(self._result)[0])
        self._taken = True
        if "error" in answer:
            raise CallError(answer["error"]["code"], answer["error"]["message"])
        return answer["value"]


def call(*what, **named):
    # not with parameters of their own names, which a call could not have then
    if not (len(what) == 1 or (len(what) == 2 and not named)):
        raise TypeError("call takes a name, then the arguments: named ones, or one value")
    return Call(what[0], named if len(what) == 1 else what[1])


_receiving = None


def receive():
    # The next message to this run. After a timeout it goes on waiting for the same one.
    global _receiving
    if _receiving is None or _receiving._taken:
        _receiving = Call("aici.receive", {})
    return _receiving


def send(run, value):
    # Sends a message to another run of the same user.
    return Call("aici.send", {"run": run, "value": value})


class _ToolArguments(Call):
    def __init__(self, tool):
        super().__init__("aici.calls", {})
        self.tool = tool

    async def wait(self, timeout=None):
        calls = await super().wait(timeout)
        for call in calls:
            if call["name"] == self.tool:
                if call.get("schema") is None:
                    raise CallError(
                        "no_schema", "the call " + repr(self.tool) + " has no schema: write your own"
                    )
                return call["schema"]
        there = ", ".join([call["name"] for call in calls]) or "none"
        raise CallError(
            "unknown_call", "nobody answers the call " + repr(self.tool) + "; there are: " + there
        )


def tool_arguments(name):
    return _ToolArguments(name)


def next_step():
    return _Action("next_step", _aici.begin_step, lambda: None)


def stop():
    _host.stop()


def fail(message):
    _host.fail(message)


# ---- variables, which the forks of one request share


def get_var(name, default=None):
    found = _host.get_variable(name)
    return default if found is None else found[0]


def var_version(name):
    found = _host.get_variable(name)
    return 0 if found is None else found[1]


def set_var(name, value, *, if_version=None):
    return _host.set_variable(name, value, False, if_version)


def append_var(name, value):
    return _host.set_variable(name, value, True, None)


class Variable:
    # A variable with a JSON value, of a model if there is one.
    def __init__(self, name, model=None):
        self.name = name
        self._model = model

    @property
    def version(self):
        return var_version(self.name)

    def get(self, default=None):
        found = get_var(self.name)
        if found is None:
            return default
        value = _json.loads(found)
        return value if self._model is None else _made(self._model, value)

    def set(self, value, *, if_version=None):
        plain = _plain(value)
        if self._model is not None:
            _made(self._model, plain)
        return set_var(self.name, _json.dumps(plain), if_version=if_version)

    def update(self, change, default=None):
        # Another fork may write it meanwhile, which then comes first.
        while True:
            version = self.version
            value = change(self.get(default))
            if self.set(value, if_version=version):
                return value


# ---- tokens


class TokenSet:
    # A set of tokens, as a mask.
    def __init__(self, tokens=None):
        self._bits = _host.new_mask()
        if tokens is not None:
            self.allow(tokens)

    @staticmethod
    def all():
        found = TokenSet()
        _host.mask_all(found._bits)
        return found

    @staticmethod
    def text():
        found = TokenSet()
        _host.mask_text(found._bits)
        return found

    def copy(self):
        found = TokenSet()
        found._bits[:] = self._bits
        return found

    def allow(self, tokens):
        _host.mask_put(self._bits, _some(tokens), True)

    def forbid(self, tokens):
        _host.mask_put(self._bits, _some(tokens), False)

    def __contains__(self, token):
        return _host.mask_has(self._bits, token)

    def __len__(self):
        return _host.mask_count(self._bits)

    def __iter__(self):
        return iter(_host.mask_tokens(self._bits))

    def __eq__(self, other):
        return isinstance(other, TokenSet) and self._bits == other._bits

    def _combined(self, other, how):
        found = self.copy()
        _host.mask_combine(found._bits, other._bits, how)
        return found

    def __or__(self, other):
        return self._combined(other, "|")

    def __and__(self, other):
        return self._combined(other, "&")

    def __sub__(self, other):
        return self._combined(other, "-")


def _some(tokens):
    return [tokens] if isinstance(tokens, int) else list(tokens)


def tokenize(text):
    return _host.tokenize(text)


def detokenize(tokens):
    return _host.detokenize(list(tokens))


def token_bytes(token):
    return _host.token(token)[0]


def is_special(token):
    return _host.token(token)[1]


def vocab_size():
    return _host.vocabulary_size()


def eos_tokens():
    return _host.eos_tokens()


# ---- the sequence


def prompt_tokens():
    return _aici.tokens_between(0, _aici.prompt_size())


def prompt():
    return _aici.text_between(0, _aici.prompt_size())


def tokens():
    return _aici.tokens_between(min(_aici.prompt_size(), _aici.size()), _aici.size())


def text():
    return _aici.text_between(min(_aici.prompt_size(), _aici.size()), _aici.size())


def capability(name):
    return _host.capability(name)


# ---- callbacks, for scripts without `main`


class Step:
    # The changes of the sequence since the last step.
    def __init__(self):
        (
            self.sequence,
            self.number,
            self.tokens,
            self.backtrack,
            self.sampled,
            self.logprob,
            self.allowed_mass,
            self.top_logprobs,
            self.fork_group,
            self.looked,
            logits,
        ) = _aici.present_step()
        self.distribution = None if logits is None else Distribution(logits)


class Stop:
    def _answer(self, callback):
        _aici.answer_stop()


class Suspend:
    def _answer(self, callback):
        _only(callback, "pre_process", self)
        _aici.answer_suspend()


class Fork:
    def __init__(self, count):
        self.count = count

    def _answer(self, callback):
        _only(callback, "pre_process", self)
        _aici.answer_fork(self.count)


class Sample:
    def __init__(self, allowed=None, **how):
        self._row = _row("Sample", allowed, how)

    def _answer(self, callback):
        _only(callback, "mid_process", self)
        _aici.answer_sample(*self._row)


class Look:
    def __init__(self, top_logprobs=0):
        self.top_logprobs = top_logprobs

    def _answer(self, callback):
        _only(callback, "mid_process", self)
        _aici.answer_look(self.top_logprobs)


class Splice:
    def __init__(self, tokens=(), *, backtrack=0):
        self.tokens = tokens
        self.backtrack = backtrack

    def _answer(self, callback):
        _only(callback, "mid_process", self)
        _aici.answer_splice(self.backtrack, self.tokens)


def _only(callback, where, answer):
    if callback != where:
        raise TypeError(type(answer).__name__ + " is an answer of " + where + ", not of " + callback)


def _call(name, callback):
    answer = callback(prompt_tokens() if name == "init_prompt" else Step())
    if answer is None:
        if name == "mid_process":
            raise TypeError("mid_process must return Sample(...), Splice(...), Look(...) or Stop()")
        return
    if name == "init_prompt" or not hasattr(answer, "_answer"):
        raise TypeError(name + " returned what is no answer of it: " + repr(answer))
    answer._answer(name)
