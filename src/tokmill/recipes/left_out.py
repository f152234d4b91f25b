"""The fields that a run leaves out: which slices show them, and the check of each source."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tokmill.errors import RecordError
from tokmill.rendering.fields import describe_fields, used_paths, used_share
from tokmill.rendering.renderer import make_renderer
from tokmill.values import WHOLE_RECORD
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tokmill.dataset.manifest import SourceEntry
    from tokmill.recipes.spec import Part, ReadingSettings, RunSpec
    from tokmill.settings.schema import RenderSettings

REFUSED = 0.5
"""If less of a source's text is used, that is an error, unless the user named the fields."""

_FIRST_SLICES, _EVERY_SLICE = 32, 128


def is_weighed_slice(slice_index: int) -> bool:
    """Return whether the first records of a part's slice are weighed.

    Not for every slice: weighing the only record of a tiny file takes a tenth of its time.
    """
    return slice_index < _FIRST_SLICES or slice_index % _EVERY_SLICE == 0


def fields_read(reading: ReadingSettings) -> frozenset[str]:
    """Return the paths that a renderer reads; none in SFT."""
    if reading.sft is not None:
        return frozenset()
    return used_paths(make_renderer(reading.render).schema) - {WHOLE_RECORD}


def check_read_fields(
    spec: RunSpec, parts: Sequence[Part], sources: Sequence[SourceEntry]
) -> list[frozenset[str]]:
    """Check that no source loses most of its text; return the paths that each reading reads.

    `sources`: the input files of the run.

    Raises:
        RecordError: see `check_fields`.
    """
    read, fraction = [], spec.config.limits.max_reject_fraction
    for number, reading in enumerate(spec.readings):
        used = fields_read(reading)
        if used and not reading.is_named:
            own_parts = [part for part in parts if part.reading == number]
            paths = {piece.file.path for part in own_parts for piece in part.slices}
            check_fields(
                reading.render, fraction, [one for one in sources if one.path in paths], used
            )
        read.append(used)
    return read


def check_fields(
    render: RenderSettings, fraction: float, sources: Sequence[SourceEntry], used: Collection[str]
) -> None:
    """Check that no source loses most of its text.

    `fraction`: the share of the weighed sources that may. `used`: paths of the fields that are
    read.

    Raises:
        RecordError: more sources lose most of their text.
    """
    weighed = [source for source in sources if source.counts.fields]
    lost = [one for one in weighed if used_share(one.counts.fields, used) < REFUSED]
    if not lost or len(lost) <= fraction * len(weighed):
        return
    first = lost[0]
    fields = describe_fields(first.counts.fields, used)
    where = first.path if len(lost) == 1 else f"{plural(len(lost), 'file')}, as {first.path}"
    named = render.renderer
    if render.renderer == "text":
        keys = ",".join(f"text={key}" for key in render.keys_of("text"))
        named = f"text --fields={shlex.quote(keys)}"
    raise RecordError(
        f"{where}: most of the text is left out: used are {fields}; "
        "give files of one kind to a run, or name the fields of all with --template; to accept it "
        f"run again with --renderer={named}"
    )
