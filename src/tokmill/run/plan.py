"""The plan of a run: its engine and parts, made from inputs and output-affecting settings alone.

`plan.json` fixes both for all workers and for later attempts of the same run.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import json_chunks
from tokmill.dataset.layout import PLAN, SHARD_BYTES, token_dtype
from tokmill.dataset.plan_file import PLAN_FORMAT, parse_plan, plan_fingerprint
from tokmill.recipes.spec import Part, RunSpec
from tokmill.run.task_entry import task_entry
from tokmill.sources.files import Slice, SourceFile, cut
from tokmill.sources.json_lines import parser_entry
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tokmill.dataset.place import Place
    from tokmill.settings.schema import Config
    from tokmill.tokenizer.tokenizer import Tokenizer


PART_BYTES, SFT_PART_BYTES = 256 << 20, 64 << 20
_MOST_PARTS = 4_000
"""Parts by default; a record of each is read to finish."""

MAX_SLICES = 16_384
"""Most slices of a part: a worker holds the counts of each, and a million tiny files need many
workers."""

_FILE_VALUES = len(fields(SourceFile))


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before its first token: the settings of its workers, and its parts in order."""

    spec: RunSpec
    parts: tuple[Part, ...]

    def head(self) -> dict[str, Any]:
        """Return the content of `plan.json` without files and parts."""
        return {
            **self.spec.identity(),
            **self.spec.outside(),
            "tokmill_version": __version__,
            "checksum": self.spec.config.output.checksum,
            "engine": self.spec.engine.as_json(),
            "parser": parser_entry(),
        }

    def files(self) -> Iterator[list[Any]]:
        """Yield every input file once, as a row of `plan.json`, in the order of its first slice.

        If files are read in several ways, a row ends with the number of its reading.
        """
        readings = {piece.file: part.reading for part in self.parts for piece in part.slices}
        for file in self._numbered():
            row = astuple(file)
            yield [*row, readings[file]] if self.spec.readings else [*row]

    def rows_of_parts(self) -> Iterator[list[list[int]]]:
        """Yield every part as a row of `plan.json`: its slices, each file as its row in `files`."""
        numbers = self._numbered()
        for part in self.parts:
            yield [[numbers[s.file], s.start, s.stop, s.n_bytes] for s in part.slices]

    def _numbered(self) -> dict[SourceFile, int]:
        numbers: dict[SourceFile, int] = {}
        for part in self.parts:
            for piece in part.slices:
                numbers.setdefault(piece.file, len(numbers))
        return numbers

    def chunks(self) -> Iterator[bytes]:
        """Return the bytes of `plan.json`, about 1 MiB at a time."""
        task = task_entry(self.spec)

        def body() -> dict[str, Any]:
            """Return all but the fingerprint; the rows of files and parts are iterators."""
            rows = {"files": self.files(), "parts": self.rows_of_parts()}
            return {**self.head(), "format": PLAN_FORMAT, "task": task, **rows}

        return json_chunks({**body(), "fingerprint": plan_fingerprint(body())})


def resolve(config: Config, tokenizer: Tokenizer, renderer: str, n_bytes: int) -> Config:
    """Return the settings with `auto` and 0 replaced where a byte depends on them.

    `n_bytes`: of all inputs.

    Raises:
        TokenizerError: dtype uint16 is asked for and cannot hold the tokenizer's ids.
    """
    dtype = token_dtype(config.output.dtype, tokenizer.max_emittable_id)
    output = replace(
        config.output,
        dtype=dtype.name,
        part_bytes=config.output.part_bytes or _part_bytes(n_bytes, is_sft=config.sft is not None),
        shard_tokens=config.output.shard_tokens or SHARD_BYTES // dtype.itemsize,
    )
    return replace(config, output=output, render=replace(config.render, renderer=renderer))


def _part_bytes(n_bytes: int, *, is_sft: bool) -> int:
    """Return the size of a part by default: about 5 to 30 seconds of work on two cores."""
    least = SFT_PART_BYTES if is_sft else PART_BYTES
    return max(least, -(-n_bytes // _MOST_PARTS))


def make_parts(
    files: Iterable[SourceFile], part_bytes: int, readings: Mapping[SourceFile, int] | None = None
) -> tuple[Part, ...]:
    """Return parts of about `part_bytes` and at most `MAX_SLICES`, in the order of the files.

    A larger file is cut where its format allows; smaller files share a part, if they are read in
    the same way. `readings`: how each file is read; None: all in one way.
    """
    parts: list[Part] = []
    gathered: list[Slice] = []
    n_bytes = reading = 0
    for file in files:
        of_file = readings[file] if readings else 0
        for piece in cut(file, part_bytes):
            is_full = n_bytes + piece.n_bytes > part_bytes or len(gathered) == MAX_SLICES
            if gathered and (is_full or of_file != reading):
                parts.append(Part(len(parts), tuple(gathered), reading))
                gathered, n_bytes = [], 0
            reading = of_file
            gathered.append(piece)
            n_bytes += piece.n_bytes
    if gathered:
        parts.append(Part(len(parts), tuple(gathered), reading))
    return tuple(parts)


def planned_parts(found: dict[str, Any]) -> tuple[Part, ...]:
    """Return the parts of a `plan.json`, which `read_plan` has read."""
    files = [SourceFile(*row[:_FILE_VALUES]) for row in found["files"]]
    readings = [sum(row[_FILE_VALUES:]) for row in found["files"]]  # 0 if all are read in one way
    return tuple(
        Part(
            index,
            tuple(Slice(files[number], *rest) for number, *rest in rows),
            readings[rows[0][0]],
        )
        for index, rows in enumerate(found["parts"])
    )


def read_plan(place: Place) -> dict[str, Any] | None:
    """Read the plan of a place; None if it has none.

    Raises:
        StateError: it is damaged, not tokmill's, or of a newer format.
    """
    where = f"{place.where}/{PLAN}"
    try:
        return parse_plan(place.read(PLAN), where)
    except FileNotFoundError:
        return None
