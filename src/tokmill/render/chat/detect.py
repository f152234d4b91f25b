"""What the first records settle: the schema, and whether their `label` means good and bad."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.render.chat.fields import of_record
from tokmill.render.chat.keys import LABEL_KEY
from tokmill.render.chat.preference import has_other_labels, preference
from tokmill.render.chat.schemas import FIELDS_BY_SCHEMA, MIXED, recognise
from tokmill.render.chat.values import shown_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.config import SftSettings


def settle_records(
    settings: SftSettings, records: Sequence[Mapping[str, Any]], where: str = "records"
) -> SftSettings:
    """Return the settings with what the first records settle, fixed for the whole run.

    A `label` that is something else than good or bad in one of them is no label of preference data
    in any: it is ignored. With a schema that was named, a record that does not fit is refused when
    it is read.

    Raises:
        UsageError: no record has a known shape, or one is preference data.
    """
    records = [of_record(record, settings) for record in records]
    if has_other_labels(records):
        settings = replace(settings, ignore_keys=(*settings.ignore_keys, LABEL_KEY))
        records = [of_record(record, settings) for record in records]
    if settings.schema != "auto":
        return settings
    for record in records:
        if reason := preference(record, recognise(record)):
            raise UsageError(f"{where}: {reason}")
    return replace(settings, schema=detect_schema(records, where))


def detect_schema(records: Sequence[Mapping[str, Any]], where: str = "records") -> str:
    """Return the schema of the first records: one of the table's, or "mixed" for several kinds.

    Records of no known shape do not count as long as others have one: they are refused when read.
    No records at all are "messages".

    Raises:
        UsageError: no record has a known shape.
    """
    found = {kind for kind in map(recognise, records) if kind}
    if records and not found:
        keys = list(dict.fromkeys(key for record in records for key in record))
        known = "; ".join(f"{name}: {fields}" for name, fields in FIELDS_BY_SCHEMA.items())
        raise UsageError(
            f"{where}: no known schema: found {shown_keys(keys)}; known: {known}: rename the fields"
        )
    return "messages" if not records else found.pop() if len(found) == 1 else MIXED
