"""The built-in renderers: `text`, `template`, and of sections `encyclopedia` and `article`.

Text is one field, or the first filled one of several; a template is a format string over fields.
Examples of the others, `encyclopedia` with its default separator and terminator, then `article`:

    {"title": "猫", "summary": "哺乳动物", "sections": [{"title": "习性", "content": "夜行"}]}
    猫:哺乳动物习性:夜行。

    {"title": "Cat", "summary": "A mammal.", "sections": [{"title": "Habits", "content": "Hunts."}]}
    Cat

    A mammal.

    Habits
    Hunts.

The formula of encyclopedias is `title:summary`, then `title:content。` for each section. It comes
from baby-llama2-chinese (github.com/DLLXW/baby-llama2-chinese), where the separator is the
full-width colon. An article has a blank line between its pieces, and a line end between a section's
title and its content; a piece without text leaves nothing behind. A field that is missing or null
counts as empty, also inside a section.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import UsageError
from tokmill.offsets import offsets_of
from tokmill.rendering.renderer import documents, joined, literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.settings.schema import RenderSettings
    from tokmill.values import DocumentBatch, Records


class Template:
    """Fills string columns into a format string such as `{title}: {body}`; null counts as empty."""

    def __init__(self, template: str, name: str) -> None:
        self.name = name
        self._pieces: list[str | pa.StringScalar] = []
        """Names of columns, and literals."""
        for text, field in parse_template(template):
            self._pieces += [*([literal(text)] if text else ()), *([field] if field else ())]
        fields = dict.fromkeys(piece for piece in self._pieces if isinstance(piece, str))
        self._fields = tuple(fields)
        self.schema = _schema_of_texts(self._fields)

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; drops records whose fields are all empty."""
        columns = {
            name: pc.fill_null(text_column(records.batch, name), "") for name in self._fields
        }
        pieces = (columns[p] if isinstance(p, str) else p for p in self._pieces)
        lengths = [pc.binary_length(column).to_numpy() for column in columns.values()]
        return documents(records, joined(*pieces), np.sum(lengths, axis=0) == 0)


def template_renderer(settings: RenderSettings) -> Template:
    """Return the renderer of the template in the settings; raises `UsageError` if it is wrong."""
    if not settings.template:
        raise UsageError("renderer template needs a --template such as '{title}\\n{body}'")
    return Template(settings.template, "template")


class FirstText:
    """Takes the first of several string columns that is filled."""

    name = "text"

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = tuple(fields)
        self.schema = _schema_of_texts(self._fields)

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; drops records whose fields are all empty."""
        none = pa.scalar(None, pa.string())
        columns = [text_column(records.batch, name) for name in self._fields]
        filled = [pc.if_else(pc.equal(column, ""), none, column) for column in columns]
        text = pc.fill_null(pc.coalesce(*filled), "")
        return documents(records, text, pc.equal(text, "").to_numpy(zero_copy_only=False))


def text_renderer(settings: RenderSettings) -> Template | FirstText:
    """Return the renderer of one field, or of the first filled one of several."""
    fields = settings.keys_of("text")
    return FirstText(fields) if len(fields) > 1 else Template("{" + fields[0] + "}", "text")


def _schema_of_texts(names: Sequence[str]) -> pa.Schema:
    """Return the columns of texts: `a.b` is the key `a.b`, or else b in the object a."""
    columns = [pa.field(name, pa.string()) for name in names]
    return pa.schema([*columns, *_objects_of(names)])


def _objects_of(names: Sequence[str]) -> list[pa.Field]:
    """Return the columns of objects that hold the texts with a dot in their names."""
    inside: dict[str, list[str]] = {}
    for name in names:
        key, _, inner = name.partition(".")
        if key and inner:
            inside.setdefault(key, []).append(inner)
    both = next((key for key in inside if key in names), None)
    if both is not None:
        raise UsageError(f"{both} is named, and {both}.{inside[both][0]} inside it: name one")
    objects = []
    for key, inner_names in inside.items():
        texts = [pa.field(name, pa.string()) for name in inner_names if "." not in name]
        objects.append(pa.field(key, pa.struct([*texts, *_objects_of(inner_names)])))
    return objects


def text_column(batch: pa.RecordBatch, name: str) -> pa.StringArray:
    """Return the texts of a key, or of a field in an object; see `_schema_of_texts`."""
    column = batch.column(name)
    key, _, inner = name.partition(".")
    if not (key and inner):
        return column
    return pc.coalesce(column, pc.struct_field(batch.column(key), inner.split(".")))


def parse_template(template: str) -> list[tuple[str, str]]:
    """Return a format string as pairs (literal, field); the last field may be empty.

    Raises:
        UsageError: braces do not match, there is no field, or one has no name, a format or a
            conversion.
    """
    pieces = []
    try:
        for text, field, form, conversion in string.Formatter().parse(template):
            if form or conversion or (field is not None and not field):
                raise UsageError(
                    f"template {template!r}: expected plain named fields like {{title}}, "
                    f"found {{{field or ''}{'!' + conversion if conversion else ''}"
                    f"{':' + form if form else ''}}}"
                )
            pieces.append((text, field or ""))
    except ValueError as error:
        raise UsageError(f"template {template!r}: {error}; write {{{{ for a brace") from None
    if not any(field for _, field in pieces):
        raise UsageError(f"template {template!r}: has no field such as {{title}}")
    return pieces


def _schema(settings: RenderSettings) -> pa.Schema:
    """Return the columns of a title, a summary and a list of sections."""
    names = (settings.key_of("section_title"), settings.key_of("section_content"))
    section = pa.struct([(name, pa.string()) for name in names])
    return pa.schema(
        [
            (settings.key_of("title"), pa.string()),
            (settings.key_of("summary"), pa.string()),
            (settings.key_of("sections"), pa.list_(section)),
        ]
    )


class Encyclopedia:
    """Renders the columns `title`, `summary` and `sections`; works on whole Arrow columns."""

    name = "encyclopedia"

    def __init__(self, settings: RenderSettings) -> None:
        self._separator, self._terminator = map(literal, (settings.separator, settings.terminator))
        self._separator_bytes = len(settings.separator.encode())
        self._section_bytes = self._separator_bytes + len(settings.terminator.encode())
        self.schema = _schema(settings)

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; drops records without text."""
        return documents(records, *self.texts(records.batch))

    def texts(self, batch: pa.RecordBatch) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
        """Return the document of each of n records, and whether it is without text: (n,)."""
        title, summary, sections = batch.columns
        n_sections = pc.fill_null(pc.list_value_length(sections), 0).to_numpy()
        items = sections.flatten()
        heading, content = (pc.fill_null(pc.struct_field(items, [i]), "") for i in (0, 1))
        each = joined(heading, self._separator, content, self._terminator)
        # The sections stand end to end in their buffer: a record's need no copy, but its offsets.
        offsets = np.frombuffer(each.buffers()[1] or bytes(4), np.int32)[offsets_of(n_sections)]
        data = each.buffers()[2] or pa.py_buffer(b"")
        bodies = pa.StringArray.from_buffers(len(title), pa.py_buffer(offsets), data)
        text = joined(pc.fill_null(title, ""), self._separator, pc.fill_null(summary, ""), bodies)
        # A document without text is as long as its separators and terminators.
        bare = n_sections * self._section_bytes + self._separator_bytes
        return text, pc.binary_length(text).to_numpy() == bare


class Article:
    """Renders the columns `title`, `summary` and `sections`; works on whole Arrow columns."""

    name = "article"

    def __init__(self, settings: RenderSettings) -> None:
        self.schema = _schema(settings)

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; drops records without text."""
        return documents(records, *self.texts(records.batch))

    def texts(self, batch: pa.RecordBatch) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
        """Return the document of each of n records, and whether it is without text: (n,)."""
        title, summary, sections = batch.columns
        n_sections = pc.fill_null(pc.list_value_length(sections), 0).to_numpy()
        n_records = len(title)
        items = sections.flatten()
        heading, content = (pc.fill_null(pc.struct_field(items, [i]), "") for i in (0, 1))
        has_both = pc.and_(pc.not_equal(heading, ""), pc.not_equal(content, ""))
        bodies = joined(heading, pc.if_else(has_both, "\n", ""), content)
        # The columns end to end; a record's pieces are its title, its summary, its sections.
        pieces = pa.concat_arrays([title, summary, bodies])
        starts = offsets_of(n_sections + 2)
        order = np.empty(starts[-1], np.int64)
        is_section = np.ones(starts[-1], bool)
        for index in (0, 1):
            at = starts[:-1] + index
            order[at] = np.arange(n_records) + index * n_records
            is_section[at] = False
        order[is_section] = np.arange(len(bodies)) + 2 * n_records
        ordered = pieces.take(pa.array(order))
        is_filled = pc.fill_null(pc.not_equal(ordered, ""), False)
        ends = offsets_of(is_filled.to_numpy(zero_copy_only=False))[starts].astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), ordered.filter(is_filled))
        return pc.binary_join(lists, "\n\n"), np.diff(ends) == 0
