"""The Jinja environment of chat templates: that of transformers, with marks around trained spans.

Templates are written for `apply_chat_template`: sandbox, filters, globals and white space are as in
transformers 5.23.0 (`utils/chat_template_utils.py`). Three things differ: generation tags write two
marks around their block, today's date is an argument, and nothing is random (no filter `random`, no
global `lipsum`; an object that has only an address is not printed). Reading, compiling or rendering
a source may never end, or take all memory: what did not come with tokmill is given to functions of
this module by children of `chat.render_pool` alone. Constant expressions are not evaluated while
compiling, so that one in a branch that is never taken costs nothing.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import TrackingCodeGenerator
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, pass_context

from tokmill.errors import UsageError
from tokmill.words import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jinja2.parser import Parser
    from jinja2.runtime import Context

MARKS = "tokmill_marks"
"""The variable that holds the two marks of a rendering."""

_MOST_KEPT = 32
"""A run asks for its template four times, and compares it with the training templates that its
tokens allow; Qwen's takes 30 ms to compile and 10 ms to parse."""

_MOST_SHOWN = 200
"""Characters of an error; some repeat what the template holds."""


class SourceFacts(NamedTuple):
    """Facts from the source of a template.

    `has_tags`: it has generation tags. `is_direct`: their blocks go directly to the output, so that
    no filter or test of the template sees the marks. `literals`: its text and strings, separated by
    null characters. `variables`: those that it reads, without the globals; for Jinja these include
    one that is set in a loop or condition alone; `of_loops`: those that a loop sets, such as the
    content of its message. `asks_for_today`: it writes today's date.
    """

    has_tags: bool
    is_direct: bool
    literals: str
    variables: frozenset[str]
    of_loops: frozenset[str]
    asks_for_today: bool


@lru_cache(_MOST_KEPT)
def source_facts(source: str) -> SourceFacts:
    """Return the facts of a source; raises what Jinja raises for one that is not valid."""
    environment = _environment(_clock("", ""))
    tree = environment.parse(source)
    literals = [node.data for node in tree.find_all(nodes.TemplateData)]
    literals += [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    return SourceFacts(
        _has_generation(tree),
        not _has_wrapped_generation(tree),
        "\0".join(literals),
        frozenset(_undeclared(tree, environment) - environment.globals.keys() - {MARKS}),
        frozenset(_set_in_loops(tree)),
        any(name.name == "strftime_now" for name in tree.find_all(nodes.Name)),
    )


def _set_in_loops(tree: nodes.Template) -> Iterator[str]:
    for loop in tree.find_all(nodes.For):
        for name in loop.find_all(nodes.Name):
            if name.ctx == "store":
                yield name.name


def _undeclared(tree: nodes.Template, environment: jinja2.Environment) -> set[str]:
    """Return what `meta.find_undeclared_variables` does, without evaluating constants."""
    generator = TrackingCodeGenerator(environment)
    generator.optimizer = None
    generator.visit(tree)
    return generator.undeclared_identifiers


@lru_cache(_MOST_KEPT)
def compile_template(source: str, *, date: str, where: str) -> jinja2.Template:
    """Return a compiled template; `date`: today's date for it, `where`: its name in messages.

    Raises:
        UsageError: it is not valid Jinja, or asks for today's date and `date` is not valid.
        MemoryError: see `guarded` in `chat.render_pool`.
    """
    environment = _environment(_clock(date, where))
    try:
        facts = source_facts(source)
        template = environment.from_string(_with_plain_texts(environment.parse(source)))
        # Jinja's own view of two dicts takes 20 us to copy, which every rendering does.
        template.globals = dict(template.globals)
    except MemoryError:
        raise
    except jinja2.TemplateSyntaxError as error:
        words = first_words(error, error.message)
        raise UsageError(f"{where}:{error.lineno}: not a Jinja template: {words}") from None
    except Exception as error:  # nested too deep, numbers too long: Jinja may raise anything
        raise UsageError(f"{where}: not a Jinja template: {first_words(error)}") from None
    if facts.asks_for_today and not date:
        raise UsageError(
            f"{where}: the template writes today's date, which would make every run another "
            "dataset: give the date to write, --date=YYYY-MM-DD"
        )
    return template


def _with_plain_texts(tree: nodes.Template) -> nodes.Template:
    """Return a tree in which printed strings are text of the template, which is written faster."""
    if tree.find(nodes.ScopedEvalContextModifier) is not None:
        return tree  # it escapes what is printed, but not its text
    for output in tree.find_all(nodes.Output):
        output.nodes = [
            nodes.TemplateData(node.value, lineno=node.lineno)
            if isinstance(node, nodes.Const) and isinstance(node.value, str)
            else node
            for node in output.nodes
        ]
    return tree


def emitted_tokens(source: str, added: Iterable[str]) -> set[str]:
    """Return the added tokens that a template writes itself, but for white space.

    Runs of spaces, which are added tokens of some tokenizers, occur in any template. Return none
    if the source is not valid Jinja: `compile_template` reports that.
    """
    try:
        literals = source_facts(source).literals
    except MemoryError:
        raise
    except Exception:  # see `compile_template`
        return set()
    return {token for token in added if token.strip() and token in literals}


def first_words(error: Exception, message: str | None = None) -> str:
    """Return the beginning of the first line of an error that a template has raised.

    The text of the error may itself be long, or may not end well: that of lists within lists.
    """
    try:
        text = str(error) if message is None else message
    except MemoryError:
        raise
    except Exception:
        text = ""
    line = text.strip().partition("\n")[0]
    more = "…" if len(line) > _MOST_SHOWN else ""
    return printable(line[:_MOST_SHOWN]) + more or type(error).__name__


class _GenerationTags(Extension):
    """Writes the two marks around the text between generation tags."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        start, stop = (
            nodes.Output([nodes.Getitem(nodes.Name(MARKS, "load"), nodes.Const(i), "load")])
            for i in (0, 1)
        )
        # As in transformers, variables set in it are unknown outside.
        return [node.set_lineno(line) for node in (start, nodes.Scope(body), stop)]


class NotingMessage(dict[str, Any]):
    """A message, or a tool call in it, that notes which of its keys a template reads.

    `watched`: keys to note. `taken`: gets them, with `where` before them.
    """

    __slots__ = ("_taken", "_watched", "_where")

    def __init__(
        self, message: Mapping[str, Any], watched: set[str], taken: set[str], where: str = ""
    ) -> None:
        super().__init__(message)
        self._watched, self._taken, self._where = watched, taken, where

    def _note(self, key: object) -> None:
        if key in self._watched:
            self._taken.add(f"{self._where}{key}")

    def _note_all(self) -> None:
        for key in self._watched & dict.keys(self):
            self._note(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return what a dict does, and note the key."""
        self._note(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._note_all()
        return super().__iter__()

    def keys(self) -> Any:
        """Return what a dict does, and note all keys."""
        self._note_all()
        return super().keys()

    def items(self) -> Any:
        """Return what a dict does, and note all keys."""
        self._note_all()
        return super().items()

    def values(self) -> Any:
        """Return what a dict does, and note all keys."""
        self._note_all()
        return super().values()

    def copy(self) -> dict[str, Any]:
        """Return what a dict does, and note all keys."""
        self._note_all()
        return super().copy()

    def __repr__(self) -> str:
        self._note_all()
        return super().__repr__()


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, which reads fields of messages faster."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an attribute, or an item of a dict."""
        is_message = type(obj) is dict or type(obj) is NotingMessage
        if is_message and attribute not in _DICT_ATTRIBUTES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


_DICT_ATTRIBUTES = frozenset(dir(dict))


def _environment(clock: Callable[[str], str]) -> _Environment:
    """Return the environment of `transformers`, without what is random."""
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTags, loopcontrols],
        optimized=False,
        finalize=_with_text,
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = clock
    environment.globals["dict"] = _TemplateDict()
    environment.globals["namespace"] = _TemplateNamespace
    del environment.filters["random"]
    del environment.globals["lipsum"]
    return environment


def _clock(date: str, where: str) -> Callable[[str], str]:
    try:
        now = datetime.strptime(date, "%Y-%m-%d") if date else datetime.min
    except ValueError:
        raise UsageError(
            f"{where}: the date to write must be YYYY-MM-DD, found {date!r} (--date)"
        ) from None

    return now.strftime


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON without HTML escapes; templates use the arguments in this order."""
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@pass_context  # else Jinja would evaluate constants that are printed while it compiles
def _with_text(_: Context, value: Any) -> Any:
    """Return a value that is printed; refuse one whose text is its address."""
    if isinstance(value, _WITH_TEXT):
        return value
    raise jinja2.TemplateError(f"it prints a value that has no text, a {type(value).__name__}")


_WITH_TEXT = (str, int, float, list, dict, tuple, Undefined, type(None))


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


class _TemplateDict:
    """`dict` without its other attributes, some of which escape the sandbox."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _TemplateNamespace(Namespace):
    """A namespace without names that begin with an underscore, which could escape the sandbox."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_attribute(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_attribute(name)
        super().__setitem__(name, value)


def _check_attribute(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(
            f"chat templates cannot store underscore-prefixed attributes on a namespace: {name!r}"
        )


def _has_generation(node: nodes.Node) -> bool:
    return any(name.name == MARKS for name in node.find_all(nodes.Name))


def _has_wrapped_generation(tree: nodes.Template) -> bool:
    """Return whether a block that the template can keep or filter holds generation tags."""
    wrappers = (nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.AssignBlock, nodes.Block)
    kept = [
        *(node for kind in wrappers for node in tree.find_all(kind)),
        *(loop for loop in tree.find_all(nodes.For) if loop.recursive),
    ]
    return any(map(_has_generation, kept))
