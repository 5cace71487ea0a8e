"""The entry point that vLLM calls in each of its processes: adds controllers to its scheduler and workers.

First it compares the source of the installed vLLM with the names that AICI relies on (`versions`), without
importing anything that the process would not import anyway. That takes most of a second of the processor, so
it keeps the result in the user's cache until a file changes.

This module imports nothing heavy, and `register` raises nothing: an installed plugin must not keep an engine
from starting.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import json
import logging
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from inspect import Parameter
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from aicirt.system.files import cache_folder, write_whole
from pyaici.engines.vllm import frontend, versions
from pyaici.engines.vllm.versions import NAMES, VERSIONS

log = logging.getLogger("vllm.aici")

#: the most differences that the plugin shows
_MAX_SHOWN = 3
_CANNOT = "controllers cannot be used"
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def register() -> None:
    """Puts `SchedulerMixin` before the scheduler class that an engine chooses, if AICI supports this vLLM."""
    try:
        problem = installed_problem()
        if problem is None:
            _register()
    except Exception as error:
        problem = f"controllers cannot be used: AICI does not support this version of vLLM ({error!r})"
    frontend.problem = problem
    if problem is not None and _accepts_requests():
        log.warning("%s; requests without a controller run as usual", problem)


def _register() -> None:
    from vllm.config.scheduler import SchedulerConfig

    if hasattr(SchedulerConfig, "_aici_choose"):
        return
    choose = SchedulerConfig.get_scheduler_cls

    def get_scheduler_cls(config: SchedulerConfig) -> type:
        chosen: type = choose(config)
        try:
            from pyaici.engines.vllm.scheduling.scheduler import SchedulerMixin
        except Exception as error:
            log.warning("controllers cannot be used: %r", error)
            return chosen
        return (
            chosen
            if issubclass(chosen, SchedulerMixin)
            else type(f"Aici{chosen.__name__}", (SchedulerMixin, chosen), {})
        )

    SchedulerConfig._aici_choose = choose
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls
    _attach_to_workers()
    if _accepts_requests():
        from pyaici.engines.vllm.frontend import change_clients

        change_clients()  # the engine's own processes have no clients


def _attach_to_workers() -> None:
    """Lets workers apply what masks cannot express.

    If this fails, the scheduler refuses controllers that need it.
    """
    try:
        from pyaici.engines.vllm.workers.runners import install

        install()
    except Exception as error:
        log.warning("controllers cannot use biases and temperatures: %r", error)


def _accepts_requests() -> bool:
    """Returns whether this may be a process that accepts requests, not one of an engine's own.

    vLLM names its processes, and its workers if they are actors of Ray. Any other actor may be a server.
    """
    name = current_process().name
    with contextlib.suppress(Exception):
        if (ray := sys.modules.get("ray")) is not None:
            name = ray.get_runtime_context().get_actor_name() or name
    return not name.startswith(("EngineCore", "Worker", "VllmWorker", "vllm_Worker"))


# -- the installed vLLM -----------------------------------------------------------------------------


def version_problem(version: str) -> str | None:
    """Returns why controllers cannot be used with this version of vLLM; None if they can.

    With AICI_ANY_VLLM=1 every version that has the names is tried.
    """
    if os.environ.get("AICI_ANY_VLLM") == "1":
        return None
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        if SpecifierSet(VERSIONS).contains(version, prereleases=True):
            return None
    except InvalidVersion:  # a build from a source tree without tags
        pass
    why = f"this is vLLM {version}, and AICI supports the versions {VERSIONS}"
    return f"{_CANNOT}: {why}; AICI_ANY_VLLM=1 tries others"


def installed_problem() -> str | None:
    """Returns why controllers cannot be used with the installed vLLM; None if they can."""
    import vllm

    problem = version_problem(vllm.__version__)
    if problem is not None:
        return problem
    lines = installed_differences(Path(vllm.__file__).parent, vllm.__version__)
    if not lines:
        return None
    shown = lines[:_MAX_SHOWN]
    if len(lines) > len(shown):
        shown.append(f"{len(lines) - len(shown)} more")
    return f"{_CANNOT}: AICI does not support this build of vLLM {vllm.__version__}: {'; '.join(shown)}"


def installed_differences(folder: Path, version: str) -> list[str]:
    """Returns `differences` of the installed vLLM in this folder.

    They are kept in the user's cache until a file changes. What cannot be read or written there is ignored.
    """
    kept = cache_folder() / "vllm" / f"{version}.json"
    for_whom = [str(folder), sys.version]
    with contextlib.suppress(OSError, ValueError, TypeError):
        known_for, states, lines = json.loads(kept.read_bytes())
        if known_for == for_whom and states == {path: _state(path) for path in states}:
            return list(map(str, lines))
    sources = Sources(folder)
    lines = differences(sources.find)
    ours = Path(__file__), Path(versions.__file__)
    states = {str(file): _state(str(file)) for file in (*ours, *sources.files)}
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps([for_whom, states, lines]).encode())
    return lines


def _state(path: str) -> list[int] | None:
    """Returns what changes with a file; None if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_ctime_ns, found.st_size]


# -- the table --------------------------------------------------------------------------------------

#: parameters of a function, without `self`; None for other names
Parameters = list[Parameter] | None


@dataclass
class Found:
    """A name as a vLLM has it."""

    #: of a function, or of the constructor of a class
    parameters: Parameters = None
    #: of a class, inherited ones included
    members: dict[str, Parameters] = field(default_factory=dict)
    #: names of a class's abstract methods
    abstract: set[str] = field(default_factory=set)
    #: the fields that a class declares, as parameters of a constructor
    fields: dict[str, Parameter] = field(default_factory=dict)


@dataclass
class Wanted:
    """An entry of the table of names."""

    #: see `NAMES`; None if the name is not called
    parameters: list[str] | None
    members: dict[str, list[str] | None] = field(default_factory=dict)
    abstract: set[str] | None = None


def read_table(text: str = NAMES) -> dict[tuple[str, str], Wanted]:
    """Returns the entries of a table like `NAMES` by module and name."""
    table: dict[tuple[str, str], Wanted] = {}
    module, last = "", Wanted(None)
    whole_lines = re.sub(r",\n\s+", ", ", text).splitlines()
    for line in filter(str.strip, whole_lines):
        indent = len(line) - len(line.lstrip())
        names = {
            name: list(filter(None, re.split(r",\s*", inside))) if brackets else None
            for name, brackets, inside in re.findall(r"(\w+)(\(([^)]*)\))?", line)
        }
        if indent == 0:
            module = line.strip()
        elif indent == 4:
            for name, parameters in names.items():
                table[module, name] = last = Wanted(parameters)
        elif "abstract" in names:
            last.abstract = set(names) - {"abstract"}
        else:
            last.members |= names
    return table


def differences(
    find: Callable[[str, str], Found | None], table: dict[tuple[str, str], Wanted] | None = None
) -> list[str]:
    """Returns a line for each name of the table that a vLLM lacks, or has in another form.

    `find`: `Sources.find` or `find_by_import`. `table`: `NAMES` if it is not given.
    """
    lines = []
    for (module, name), wanted in (read_table() if table is None else table).items():
        found, place = find(module, name), f"{module}.{name}"
        if found is None:
            lines.append(f"{place} is missing")
            continue
        if wanted.parameters is not None:
            lines += _compare(place, wanted.parameters, found.parameters)
        members = found.members | {"__init__": found.parameters}
        for member, parameters in wanted.members.items():
            if member not in members:
                lines.append(f"{place}.{member} is missing")
            elif parameters is not None:
                lines += _compare(f"{place}.{member}", parameters, members[member])
        if wanted.abstract is not None and (more := found.abstract - wanted.abstract):
            lines.append(f"{place} has other abstract methods: {', '.join(sorted(more))}")
    return lines


def _compare(place: str, wanted: list[str], have: Parameters) -> list[str]:
    if have is None:
        return [f"{place} is not a function"]
    if _fit(wanted, have):
        return []
    shown = [f"{each.name}=..." if each.default is not Parameter.empty else each.name for each in have]
    return [f"{place} takes ({', '.join(shown)}), not ({', '.join(wanted)})"]


def _fit(wanted: list[str], have: list[Parameter]) -> bool:
    """Returns whether these parameters are as the table says."""
    star = wanted.index("*") if "*" in wanted else len(wanted)
    first = [name for name in wanted[:star] if name != "..."]
    named = [name for name in wanted[star + 1 :] if name != "..."]
    kinds = {parameter.kind for parameter in have}
    places = [parameter.name for parameter in have if parameter.kind in _POSITIONAL]
    if places[: len(first)] != (first[: len(places)] if Parameter.VAR_POSITIONAL in kinds else first):
        return False
    by_name = {parameter.name for parameter in have if parameter.kind in _BY_NAME}
    if not by_name.issuperset(named) and Parameter.VAR_KEYWORD not in kinds:
        return False
    required = {
        parameter.name
        for parameter in have
        if parameter.default is Parameter.empty and parameter.kind in (*_POSITIONAL, *_BY_NAME)
    }
    return "..." in wanted or required <= {*first, *named}


# -- source -----------------------------------------------------------------------------------------

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """The source of a vLLM, installed or in a wheel."""

    def __init__(self, folder: Traversable) -> None:
        """`folder`: of the package `vllm`, as a `pathlib.Path` or a `zipfile.Path`."""
        self._folder = folder
        self._modules: dict[str, list[ast.stmt] | None] = {}
        #: files that were read, and those that were looked for in vain
        self.files: set[Traversable] = set()

    def find(self, module: str, name: str) -> Found | None:
        """Returns what a module has under a name, also if it imports it; None if it has no such name.

        Raises SyntaxError for source that this Python cannot read.
        """
        place, node = self._resolve(module, name)
        if node is None:
            return None
        if isinstance(node, ast.ClassDef):
            found = Found()
            self._add_class(found, place, node)
            return found
        return Found(_parameters_of(node, method=False) if isinstance(node, _Function) else None)

    def _statements(self, module: str) -> list[ast.stmt] | None:
        """Returns the statements of a module; None if there is no such module."""
        if module not in self._modules:
            *_, path = module.split(".", 1)
            parts = path.split(".") if "." in module else []
            package = self._folder.joinpath(*parts, "__init__.py")
            file = self._folder.joinpath(*parts[:-1], f"{parts[-1]}.py") if parts else package
            self.files |= {package, file}
            file = package if package.is_file() else file
            self._modules[module] = (
                list(_flat(ast.parse(file.read_text("utf-8")).body)) if file.is_file() else None
            )
        return self._modules[module]

    def _resolve(self, module: str, name: str, depth: int = 0) -> tuple[str, ast.stmt | None]:
        """Returns the statement that defines a name, and its module. Follows imports within vLLM."""
        for statement in self._statements(module) or ():
            if isinstance(statement, ast.ClassDef | _Function) and statement.name == name:
                return module, statement
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        source = self._source(module, statement)
                        if depth > 10 or source.split(".")[0] != "vllm":
                            return module, statement
                        return self._resolve(source, alias.name, depth + 1)
            elif name in _assigned(statement):
                return module, statement
        return module, None

    def _source(self, module: str, statement: ast.ImportFrom) -> str:
        """Returns the absolute name of the module that a statement imports from."""
        if not statement.level:
            return statement.module or ""
        package = module.split(".")
        if not self._folder.joinpath(*package[1:], "__init__.py").is_file():
            package.pop()
        package = package[: len(package) - statement.level + 1]
        return ".".join([*package, *filter(None, [statement.module])])

    def _add_class(self, found: Found, module: str, node: ast.ClassDef) -> None:
        """Adds the members of a class and its base classes."""
        for base in reversed(node.bases):
            named = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(named, ast.Name):
                place, above = self._resolve(module, named.id)
                if isinstance(above, ast.ClassDef):
                    self._add_class(found, place, above)
        members, abstract = members_of(node)
        found.members |= members
        found.abstract -= members.keys()
        found.abstract |= abstract
        found.fields |= _fields_of(node)
        found.parameters = found.members.get("__init__", list(found.fields.values()))


def members_of(node: ast.ClassDef) -> tuple[dict[str, Parameters], set[str]]:
    """Returns the members that a class defines itself, and its abstract methods.

    Members are also attributes that methods set on instances.
    """
    members: dict[str, Parameters] = {}
    abstract = set()
    for statement in _flat(node.body):
        if not isinstance(statement, _Function):
            members |= dict.fromkeys(_assigned(statement))
            continue
        decorators = {ast.unparse(each).rpartition(".")[2] for each in statement.decorator_list}
        is_value = decorators & {"property", "cached_property", "setter"}
        members[statement.name] = (
            None if is_value else _parameters_of(statement, method="staticmethod" not in decorators)
        )
        if "abstractmethod" in decorators:
            abstract.add(statement.name)
    for statement in _deep(node.body):
        for target in _targets(statement):
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                members.setdefault(target.attr, None)
    return members, abstract


def _flat(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields statements, and those within `if`, `try` and `with` in their place."""
    for statement in statements:
        if isinstance(statement, ast.If):
            yield from _flat([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            handlers = [each for handler in statement.handlers for each in handler.body]
            yield from _flat([*statement.body, *handlers, *statement.orelse, *statement.finalbody])
        elif isinstance(statement, ast.With):
            yield from _flat(statement.body)
        else:
            yield statement


def _deep(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields statements, and all statements within them."""
    for statement in statements:
        yield statement
        for part in ("body", "orelse", "finalbody", "handlers"):
            yield from _deep(getattr(statement, part, ()))


def _assigned(statement: ast.stmt) -> set[str]:
    """Returns the names that a statement assigns, declares or imports."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    return {target.id for target in _targets(statement) if isinstance(target, ast.Name)}


def _targets(statement: ast.stmt) -> list[ast.expr]:
    """Returns what a statement assigns or declares."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]


def _fields_of(node: ast.ClassDef) -> dict[str, Parameter]:
    """Returns the fields that a class declares itself, in the form of dataclasses and named tuples."""
    fields = {}
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(statement.annotation):
            continue
        value, default = statement.value, statement.value is not None
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("field", "Field"):
            words = {keyword.arg: keyword.value for keyword in value.keywords}
            default = bool(value.args) or not words.keys().isdisjoint(("default", "default_factory"))
            if ast.unparse(words.get("init", ast.Constant(True))) == "False":
                continue
        fields[statement.target.id] = Parameter(
            statement.target.id,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=None if default else Parameter.empty,
        )
    return fields


def _parameters_of(node: _Function, *, method: bool) -> list[Parameter]:
    """Returns the parameters of a function, or of a method without the first one."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    found = [
        Parameter(
            each.arg,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if place < required else None,
        )
        for place, each in enumerate(positional)
    ][method:]
    if arguments.vararg is not None:
        found.append(Parameter(arguments.vararg.arg, Parameter.VAR_POSITIONAL))
    for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        default = Parameter.empty if value is None else None
        found.append(Parameter(each.arg, Parameter.KEYWORD_ONLY, default=default))
    if arguments.kwarg is not None:
        found.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    return found


# -- import -----------------------------------------------------------------------------------------


def find_by_import(module: str, name: str) -> Found | None:
    """Returns what an installed module has under a name; None if there is no such name or module."""
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None
    found = Found(_signature(value))
    if not isinstance(value, type):
        return found
    for each in reversed(value.__mro__):
        for member, what in vars(each).items():
            function = what.__func__ if isinstance(what, classmethod | staticmethod) else what
            parameters = _signature(function) if inspect.isfunction(function) else None
            if parameters is not None and not isinstance(what, staticmethod):
                parameters = parameters[1:]
            found.members[member] = parameters
        for member in (*vars(each).get("__annotations__", ()), *_attributes_of(each)):
            found.members.setdefault(member, None)
    found.abstract = set(getattr(value, "__abstractmethods__", ()))
    return found


def _signature(value: Any) -> Parameters:
    try:
        return list(inspect.signature(value).parameters.values()) if callable(value) else None
    except (TypeError, ValueError):
        return None


def _attributes_of(owner: type) -> Iterable[str]:
    """Returns the attributes that methods of a class of vLLM set on its instances."""
    if owner.__module__.split(".")[0] != "vllm":
        return ()
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    except (OSError, TypeError):
        return ()
    return members_of(node)[0] if isinstance(node, ast.ClassDef) else ()
