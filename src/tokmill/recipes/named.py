"""What settings name of the data, and the records of a run that have it.

`--keep`, `--fields`, `--template`, `--strip-end`, `--ignore-keys`, `--role-names` and `--weigh`
name fields, roles or texts. A name that no record has is a spelling mistake, or a setting for
other data. Records are counted, rather than looked up in the first ones: a name may occur late.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.rendering.built_in import parse_template, text_column
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tokmill.settings.schema import Config
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records


class Named(NamedTuple):
    """Something of the data that a setting names; `setting`: its key, such as `input.keep`."""

    setting: str
    name: str

    @property
    def label(self) -> str:
        """Return the name under which the records that have it are counted."""
        return f"{self.setting}={self.name}"


def named_by(config: Config) -> Iterator[Named]:
    """Yield what the settings of a run, or of one of its sources, name of the data."""
    for key in config.input.keep:
        yield Named("input.keep", key)
    if config.sft is None:
        for pair in config.render.fields:
            role, _, key = pair.partition("=")
            if not role.startswith("section_"):  # inside of a list: nobody can tell at this place
                yield Named("render.fields", key.strip())
        for key in _keys_of_template(config.render.template):
            yield Named("render.template", key)
        if config.render.strip_end:
            yield Named("render.strip_end", config.render.strip_end)
        return
    yield from _in_json(config.sft)
    for text in config.sft.weigh:
        yield Named("sft.weigh", text.rpartition("=")[0])


def _keys_of_template(template: str) -> Iterator[str]:
    """Yield the keys of a format string such as `{title}: {body}`, each once."""
    if template:
        yield from dict.fromkeys(key for _, key in parse_template(template) if key)


def _in_json(settings: SftSettings) -> Iterator[Named]:
    """Yield the keys and roles that settings of chats name; they stand in the JSON of a record."""
    for pair in settings.fields:
        yield Named("sft.fields", pair.partition("=")[2].strip())
    for key in settings.ignore_keys:
        yield Named("sft.ignore_keys", key)
    for pair in settings.role_names:
        yield Named("sft.role_names", pair.rpartition("=")[0].strip())


def chats_with_names(settings: SftSettings, records: Records) -> dict[str, npt.NDArray[np.bool_]]:
    """Return by label which records, (n,), have a key, or a text, of that name at any depth.

    A text counts, as a role is one; it may be another text than a role.
    """
    text = records.batch.column(WHOLE_RECORD)
    found: dict[str, npt.NDArray[np.bool_]] = {}
    for named in _in_json(settings):
        spellings = {json.dumps(named.name), json.dumps(named.name, ensure_ascii=False)}
        is_there = np.zeros(len(text), bool)
        for spelling in spellings:
            is_there |= _as_numpy(pc.match_substring(text, spelling, ignore_case=True))
        found[named.label] = is_there
    return found


def fields_with_values(config: Config, records: Records) -> dict[str, npt.NDArray[np.bool_]]:
    """Return by label which records, (n,), have a value in a field that is named or kept."""
    found: dict[str, npt.NDArray[np.bool_]] = {}
    columns = records.batch.schema.names
    for named in named_by(config):
        if named.setting == "input.keep" and records.metadata is not None:
            column = records.metadata.column(config.input.keep.index(named.name))
            found[named.label] = _as_numpy(pc.is_valid(column))
        elif named.setting in ("render.fields", "render.template") and named.name in columns:
            found[named.label] = _as_numpy(pc.is_valid(_column(records.batch, named.name)))
    return found


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return the values of a key, or of a field in an object."""
    is_text = pa.types.is_string(batch.schema.field(name).type)
    return text_column(batch, name) if is_text else batch.column(name)


def rows_with(rows: npt.NDArray[np.int64], n_rows: int) -> npt.NDArray[np.bool_]:
    """Return which of `n_rows` rows are among `rows`: (n_rows,)."""
    is_there = np.zeros(n_rows, bool)
    is_there[rows] = True
    return is_there


def _as_numpy(values: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    """Return values as NumPy has them; null is false."""
    filled = values.fill_null(False)
    array: npt.NDArray[np.bool_] = filled.to_numpy(zero_copy_only=False)
    return array
