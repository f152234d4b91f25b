"""The renderers `template`, a format string over fields, and `text`, one field."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import UsageError
from tokmill.render.renderer import documents, joined, literal

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        self.schema = pa.schema([(field, pa.string()) for field in fields])

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; rejects records whose fields are all empty."""
        columns = {
            name: pc.fill_null(column, "")
            for name, column in zip(self.schema.names, records.batch.columns, strict=True)
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
        self.schema = pa.schema([(field, pa.string()) for field in fields])

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; rejects records whose fields are all empty."""
        none = pa.scalar(None, pa.string())
        filled = [pc.if_else(pc.equal(c, ""), none, c) for c in records.batch.columns]
        text = pc.fill_null(pc.coalesce(*filled), "")
        return documents(records, text, pc.equal(text, "").to_numpy(zero_copy_only=False))


def text_renderer(settings: RenderSettings) -> Template | FirstText:
    """Return the renderer of one field, or of the first filled one of several."""
    fields = settings.keys_of("text")
    return FirstText(fields) if len(fields) > 1 else Template("{" + fields[0] + "}", "text")


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
