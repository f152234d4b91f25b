"""Regular blocks: records of texts alone, read into columns without a look at each.

A block is regular when all its records have the same plain fields, filled with text: prompt and
answer, an instruction, a text, or messages of role and content. Anything else in it, and the whole
block is read record by record, which gives the same conversations where both can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from tokmill.render.chat.flat import ANSWER_KEYS, INPUT_KEYS, JOINS, PROMPT_KEYS, STANFORD
from tokmill.render.chat.messages import ROLE_NAMES
from tokmill.render.chat.segments import ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.config import SftSettings

_STRING = pa.string()
_MESSAGES = {
    "messages": pa.list_(pa.struct([("role", _STRING), ("content", _STRING)])),
    "conversations": pa.list_(pa.struct([("from", _STRING), ("value", _STRING)])),
}
_FIELDS = {
    "prompt": (*PROMPT_KEYS, *ANSWER_KEYS),
    "alpaca": ("instruction", *INPUT_KEYS, *ANSWER_KEYS),
    "text": ("text",),
}
_IGNORED = frozenset(("id", "idx", "source", "dataset", "url", "category", "lang", "language"))
"""Fields that no schema asks for, common enough to be known; any other one is not regular."""


class Regular(NamedTuple):
    """Contents of a regular block: message by message, all samples end to end.

    `contents`: string array of n messages. `roles`: (n,) int64, index in `ROLES`. `offsets`:
    (n_samples + 1,) int64. `with_input`: (n_samples,), whether the first message of each is an
    instruction with an input; None where no template asks.
    """

    contents: pa.StringArray
    roles: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    with_input: npt.NDArray[np.bool_] | None = None


def read_regular(text: pa.LargeStringArray, schema: str, settings: SftSettings) -> Regular | None:
    """Give the contents of whole records, or None where they are not regular."""
    if not len(text) or schema not in (*_MESSAGES, *_FIELDS) or settings.samples != "conversation":
        return None
    table = _parse(text, schema)
    if table is None:
        return None
    if schema in _MESSAGES:
        return _dialogs(table, schema)
    if schema == "text":
        texts = _one_of(table, ("text",))
        return None if texts is None else _flat([texts], ("assistant",))
    answer = _one_of(table, ANSWER_KEYS)
    if answer is None:
        return None
    if schema == "alpaca":
        return _instructions(table, answer, settings.instruction)
    prompt = _one_of(table, PROMPT_KEYS)
    return None if prompt is None else _flat([prompt, answer], ("user", "assistant"))


def _parse(text: pa.LargeStringArray, schema: str) -> pa.Table | None:
    offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
    data = text.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    raw = data.to_pybytes()
    if b"\\ud" in raw or b"\\uD" in raw:
        return None  # a surrogate, which may be alone
    wanted: Any = [(name, _STRING) for name in _FIELDS.get(schema, ())]
    if schema in _MESSAGES:
        wanted = [(schema, _MESSAGES[schema])]
    try:
        table = pa.json.read_json(
            pa.BufferReader(data),
            pa.json.ReadOptions(use_threads=False, block_size=data.size + 1),
            pa.json.ParseOptions(explicit_schema=pa.schema(wanted)),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    regular = {name for name, _ in wanted} | _IGNORED
    odd = [name for name in table.schema.names if name not in regular]
    if table.num_rows != len(text) or any(table[name].null_count < len(text) for name in odd):
        return None
    return table.combine_chunks()


def _column(table: pa.Table, name: str) -> pa.Array:
    chunks = table[name].chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _one_of(table: pa.Table, names: Sequence[str]) -> pa.StringArray | None:
    """Give the one column of several that is filled; None if it has nulls, or two are filled."""
    filled = [name for name in names if table[name].null_count < table.num_rows]
    if len(filled) != 1 or table[filled[0]].null_count:
        return None
    return _column(table, filled[0])


def _instructions(table: pa.Table, answer: pa.StringArray, style: str) -> Regular | None:
    instruction = _one_of(table, ("instruction",))
    inputs = [name for name in INPUT_KEYS if table[name].null_count < table.num_rows]
    if instruction is None or len(inputs) > 1:
        return None
    roles = ("user", "assistant")
    if not inputs:
        return _flat([instruction, answer], roles)
    context = pc.fill_null(_column(table, inputs[0]), "")
    has_input = pc.not_equal(context, "")
    both = pc.binary_join_element_wise(instruction, context, pa.scalar(JOINS[style], _STRING))
    prompt = pc.if_else(has_input, both, instruction)
    if style == STANFORD:
        with_input = has_input.to_numpy(zero_copy_only=False)
        return _flat([prompt, answer], roles)._replace(with_input=with_input)
    return _flat([pc.if_else(pc.equal(instruction, ""), context, prompt), answer], roles)


def _flat(columns: Sequence[pa.StringArray], roles: Sequence[str]) -> Regular:
    n, width = len(columns[0]), len(columns)
    order = np.arange(n * width).reshape(width, n).T.ravel()
    contents = pa.concat_arrays(columns).take(pa.array(order))
    of_roles = np.tile([ROLES.index(role) for role in roles], n)
    return Regular(contents, of_roles, np.arange(0, n * width + 1, width, dtype=np.int64))


def _dialogs(table: pa.Table, schema: str) -> Regular | None:
    dialogs = _column(table, schema)
    kind = dialogs.type.value_type
    messages = dialogs.flatten()
    if dialogs.null_count or messages.null_count or kind.num_fields != 2:
        return None
    said, contents = messages.field(0), messages.field(1)
    offsets = dialogs.offsets.to_numpy().astype(np.int64)
    offsets = offsets - offsets[0]
    if said.null_count or contents.null_count or not np.all(offsets[1:] > offsets[:-1]):
        return None
    encoded = said.dictionary_encode()
    known = [ROLE_NAMES.get(name) for name in encoded.dictionary.to_pylist()]
    if None in known:
        return None
    roles = np.array([ROLES.index(role) for role in known if role], np.int64)
    return Regular(contents, roles[encoded.indices.to_numpy()], offsets)
