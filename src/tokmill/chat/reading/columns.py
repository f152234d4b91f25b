"""Regular blocks: the fast path, which reads records into columns.

A block is regular if all its records have the same plain fields, filled with text: prompt and
answer, an instruction, a text, or messages of role and content. With anything else, the whole block
is read record by record; both paths give the same conversations.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from tokmill.chat.reading.instructions import JOINS, STANFORD
from tokmill.chat.reading.names import (
    ANSWER_KEYS,
    CALL_KEYS,
    INPUT_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    SWITCH_KEYS,
    given_fields,
    meaningful_keys,
    role_of,
)
from tokmill.chat.segments import ROLES
from tokmill.values import UnreadKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.settings.sft import SftSettings

_STRING = pa.string()
_MESSAGES = {"messages": ("role", "content"), "conversations": ("from", "value")}
_FIELDS = {
    "prompt": (*PROMPT_KEYS, *INPUT_KEYS, *ANSWER_KEYS),
    "alpaca": ("instruction", *INPUT_KEYS, *ANSWER_KEYS),
    "text": ("text",),
}
_ODD_IN_MESSAGES = (CALL_KEYS, REASONING_KEYS, SWITCH_KEYS, ("name", "tool_call_id", "refusal"))
_MOST_COLUMNS = 62
"""`_unread` has one bit of an int64 for each column."""


class Regular(NamedTuple):
    """Contents of a regular block, message by message, all samples one after another.

    `contents`: string array of n messages. `roles`: (n,) int64, index in `ROLES`. `offsets`:
    (n_samples + 1,) int64. `with_input`: (n_samples,), whether the first message of each is an
    instruction with an input; None if no template needs it. `unread`: keys that nothing reads.
    """

    contents: pa.StringArray
    roles: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    with_input: npt.NDArray[np.bool_] | None = None
    unread: UnreadKeys | None = None


def read_regular(text: pa.LargeStringArray, schema: str, settings: SftSettings) -> Regular | None:
    """Return the contents of whole records; None if they are not regular."""
    if not len(text) or schema not in (*_MESSAGES, *_FIELDS) or settings.samples != "conversation":
        return None
    if schema == "text" and settings.rendered_text == "parse":
        return None
    wanted = _wanted(schema, settings)
    ignored = frozenset(settings.ignore_keys)
    if wanted is None or (schema in _MESSAGES and not ignored.isdisjoint(wanted)):
        return None
    table = _parse(text, schema, settings, wanted)
    if table is None:
        return None
    unread = _unread(table, meaningful_keys(schema).union(wanted) - ignored)
    table = table.drop_columns(sorted(ignored.intersection(table.schema.names)))
    if schema in _MESSAGES:
        regular = _dialogs(_column(table, next(iter(wanted))), settings)
    else:
        regular = _flats(table, schema, settings)
    return None if regular is None else regular._replace(unread=unread)


def plain_rows(text: pa.LargeStringArray, schema: str) -> npt.NDArray[np.bool_] | None:
    """Return which records, of a block that is not regular, may be: (n,) bool; None if all or none.

    Those without a key that is read in another way, such as `tool_calls`, wherever it stands.
    """
    if schema in _MESSAGES:
        odd = meaningful_keys(schema).union(*_ODD_IN_MESSAGES) - {schema}
    elif schema in _FIELDS:
        odd = meaningful_keys(schema).difference(_FIELDS[schema])
    else:
        return None
    found = pc.match_substring_regex(text, f'"(?:{"|".join(map(re.escape, sorted(odd)))})"\\s*:')
    is_plain: npt.NDArray[np.bool_] = pc.invert(found).to_numpy(zero_copy_only=False)
    return None if is_plain.all() or not is_plain.any() else is_plain


def _wanted(schema: str, settings: SftSettings) -> dict[str, pa.DataType] | None:
    """Return the columns to read, with their types; None for names that need the slow path."""
    fields = given_fields(settings.fields)
    if schema not in _MESSAGES:
        return None if fields else dict.fromkeys(_FIELDS[schema], _STRING)
    if fields and (schema != "messages" or not fields.keys() <= {"messages", "role", "content"}):
        return None
    role, content = (fields.get(name, name) for name in _MESSAGES[schema])
    message = pa.struct([(role, _STRING), (content, _STRING)])
    return {fields.get(schema, schema): pa.list_(message)}


def _flats(table: pa.Table, schema: str, settings: SftSettings) -> Regular | None:
    if schema == "text":
        texts = _one_of(table, ("text",))
        return None if texts is None else _flat([texts], ("assistant",))
    answer = _one_of(table, ANSWER_KEYS)
    if answer is None:
        return None
    names = ("instruction",) if schema == "alpaca" else PROMPT_KEYS
    return _instructions(table, names, answer, settings.instruction)


def _parse(
    text: pa.LargeStringArray, schema: str, settings: SftSettings, wanted: dict[str, pa.DataType]
) -> pa.Table | None:
    offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset : text.offset + len(text) + 1]
    data = text.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    raw = data.to_pybytes()
    if b"\\ud" in raw or b"\\uD" in raw:
        return None  # a surrogate, perhaps a lone one
    try:
        table = pa.json.read_json(
            pa.BufferReader(data),
            pa.json.ReadOptions(use_threads=False, block_size=data.size + 1),
            pa.json.ParseOptions(explicit_schema=pa.schema(list(wanted.items()))),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    names = table.schema.names
    if table.num_rows != len(text) or len(names) > _MOST_COLUMNS:
        return None
    odd = meaningful_keys(schema).intersection(names) - {*wanted, *settings.ignore_keys}
    if any(table[name].null_count < len(text) for name in odd):
        return None
    return table.combine_chunks()


def _unread(table: pa.Table, read: frozenset[str]) -> UnreadKeys | None:
    """Return the filled keys of each row that are not in `read`."""
    names = sorted(set(table.schema.names) - read)
    columns = {name: _is_filled(_column(table, name)) for name in names}
    filled = {name: is_filled for name, is_filled in columns.items() if is_filled.any()}
    if not filled:
        return None
    bits = np.zeros(table.num_rows, np.int64)
    for bit, is_filled in enumerate(filled.values()):
        bits |= is_filled.astype(np.int64) << bit
    kinds, of_row = np.unique(bits, return_inverse=True)
    sets = [tuple(n for bit, n in enumerate(filled) if kind >> bit & 1) for kind in kinds.tolist()]
    return UnreadKeys(sets, np.where(bits == 0, -1, of_row).astype(np.int32))


def _is_filled(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which rows hold more than null, an empty text or an empty list: (n,) bool."""
    kind = column.type
    if pa.types.is_string(kind):
        filled = pc.greater(pc.binary_length(column), 0)
    elif pa.types.is_list(kind):
        filled = pc.greater(pc.list_value_length(column), 0)
    else:
        filled = column.is_valid()
    found: npt.NDArray[np.bool_] = pc.fill_null(filled, False).to_numpy(zero_copy_only=False)
    return found


def _column(table: pa.Table, name: str) -> pa.Array:
    chunks = table[name].chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _filled(table: pa.Table, names: Sequence[str]) -> list[str]:
    """Return the names of columns that exist and hold more than nulls."""
    there = [name for name in names if name in table.schema.names]
    return [name for name in there if table[name].null_count < table.num_rows]


def _one_of(table: pa.Table, names: Sequence[str]) -> pa.StringArray | None:
    """Return the only filled column of several; None if it has nulls, or two are filled."""
    filled = _filled(table, names)
    if len(filled) != 1 or table[filled[0]].null_count:
        return None
    return _column(table, filled[0])


def _instructions(
    table: pa.Table, names: Sequence[str], answer: pa.StringArray, style: str
) -> Regular | None:
    """Return instructions or prompts, each joined with its input, and their answers."""
    instruction = _one_of(table, names)
    inputs = _filled(table, INPUT_KEYS)
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


def _dialogs(dialogs: pa.Array, settings: SftSettings) -> Regular | None:
    kind = dialogs.type.value_type
    messages = dialogs.flatten()
    if dialogs.null_count or messages.null_count or kind.num_fields != 2:
        return None
    speakers, contents = messages.field(0), messages.field(1)
    offsets = dialogs.offsets.to_numpy().astype(np.int64)
    offsets = offsets - offsets[0]
    if speakers.null_count or contents.null_count or not np.all(offsets[1:] > offsets[:-1]):
        return None
    encoded = speakers.dictionary_encode()
    known = [role_of(name, settings) for name in encoded.dictionary.to_pylist()]
    if not all(role in ROLES for role in known):
        return None
    roles = np.array([ROLES.index(role) for role in known if role], np.int64)
    return Regular(contents, roles[encoded.indices.to_numpy()], offsets)
