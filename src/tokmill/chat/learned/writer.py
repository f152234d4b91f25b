"""Writes blocks of regular conversations as a Jinja template does, from what was learned of it.

A record is written this way if its roles have a pattern, and its contents hold no string that the
template or tokmill looks for. All other records of the block are rendered. Both give the same
samples; some records are written in both ways, and a difference ends the run.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from tokmill.chat.control_strings import holds, patterns
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.learned.assembly import assembled
from tokmill.chat.learned.groups import ends_of, grouped, with_blank_ends
from tokmill.chat.learned.merging import equal, merged, placed, selected
from tokmill.chat.learned.pattern import BLANKS, STRIPS, UNKNOWN, Joints, learn
from tokmill.chat.records import Written
from tokmill.chat.segments import ROLES
from tokmill.errors import ParityError
from tokmill.offsets import byte_offsets
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Message
    from tokmill.chat.learned.groups import Groups
    from tokmill.chat.learned.pattern import Pattern
    from tokmill.chat.reading.columns import Regular
    from tokmill.chat.records import RecordWriter
    from tokmill.chat.segments import Columns
    from tokmill.chat.templates import ChatTemplate
    from tokmill.settings.sft import SftSettings

_AT_ONCE, _WORTH_LEARNING = 64, 8
"""The first patterns are learned at once, the others for so many records with the same roles: a
pattern takes eight renderings."""

_CHECKED = 256
"""One record of so many is compared, besides the first with each pattern."""


def learned_writer(
    settings: SftSettings, template: ChatTemplate, writer: RecordWriter, vocabulary: Vocabulary
) -> LearnedWriter | None:
    """Return what writes as a Jinja template does; None if its way may depend on contents.

    `writer`: renders records with the template.
    """
    looked_for: frozenset[str] | None = getattr(template, "looked_for", None)
    if looked_for is None or settings.spans != "auto" or settings.schema == "text":
        return None
    prompt: str = getattr(template, "generation_prompt", "")
    return LearnedWriter(template.name, prompt, looked_for, writer, vocabulary)


class LearnedWriter:
    """Writes the records of a block from patterns; threads may share one.

    `name`, `prompt`, `looked_for`: of the template. `writer`: renders records with it.
    """

    def __init__(
        self,
        name: str,
        prompt: str,
        looked_for: frozenset[str],
        writer: RecordWriter,
        vocabulary: Vocabulary,
    ) -> None:
        self._writer = writer
        self._name = name
        marks = set(map(chr, range(0xE000, 0xE003)))  # of the renderer
        closing = writer.forms.closing_tags
        self._avoided = {*looked_for, *vocabulary.control, *closing, *writer.kept.strings, *marks}
        self._avoided -= {""}
        self._special = patterns(self._avoided)
        self._joints = Joints(frozenset(vocabulary.control) - {""}, prompt)
        self._patterns: dict[tuple[int, ...], Pattern | None] = {}
        self._n_seen = Counter[tuple[int, ...]]()
        self._lock = threading.Lock()

    def write(
        self,
        regular: Regular,
        text: pa.LargeStringArray,
        render: Callable[[pa.LargeStringArray], Written],
    ) -> Written | None:
        """Return the samples of a block; None if no record has a pattern.

        `text`: its n records; `render` returns the samples of records as the template writes them.

        Raises:
            ParityError: the template writes a record otherwise.
        """
        if regular.with_input is not None:
            return None  # a template could write instructions with an input in another way
        groups = grouped(regular)
        with self._lock:  # or every thread would learn the same patterns
            found, is_first = self._patterns_of(groups)
        rows = np.flatnonzero(np.array([p is not None for p in found])[groups.of_row])
        contents, refused = self._contents(regular, groups, found)
        rows = rows[~refused[rows]]
        if not len(rows):
            return None
        columns = assembled(contents, regular.offsets[rows], groups.of_row[rows], found)
        self._check(columns, rows, text, groups.of_row[rows], is_first)
        written = Written(columns, rows, [], {}, regular.unread, {})
        rest = np.delete(np.arange(len(text)), rows)
        if not len(rest):
            return written
        rendered = render(text.take(pa.array(rest)))
        return merged(written, placed(rendered, rest, len(text)))

    def _patterns_of(self, groups: Groups) -> tuple[list[Pattern | None], list[bool]]:
        """Return the pattern of each kind, with None at the end for -1, and which are new."""
        counts = np.bincount(groups.of_row[groups.of_row >= 0], minlength=len(groups.kinds))
        found: list[Pattern | None] = []
        is_new = []
        for roles, n in zip(groups.kinds, counts.tolist(), strict=True):
            is_new.append(roles not in self._patterns)
            if is_new[-1]:
                self._n_seen[roles] += n
                if len(self._patterns) < _AT_ONCE or self._n_seen[roles] >= _WORTH_LEARNING:
                    self._patterns[roles] = learn(roles, self._render, self._joints, self._avoided)
            found.append(self._patterns.get(roles))
        return [*found, None], is_new

    def _render(self, roles: Sequence[int], contents: Sequence[str]) -> Columns | None:
        messages: list[Message] = [
            {"role": ROLES[role], "content": content}
            for role, content in zip(roles, contents, strict=True)
        ]
        try:
            written = self._writer.write_conversation(
                Conversation(messages, [None] * len(messages))
            )
        except ChatError:
            return None
        return None if written.noticed else written.columns

    def _contents(
        self, regular: Regular, groups: Groups, found: Sequence[Pattern | None]
    ) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
        """Return contents without the white space that the template strips, and refused rows."""
        contents, offsets = regular.contents, regular.offsets
        refused = np.zeros(len(contents), bool)
        if holds(contents, self._special):
            for pattern in self._special:
                has = pc.match_substring_regex(contents, pattern)
                refused |= has.to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        spaced = with_blank_ends(contents)
        if len(spaced):
            trimmed = pc.utf8_trim(contents.take(pa.array(spaced)), characters=BLANKS)
            refused[spaced] |= pc.binary_length(trimmed).to_numpy() == 0
            way = ends_of(spaced, row[spaced], offsets, groups, found)
            refused[spaced] |= way == UNKNOWN
            stripped = spaced[way == STRIPS]
            if len(stripped):
                mask = np.zeros(len(contents), bool)
                mask[stripped] = True
                chosen = trimmed.filter(pa.array(way == STRIPS))
                contents = pc.replace_with_mask(contents, pa.array(mask), chosen)
        return contents, np.logical_or.reduceat(refused, offsets[:-1])

    def _check(
        self,
        columns: Columns,
        rows: npt.NDArray[np.int64],
        text: pa.LargeStringArray,
        of_row: npt.NDArray[np.int64],
        is_new: Sequence[bool],
    ) -> None:
        """Compare some records with the rendering of the template; a hash of a record decides."""
        offsets, data = byte_offsets(text), memoryview(text.buffers()[2])
        starts, stops = offsets[rows].tolist(), offsets[rows + 1].tolist()
        digest = xxhash.xxh3_64_intdigest
        chosen = {
            i for i, (a, b) in enumerate(zip(starts, stops, strict=True))
            if digest(data[a:b]) % _CHECKED == 0
        }  # fmt: skip
        kinds, firsts = np.unique(of_row, return_index=True)
        chosen.update(
            i for kind, i in zip(kinds.tolist(), firsts.tolist(), strict=True) if is_new[kind]
        )
        if not chosen:
            return
        samples = np.array(sorted(chosen), np.int64)
        rendered = self._writer.write(text.take(pa.array(rows[samples])))
        same = len(rendered.rows) == len(samples)
        if not (same and equal(selected(columns, samples), rendered.columns)):
            raise ParityError(
                f"{self._name}: what was learned from this template differs from what it writes "
                f"for one of {plural(len(samples), 'record')}, of which the first begins "
                f"{text[int(rows[samples[0]])].as_py()[:60]!r}: render every record, with "
                "--spans=tags if the template has generation tags, or with --spans=prefix"
            )
