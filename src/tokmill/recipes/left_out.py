"""Which fields of the records a run leaves out: weighed on samples, and judged by source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import RecordError
from tokmill.fields import (
    counted,
    describe_fields,
    sort_used_first,
    used_paths,
    used_share,
    weigh,
)
from tokmill.render.renderer import make_renderer
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.settings.schema import Config, RenderSettings
    from tokmill.values import Records

    Weighed = tuple[int, Mapping[str, int]]
    Row = Mapping[str, Any]

REFUSED = 0.5
"""A source of which less of the text is used is an error, unless the user named the fields."""

_FIRST_SLICES, _EVERY_SLICE = 32, 128


def is_weighed_slice(slice_index: int) -> bool:
    """Return whether the records at the head of a slice of a part are weighed.

    Not of every one: to weigh the only record of a tiny file takes a tenth of what the file takes.
    """
    return slice_index < _FIRST_SLICES or slice_index % _EVERY_SLICE == 0


def weigh_records(
    records: Records, kept: npt.NDArray[np.int64], used: frozenset[str], labels: frozenset[str]
) -> list[Weighed]:
    """Return the bytes of the fields of sampled records, with their rows.

    `kept`: (n,) the rows that became documents, increasing; other rows are not weighed. `labels`:
    fields that hold no text.
    """
    found: list[Weighed] = []
    nested = {path.partition("[")[0] for path in used if "[" in path}
    for row, record in records.samples:
        at = int(np.searchsorted(kept, row))
        if at < len(kept) and kept[at] == row:
            counts = counted(weigh(record, nested), used, labels)
            found.append((row, sort_used_first(counts, used)))
    return found


def fields_read(config: Config) -> frozenset[str]:
    """Return the paths that the renderer of a run reads; none for chats."""
    if config.sft is not None:
        return frozenset()
    return used_paths(make_renderer(config.render).schema)


def check_fields(
    render: RenderSettings, fraction: float, rows: Sequence[Row], used: Collection[str]
) -> None:
    """Make sure that no source loses most of its text: the fields were not named by the user.

    Args:
        render: the render settings, without `auto`.
        fraction: of the weighed sources, as many may.
        rows: sources as the manifest has them.
        used: paths of the fields that are read.

    Raises:
        RecordError: more do, or the run as a whole does.
    """
    weighed = [row for row in rows if row.get("fields")]
    lost = [row for row in weighed if used_share(row["fields"], used) < REFUSED]
    if not lost or len(lost) <= fraction * len(weighed):
        return
    row = lost[0]
    which = (
        f"{row['path']}: " if len(lost) == 1 else f"{plural(len(lost), 'file')}, as {row['path']}: "
    )
    named = "encyclopedia"
    if render.renderer == "text":
        named = f"text --text-field {render.text_field}"
    raise RecordError(
        f"{which}most of the text is left out: used are {describe_fields(row['fields'], used)}; "
        "give files of one kind to a run, or name the fields of all with --template; to accept it "
        f"run again with --renderer {named}"
    )
