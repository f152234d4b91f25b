"""Text that a template inserts into trained replies, and that stands in no record.

Some templates begin a reply without reasoning with an empty think block (Qwen3), others have the
prompt of a reply inside their generation tags, or words of their own. All of it is trained. A model
that is trained on many empty blocks learns not to think, which is seldom what reasoning in other
replies of the same run is for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tokmill.chat.control_strings import REASONING_TAGS
from tokmill.chat.mask_rule import EMPTY_BLOCK
from tokmill.chat.segments import KIND_MASK, SAID, SAID_KINDS, Kind, is_control
from tokmill.dataset.counts import REASONED_REPLIES, TRAINED_TURNS
from tokmill.offsets import starts_run
from tokmill.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.segments import Columns, Sample, Turn

EMPTY_THINKING = (
    "trained replies that begin with an empty think block of the template "
    "(--train=-empty-reasoning leaves it out)"
)
OTHER_TEXT = "trained replies with other text of the template"
PROMPTED = "trained replies that begin with the prompt of the template (--train=-prompt)"

_COUNTERS = ("", EMPTY_THINKING, OTHER_TEXT, REASONED_REPLIES)
"""By number, for `Turn.counted_as`."""

INSERTED = (EMPTY_THINKING, PROMPTED, OTHER_TEXT)

_IS_SAID = np.zeros(len(Kind), bool)
_IS_SAID[list(SAID)] = True

_PLAIN = 2
"""A message with so many keys has a role and a content."""

_SHORT = 16
"""A turn with fewer segments is short."""

_TEXTS = frozenset(("role", "content", "name", "reasoning_content"))
"""Keys of a message of which all text is known."""

_OPENING = tuple(opens for opens, _ in REASONING_TAGS)


def note_inserted(sample: Sample, chat: Conversation, originals: Sequence[Message]) -> None:
    """Note at each turn of a reply what its template has inserted, or that it has reasoning.

    `originals`: the messages of the chat as the record has them. There may be fewer turns than
    replies: those of the history may be context.
    """
    turns = [turn for turn in sample.turns if turn.role == "assistant"]
    replies = [message for message in chat.messages if message["role"] == "assistant"]
    if _say_contents_alone(turns, replies):  # nearly always
        return
    if len(turns) > len(replies):
        return  # whose they are is unknown
    numbers = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
    for turn, i in zip(turns, numbers[len(numbers) - len(turns) :], strict=True):
        message = chat.messages[i]
        said = _said([turn])
        if len(message) > _PLAIN or said != [message["content"]]:
            name = _counted_as("".join(said), turn, message, originals[i])
            turn.counted_as = _COUNTERS.index(name)


def _say_contents_alone(turns: Sequence[Turn], replies: Sequence[Message]) -> bool:
    """Return whether replies have nothing but contents, and turns say these and no more."""
    if max(map(len, replies), default=_PLAIN) > _PLAIN:
        return False
    return _said(turns) == [message["content"] for message in replies]


def _said(turns: Sequence[Turn]) -> list[str]:
    """Return the parts of turns that say something."""
    said: list[str] = []
    for turn in turns:
        codes = tuple(turn.codes)
        places = _known_places(codes) if len(codes) < _SHORT else _places_said(codes)
        said += [turn.parts[i] for i in places]
    return said


def _places_said(codes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the places of the segments that say something."""
    return tuple([i for i, code in enumerate(codes) if code & KIND_MASK in SAID_KINDS])


_known_places = lru_cache(maxsize=256)(_places_said)
"""For short turns: nearly all have the codes of an earlier one."""


def _counted_as(text: str, turn: Turn, message: Message, original: Message) -> str:
    """Return the counter of a reply; '' if it says what the record says.

    `text`: what it says, tokens and all. `original`: the message as the record has it.
    """
    if EMPTY_BLOCK.match(text):
        return "" if EMPTY_BLOCK.match(original["content"]) else EMPTY_THINKING
    reasoning = message.get("reasoning_content", "").strip()
    if (reasoning and reasoning in text) or text.lstrip().startswith(_OPENING):
        return REASONED_REPLIES
    if reasoning or not _TEXTS.issuperset(message):
        return ""  # a template writes reasoning, calls and other keys in words of its own
    content = original["content"].strip()
    said = _plain_text(turn)
    rest = said.replace(content, "", 1) if content in said else ""
    return OTHER_TEXT if rest.strip() else ""


def _plain_text(turn: Turn) -> str:
    """Return what a reply says without control tokens, and names of parts between two of them."""
    plain = []
    segments = list(zip(turn.parts, turn.codes, strict=True))
    filled = [(part, code) for part, code in segments if part]
    for i, (part, code) in enumerate(filled):
        around = [filled[k][1] for k in (i - 1, i + 1) if 0 <= k < len(filled)]
        is_name = len(around) == 2 and all(map(is_control, around)) and part.isalpha()
        if code & KIND_MASK in SAID_KINDS and not is_control(code) and not is_name:
            plain.append(part)
    return "".join(plain)


def inserted_counts(
    columns: Columns, weights: npt.NDArray[np.float32]
) -> dict[str, npt.NDArray[np.int64]]:
    """Return how many trained replies of each sample have such text: (n_samples,) by name.

    A reply is one of them if what it begins with is trained. `weights`: (n_segments,).
    """
    table = columns.table
    n_samples = len(columns.offsets) - 1
    named: dict[str, npt.NDArray[np.int64]] = {}
    is_prompt = (table.kinds == Kind.HEADER_INSIDE) & (weights > 0)
    if is_prompt.any():
        turns = np.unique(table.turns[is_prompt])
        named[PROMPTED] = turns
    if columns.counted_as.any():
        said = np.flatnonzero(_IS_SAID[table.kinds])
        first = said[starts_run(table.turns[said])]
        said_turns, is_trained = table.turns[first], weights[first] > 0
        counted_as = columns.counted_as[said_turns]
        for number, name in enumerate(_COUNTERS[1:], 1):
            named[name] = said_turns[(counted_as == number) & is_trained]
    return {
        name: np.bincount(table.samples[turns], minlength=n_samples)
        for name, turns in named.items()
        if len(turns)
    }


def thinking_note(counters: Mapping[str, int]) -> str:
    """Return a warning of empty think blocks beside reasoning; '' if there is nothing to say."""
    n_empty, n_reasoned = counters.get(EMPTY_THINKING, 0), counters.get(REASONED_REPLIES, 0)
    if not (n_empty and n_reasoned):
        return ""
    n_trained = counters.get(TRAINED_TURNS, 0)
    return (
        f"{n_empty:,} of {counted(n_trained, 'trained replies')} begin with an empty think block "
        f"that the template inserts and no record has, beside {n_reasoned:,} with reasoning: they "
        "teach the model not to think; --train=-empty-reasoning leaves the blocks untrained"
    )
