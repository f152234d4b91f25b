"""The renderer protocol, how the renderer of a run is made, and what built-in renderers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import UsageError
from tokmill.rendering.detect import advice
from tokmill.rendering.function import FunctionRenderer, find_renderer
from tokmill.settings.schema import KEYS_OF_RECORDS
from tokmill.values import EMPTY, WHOLE_RECORD, DocumentBatch

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.rendering.fields import FieldSample
    from tokmill.settings.schema import RenderSettings
    from tokmill.values import Records, Reject


_MOST_LISTED = 12
_OF_SECTIONS = ("encyclopedia", "article", "sections")


class Renderer(Protocol):
    """Turns columns of records into documents; pure, so threads may share one."""

    name: str
    schema: pa.Schema
    """The columns that `render` reads, by their names in the source."""

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record, in order; records without text are drops."""


def make_renderer(settings: RenderSettings, sample: FieldSample | None = None) -> Renderer:
    """Return the renderer of settings in which it is not `auto`; see `detect`.

    `sample`: of the first records; None or empty if nothing could be read.

    Raises:
        UsageError: there is no such renderer, or the source has none of its fields; names those
            that it has and the renderer that fits.
    """
    name = settings.renderer_name
    value, extension = find_renderer(name)
    renderer: Renderer = value(settings) if extension is None else FunctionRenderer(value, name)
    _refuse_twins(renderer.schema)
    if sample:
        _refuse_lists(name, renderer.schema, sample)
        if name in _OF_SECTIONS:
            _refuse_paths(settings, sample)
    names = set(renderer.schema.names)
    if sample and sample.keys and not names & {*sample.keys, WHOLE_RECORD}:
        wanted, keys = ", ".join(renderer.schema.names), list(sample.keys)
        listed = ", ".join(keys[:_MOST_LISTED]) + ", …" * (len(keys) > _MOST_LISTED)
        raise UsageError(
            f"renderer {name} wants the keys {wanted}; the first records have "
            f"{listed}: {advice(settings, sample)}"
        )
    return renderer


def _refuse_lists(name: str, schema: pa.Schema, sample: FieldSample) -> None:
    """Refuse a list of strings where the renderer reads text."""
    for field in schema:
        is_list = field.name not in sample.string_keys and f"{field.name}[]" in sample.fields
        if field.type == pa.string() and is_list:
            raise UsageError(
                f"{sample.where}: {field.name} is a list: renderer {name} expects text under it: "
                "join the list first, or give a renderer of your own (--renderer=MODULE:FUNCTION)"
            )


def _refuse_paths(settings: RenderSettings, sample: FieldSample) -> None:
    """Refuse a path to a field of an object where sections are read: only text has paths."""
    sections = settings.key_of("sections")
    of_record = set(sample.keys)
    of_section = {
        path.removeprefix(f"{sections}[].")
        for path in sample.fields
        if path.startswith(f"{sections}[].")
    }
    for role in KEYS_OF_RECORDS:
        key, keys = settings.key_of(role), of_section if role.startswith("section_") else of_record
        head, dot, _ = key.partition(".")
        if role != "text" and dot and key not in keys and head in keys:
            template = "\\n".join(f"{{{settings.key_of(r)}}}" for r in ("title", "summary"))
            is_text = role in ("title", "summary")
            texts = f"name the texts with --renderer=template --template='{template}', or "
            raise UsageError(
                f"{sample.where}: {role}={key}: renderer {settings.renderer_name} expects a key "
                f"there, found a field of the object {head}: {texts if is_text else ''}give a "
                "renderer of your own (--renderer=MODULE:FUNCTION)"
            )


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


def literal(text: str) -> pa.StringScalar:
    """Return a text for `joined`; Arrow takes 50 us to convert a `str`, as long as a block."""
    return pa.scalar(text, pa.string())


_NOTHING = literal("")


def joined(*pieces: pa.StringArray | pa.StringScalar) -> pa.StringArray:
    """Return columns and literals joined row by row; at least one is a column."""
    return pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, _NOTHING)


def documents(
    records: Records, text: pa.StringArray, empty: npt.NDArray[np.bool_]
) -> DocumentBatch:
    """Return a document for each row of `text`, but for rows that are `empty`.

    Those are drops; a record that lacks every field is a reject.
    """
    rows = np.arange(len(text), dtype=np.int64)
    refused: dict[int, Reject] = {}
    drops = {}
    if empty.any():
        fields = records.batch.schema.names
        for row in rows[empty].tolist():
            keys = records.keys(row)
            if not set(keys) & set(fields):
                found = f"expected any of {', '.join(fields)}; found {', '.join(keys) or 'no keys'}"
                refused[row] = records.reject(row, "no such fields", found)
        without_text = np.setdiff1d(rows[empty], list(refused))
        drops = {EMPTY: without_text} if len(without_text) else {}
        rows = rows[~empty]
        text = text.filter(pa.array(~empty))
    return DocumentBatch(text.cast(pa.large_string()), rows, refused, drops)
