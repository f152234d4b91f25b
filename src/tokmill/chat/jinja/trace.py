"""What one rendering of a chat template writes and reads, noted by filters in its source.

`jinja.turn_reads` puts the filters there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jinja2.utils import pass_context

from tokmill.chat.jinja.turn_reads import (
    ASKED,
    BEGUN,
    DONE,
    IS_LAST,
    ITEM,
    KEPT,
    NEXT_ITEM,
    REST,
    TURN,
    TURNS,
)

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence, Set

    import jinja2
    from jinja2.runtime import Context

    from tokmill.chat.conversation import Message

TRACE = "tokmill_trace"
"""The variable that holds the `Trace` of a rendering."""


class Trace:
    """What one rendering wrote and read.

    `as_last`: each turn sees the messages up to its own; only those of messages in `wanted` are
    written, without the beginning. `pieces`: texts in order. `text`: all of
    them. `starts`: the
    number of pieces before each turn. `stop`: before the ending. `n_before`: messages before the
    first turn. `n_read`: messages that the beginning read. `looked`, `asked`: messages whose turns
    looked ahead, or read the generation prompt. `keeps`: a turn left something for later ones.
    `is_lost`: a turn read something else.
    """

    __slots__ = (
        "as_last", "asked", "is_lost", "keeps", "looked", "messages", "n_before", "n_read",
        "pieces", "starts", "stop", "text", "wanted",
    )  # fmt: skip

    def __init__(self, messages: Sequence[Message], wanted: Set[int] | None = None) -> None:
        self.messages = messages
        self.as_last = wanted is not None
        self.wanted = wanted
        self.pieces: list[str] = []
        self.text = ""
        self.starts: list[int] = []
        self.stop = -1
        self.n_before = 0
        self.n_read = 1
        self.looked: set[int] = set()
        self.asked: set[int] = set()
        self.is_lost = self.keeps = False

    def fill(self, template: jinja2.Template, given: dict[str, Any]) -> None:
        """Render a template, and note what it does; raises whatever the template raises."""
        pieces = self.pieces
        for piece in template.root_render_func(template.new_context(given)):
            pieces.append(piece)  # one by one: filters look at their number
        self.text = template.environment.concat(pieces)

    def turn(self) -> int:
        """Return the number of the message whose turn is written."""
        return self.n_before + len(self.starts) - 1

    def is_whole(self) -> bool:
        """Return whether there is one turn for each message, and all that it read is known."""
        n_turns = self.n_before + len(self.starts)
        return not self.is_lost and self.stop >= 0 and n_turns == len(self.messages)

    def turns(self) -> list[str]:
        """Return the text of each turn."""
        return ["".join(self.pieces[a:b]) for a, b in pairwise((*self.starts, self.stop))]


def add_traces(filters: MutableMapping[str, Any]) -> None:
    """Add the filters that `jinja.turn_reads` inserts into templates."""
    filters.update({
        REST: _rest, TURNS: _turns, TURN: _turn, DONE: _done, ITEM: _item, IS_LAST: _is_last,
        NEXT_ITEM: _next_item, ASKED: _asked, KEPT: _kept, BEGUN: _begun,
    })  # fmt: skip


def _of(context: Context) -> Trace:
    trace: Trace = context.parent[TRACE]
    return trace


@pass_context
def _rest(context: Context, items: Any) -> Any:
    """Return a list of messages without the first ones."""
    trace = _of(context)
    # A shorter conversation must have a message there too.
    trace.n_read = max(trace.n_read, len(trace.messages) - len(items) + 1)
    return items


@pass_context
def _begun(context: Context, _value: Any) -> bool:
    """Return whether the beginning is to be written."""
    return _of(context).wanted is None


@pass_context
def _turns(context: Context, items: Any) -> Any:
    """Return the messages whose turns are written."""
    trace = _of(context)
    trace.n_before = len(trace.messages) - len(items)
    return items


@pass_context
def _turn(context: Context, _value: Any) -> bool:
    """Note that a turn begins; return whether it is to be written."""
    trace: Trace = context.parent[TRACE]
    trace.starts.append(len(trace.pieces))
    return trace.wanted is None or trace.turn() in trace.wanted


@pass_context
def _done(context: Context, _value: Any) -> None:
    """Note that the turns are written."""
    trace = _of(context)
    trace.stop = len(trace.pieces)


@pass_context
def _item(context: Context, items: Any, index: Any) -> Any:
    """Return `messages[index]`; there is no next message for the last turn."""
    trace = _of(context)
    if type(index) is not int or index < 0:
        trace.is_lost = True
        return context.environment.getitem(items, index)
    turn = trace.turn()
    number = index + len(trace.messages) - len(items)
    if number > turn + 1:
        trace.is_lost = True
    elif number > turn:
        trace.looked.add(turn)
        if trace.as_last:
            return context.environment.undefined(obj=items, name=str(index))
    return context.environment.getitem(items, index)


@pass_context
def _is_last(context: Context, value: Any) -> Any:
    """Return `loop.last`."""
    trace = _of(context)
    trace.looked.add(trace.turn())
    return True if trace.as_last else value


@pass_context
def _next_item(context: Context, value: Any) -> Any:
    """Return `loop.nextitem`."""
    trace = _of(context)
    trace.looked.add(trace.turn())
    return context.environment.undefined("there is no next item") if trace.as_last else value


@pass_context
def _asked(context: Context, value: Any) -> Any:
    """Return the variable that asks for a generation prompt."""
    trace = _of(context)
    trace.asked.add(trace.turn())
    return value


@pass_context
def _kept(context: Context, value: Any) -> Any:
    """Return a value that a turn keeps in a namespace for the next turns."""
    _of(context).keeps = True
    return value
