"""The renderer protocol, and how the renderer of a run is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tokmill.errors import UsageError
from tokmill.render.detect import advice
from tokmill.render.function import FunctionRenderer, find_renderer
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

    from tokmill.fields import FieldSample
    from tokmill.settings.schema import RenderSettings
    from tokmill.values import DocumentBatch, Records


class Renderer(Protocol):
    """Turns columns of records into documents; pure, so threads may share one."""

    name: str
    schema: pa.Schema
    """The columns that `render` reads, by their names in the source."""

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record, in order; rejects records without text."""


def make_renderer(settings: RenderSettings, sample: FieldSample | None = None) -> Renderer:
    """Return the renderer of settings in which it is not `auto`; see `detect`.

    `sample`: of the first records; None or empty if nothing could be read.

    Raises:
        UsageError: there is no such renderer, or the source has none of its fields; names those
            that it has and the renderer that fits.
    """
    name = settings.renderer
    value, extension = find_renderer(name)
    renderer: Renderer = value(settings) if extension is None else FunctionRenderer(value, name)
    _refuse_twins(renderer.schema)
    names = set(renderer.schema.names)
    if sample and sample.keys and not names & {*sample.keys, WHOLE_RECORD}:
        wanted = ", ".join(renderer.schema.names)
        raise UsageError(
            f"renderer {name} wants the keys {wanted}; the first records have "
            f"{_listed(sample.keys)}: {advice(settings, sample)}"
        )
    return renderer


def _refuse_twins(schema: pa.Schema) -> None:
    """Refuse two fields of one key, at any depth: Arrow's JSON parser would crash."""
    fields = list(schema)
    while fields:
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twin = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"two fields have the key {twin!r}: name different keys")
        nested = [field.type.value_type for field in fields if hasattr(field.type, "value_type")]
        fields = [field for kind in nested for field in kind]


def _listed(keys: Collection[str]) -> str:
    shown = list(keys)[:12]
    return ", ".join(shown) + (", …" if len(keys) > len(shown) else "")
