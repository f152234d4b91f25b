"""Templates that mark each part of a sample: those of tokmill, which read some more variables.

A variable that only tokmill sets prints nothing elsewhere, so that the files are chat templates of
transformers too:

    message.turn, system_turn   the turn of this message, or of no message, begins here
    header, content, eot, …     from here on, all is of this `Kind`
    alone                       each text is encoded apart

    {{ message.turn }}{{ header }}<|im_start|>user
    {{ content }}{{ message.content }}{{ eot }}<|im_end|>{{ suffix }}

What the template prints is not joined: texts stay strings, a turn is its message, and what the file
itself holds between two of them is a `_Run` of kinds, control tokens and text. So control tokens
come from the file alone, and the string of one in a message is text like any other, unless control
tokens in text are parsed.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.nativetypes import NativeCodeGenerator, NativeEnvironment
from jinja2.runtime import Context, Undefined

from tokmill.chat.control_strings import TokenSplitter
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.segments import Kind, Sample, segment_code
from tokmill.tokenizer.markers import control_pattern
from tokmill.values import TEXT, UNMERGED_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import jinja2
    from jinja2.compiler import Frame
    from jinja2.parser import Parser

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Message

_KINDS = {kind.name.lower(): kind for kind in Kind}
_ALONE = "alone"
_SYSTEM_TURN: Message = {}
"""The value of `system_turn`; that of `message.turn` is the message."""

_Run = tuple[tuple[list[str], list[int], Kind], ...]
"""By the kind before it: parts of segments, their codes, and the kind behind them."""

_Item = Kind | tuple[str, int]
"""A kind that begins; or a string with the id of its control token, or the code of text."""


class MarkedTemplate:
    """Writes conversations with one of tokmill's own templates; threads may share one."""

    literals = generation_prompt = ""
    """What it writes itself is no text, so that no string in a message can be taken for it."""

    def __init__(self, name: str, source: str, *, vocabulary: Vocabulary) -> None:
        """Compile a template."""
        self.name = name
        self._environment = environment = _MarkedEnvironment(vocabulary)
        self._print = environment.compiled(source).root_render_func
        self._codes = [segment_code(environment.text, kind) for kind in Kind]
        self._parses, self._split = vocabulary.parse, TokenSplitter(vocabulary.control)
        self._variables = {
            **environment.globals,
            "system_turn": _SYSTEM_TURN,
            "reads_tags": vocabulary.parse,
        }

    def render(self, conversation: Conversation, sample: Sample) -> None:
        """Write one sample."""
        messages, kind, i = conversation.messages, Kind.OTHER, 0
        control, parses, text_codes = self._environment.control, self._parses, self._codes
        parts: list[str] = []
        codes: list[int] = []  # nothing is printed before the first turn
        variables = {**self._variables, "messages": messages, "tools": conversation.tools}
        pieces: Iterable[Any] = self._print(_Context(self._environment, variables))
        for piece in pieces:
            if type(piece) is tuple:
                run_parts, run_codes, kind = piece[kind]
                parts += run_parts
                codes += run_codes
            elif type(piece) is str and not parses:
                parts.append(piece)
                codes.append(text_codes[kind])
            elif type(piece) is str:
                run_parts = self._split(piece)
                run_codes = [text_codes[kind]] * len(run_parts)
                run_codes[1::2] = [segment_code(control[part], kind) for part in run_parts[1::2]]
                parts += run_parts
                codes += run_codes
            else:
                if piece is _SYSTEM_TURN:
                    turn = sample.begin_turn("system")
                else:
                    while messages[i] is not piece:
                        i += 1
                    turn = sample.begin_turn(piece["role"], conversation.weights[i])
                parts, codes = turn.parts, turn.codes

    @property
    def family(self) -> None:
        """No training template: a built-in template writes all fields, or is chosen for none."""
        return

    def text_of(self, messages: list[Message]) -> str:
        """Return the text of messages as this template writes it."""
        sample = Sample(self._environment.control)
        self.render(Conversation(messages, [None] * len(messages)), sample)
        return sample.whole_text()


class _Context(Context):
    """Jinja's context without what our templates do not use: that is a sixth of a rendering."""

    def __init__(self, environment: _MarkedEnvironment, parent: dict[str, Any]) -> None:
        self.environment, self.parent = environment, parent
        self.eval_ctx = environment.eval_ctx
        self.vars: dict[str, Any] = {}
        self.exported_vars: set[str] = set()


_MISSING = Undefined()

_DICTS = ("message", "call")
"""The variables of our templates that are dicts wherever they stand."""

_LOOP, _TURN = "loop", "turn"


class _CodeGenerator(NativeCodeGenerator):
    """Writes how to read messages, calls and loops: Jinja's way takes three times as long.

    A field of a message or call that is absent is None.
    """

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        """Write how to read a field or an attribute."""
        name = node.node.name if isinstance(node.node, nodes.Name) else ""
        if name not in (*_DICTS, _LOOP):
            super().visit_Getattr(node, frame)
            return
        self.visit(node.node, frame)
        if name == _LOOP:
            self.write(f".{node.attr}")
        elif node.attr != _TURN:  # which is the message
            self.write(f".get({node.attr!r})")


class _MarkedEnvironment(NativeEnvironment):
    """Prints values as they are; no sandbox, since the templates are our own.

    `text`: the code of text in the compiled template.
    """

    code_generator_class = _CodeGenerator

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_IgnoredTags, loopcontrols]
        )
        self.filters["tojson"] = json.JSONEncoder(ensure_ascii=False).encode
        self.globals["raise_exception"] = _refuse
        self.eval_ctx = nodes.EvalContext(self)
        self.text = TEXT
        self.control = vocabulary.control
        self._named = {"eos_token": vocabulary.eos, "bos_token": vocabulary.bos}
        # An eos of other letters, as one may name it, is printed by its name alone.
        strings = [token for token in vocabulary.control if token[:1] == "<" and token[-1:] == ">"]
        self._split = re.compile(f"({control_pattern(strings)})").split

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an item of a dict, faster than Jinja does, or an attribute."""
        if type(obj) is dict:
            return obj if attribute == _TURN else obj.get(attribute, _MISSING)
        return super().getattr(obj, attribute)

    def compiled(self, source: str) -> jinja2.Template:
        """Return a template that prints runs."""
        tree = self.parse(source)
        if _ALONE in meta.find_undeclared_variables(tree):
            self.text = UNMERGED_TEXT
        for output in list(tree.find_all(nodes.Output)):
            output.nodes = list(self._with_runs(output.nodes))
        return self.from_string(tree)

    def _with_runs(self, printed: Iterable[nodes.Expr]) -> Iterator[nodes.Expr]:
        for is_known, group in groupby(printed, lambda node: self._items(node) is not None):
            if is_known:
                items = [item for node in group for item in self._items(node) or ()]
                name = f"run_{len(vars(self))}"
                setattr(self, name, tuple(_run(items, kind) for kind in Kind))
                yield nodes.EnvironmentAttribute(name)
            else:
                yield from group

    def _items(self, node: nodes.Expr) -> list[_Item] | None:
        """Return what a node stands for; None if that depends on the conversation."""
        if isinstance(node, nodes.TemplateData):
            pieces = enumerate(self._split(node.data))
            return [
                (piece, self.control[piece] if i % 2 else self.text) for i, piece in pieces if piece
            ]
        name = node.name if isinstance(node, nodes.Name) else ""
        if token := self._named.get(name):
            return [(token, self.control[token])]
        if name in _KINDS:
            return [_KINDS[name]]
        return [] if name == _ALONE or name in self._named else None


def _run(items: Iterable[_Item], kind: Kind) -> tuple[list[str], list[int], Kind]:
    parts, codes = [], []
    for item in items:
        if isinstance(item, Kind):
            kind = item
        else:
            parts.append(item[0])
            codes.append(segment_code(item[1], kind))
    return parts, codes, kind


class _IgnoredTags(Extension):
    """Leaves out the tags: the kinds say what is trained."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    raise ChatError("not in this template", f"{message}: use another --template")
