"""Which columns of rows of ids hold what: found by name in the first rows, or named by the user.

What no rule decides is an error that asks for it. Names are those of TRL, axolotl, LLaMA-Factory,
verl, slime, NeMo and `tokmill export`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

OWN, NEXT = "own", "next"
"""Alignments: a label says of its own token whether it is trained, or of the one after it."""

NO_COLUMN = "none"
"""In place of a column's name: there is none, whatever the rows have."""

IGNORE_INDEX = -100
"""The label of a token that is no target."""

_IDS = ("input_ids", "tokens", "token_ids", "ids")
_PROMPT_IDS = ("prompt_ids", "prompt_token_ids")
_COMPLETION_IDS = (
    "completion_ids", "completion_token_ids", "response_ids", "response_token_ids",
)  # fmt: skip
NAMES_OF_IDS = ("input_ids", "token_ids", *_PROMPT_IDS, *_COMPLETION_IDS)
"""Columns that hold nothing but ids."""

_MASKS = (
    "loss_mask", "loss_masks", "completion_mask", "assistant_masks", "assistant_mask",
    "response_mask", "mask",
)  # fmt: skip
_WEIGHTS = ("weights", "loss_weights", "loss_scale")
_LABELS, ATTENTION, POSITIONS = "labels", "attention_mask", "position_ids"
LENGTHS = ("seq_lengths", "sequence_lengths")
BOUNDS, STARTS = "cu_seqlens", "seq_start_id"

_ABOUT = frozenset({"special_tokens_mask", "token_type_ids", "lengths"})
"""Lists of integers that are no ids, and are not read."""

_INTEGERS, _NUMBERS, _BOOLEANS = "integers", "numbers", "true and false"


@dataclass(frozen=True, slots=True)
class GivenColumns:
    """What the user says of the columns; '' and () for what is to be found.

    `ids`: one column, or that of prompts and that of completions. `labels`, `weights`: a column, or
    `none`. `masks`: columns, or `none` alone. `alignment`: `own` or `next`.
    """

    ids: tuple[str, ...] = ()
    labels: str = ""
    masks: tuple[str, ...] = ()
    weights: str = ""
    alignment: str = ""


@dataclass(frozen=True, slots=True)
class RowRules:
    """How the rows of an import are read.

    Attributes:
        trainer: what the rows are stored as, the name in `tokmill import --from`.
        ids: the column of ids, or that of prompts and that of completions, which are trained.
        labels: ids, or -100 where a token is not trained; '' without.
        masks: 0 or 1 for each token; a token is trained where all are 1.
        weights: a number for each token, its weight in the loss; '' without.
        attention: 0 for padding; other numbers are those of the samples of a row; '' without.
        ends: columns that say where the samples of a row begin or end.
        booleans: columns of `true` and `false`.
        absent: columns that the first rows do not have, and that would change how rows are read.
        alignment: of labels, masks and weights: `own` or `next`.
        adds_eos: whether eos is added to documents that do not end with it.
        val: the paths of the files that are of the val split.
    """

    trainer: str
    ids: tuple[str, ...]
    labels: str = ""
    masks: tuple[str, ...] = ()
    weights: str = ""
    attention: str = ""
    ends: tuple[str, ...] = ()
    booleans: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    alignment: str = OWN
    adds_eos: bool = False
    val: tuple[str, ...] = ()

    @property
    def are_chats(self) -> bool:
        """Return whether something says which tokens are trained."""
        return bool(self.labels or self.masks or self.weights or len(self.ids) > 1)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of all columns that are read."""
        single = (self.labels, self.weights, self.attention)
        return (*self.ids, *filter(None, single), *self.masks, *self.ends)

    def schema(self) -> pa.Schema:
        """Return the columns that are read: lists of int64, of float64 for masks and weights.

        Absent ones, too: a row that has one is refused.
        """
        kinds = dict.fromkeys((*self.columns, *self.absent), pa.int64())
        kinds |= dict.fromkeys(filter(None, (*self.masks, self.weights)), pa.float64())
        kinds |= dict.fromkeys(self.booleans, pa.bool_())
        return pa.schema([(name, pa.list_(kind)) for name, kind in kinds.items()])

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RowRules:
        """Return the rules of a value from `as_json`."""
        lists = {key: tuple(value) for key, value in data.items() if isinstance(value, list)}
        return cls(**{**data, **lists})


@dataclass(frozen=True, slots=True)
class FoundColumns:
    """The columns of some rows, and the names of those that are not read."""

    rules: RowRules
    unread: tuple[str, ...] = field(default=(), compare=False)


def find_columns(
    records: Sequence[Mapping[str, Any]], given: GivenColumns, trainer: str, where: str
) -> FoundColumns:
    """Return what the columns of the first rows of a file hold; `where` names the file.

    Raises:
        UsageError: a column that is needed or named is missing or of another type, or several may
            be meant.
    """
    kinds = _kinds(records)
    ids = _ids(kinds, given, where)
    rest = {name: kind for name, kind in kinds.items() if name not in ids}
    labels = _one_column(rest, given.labels, (_LABELS,), "--labels", where)
    weights = _one_column(rest, given.weights, _WEIGHTS, "--weights", where)
    masks = given.masks or tuple(name for name in _MASKS if name in rest)
    masks = tuple(name for name in masks if name not in (NO_COLUMN, labels, weights))
    attention = ATTENTION if ATTENTION in rest else ""
    ends = _ends(rest)
    _check_kinds(rest, (labels, *ends), (_INTEGERS,), where)
    _check_kinds(rest, (attention,), (_INTEGERS, _BOOLEANS), where)
    _check_kinds(rest, masks, (_INTEGERS, _BOOLEANS, _NUMBERS), where)
    _check_kinds(rest, (weights,), (_INTEGERS, _NUMBERS), where)
    read = (labels, weights, attention, *masks, *ends)
    expected = [ATTENTION, POSITIONS, *LENGTHS, BOUNDS, STARTS]
    expected += [] if given.labels else [_LABELS]
    expected += [] if given.masks else _MASKS
    expected += [] if given.weights else _WEIGHTS
    rules = RowRules(
        trainer, ids, labels, masks, weights, attention, ends,
        booleans=tuple(name for name in read if rest.get(name) == _BOOLEANS),
        absent=tuple(name for name in expected if name not in kinds),
    )  # fmt: skip
    unread = tuple(name for name in rest if name not in read)
    if not given.masks:
        _check_alone(rest, [name for name in unread if name not in _ABOUT], rules, where)
    return FoundColumns(rules, unread)


def _ids(kinds: Mapping[str, str], given: GivenColumns, where: str) -> tuple[str, ...]:
    """Return the column of ids, or the columns of prompts and completions."""
    if given.ids:
        for name in given.ids:
            _check_there(kinds, name, "--ids", where)
        _check_kinds(kinds, given.ids, (_INTEGERS,), where)
        return given.ids
    lists = [name for name, kind in kinds.items() if kind == _INTEGERS]
    named = [name for name in _IDS if name in lists]
    prompts = [name for name in _PROMPT_IDS if name in lists]
    completions = [name for name in _COMPLETION_IDS if name in lists]
    if len(named) == 1 and not completions:
        return (named[0],)
    if not named and len(prompts) == len(completions) == 1:
        return prompts[0], completions[0]
    known = {_LABELS, ATTENTION, POSITIONS, BOUNDS, STARTS, *_MASKS, *_WEIGHTS, *LENGTHS, *_ABOUT}
    others = [name for name in lists if name not in known]
    if len(others) == 1:
        return (others[0],)
    if not others:
        keys = ", ".join(f"{name} ({kind})" for name, kind in kinds.items()) or "none"
        raise UsageError(
            f"{where}: no column of lists of integers that may be ids: its columns are {keys}"
        )
    raise UsageError(
        f"{where}: which column holds the ids? {', '.join(others)} may: name it with --ids, or "
        "name that of prompts and that of completions (--ids PROMPT --ids COMPLETION)"
    )


def _one_column(
    kinds: Mapping[str, str], given: str, names: Sequence[str], option: str, where: str
) -> str:
    """Return the column of a meaning that has at most one, '' without."""
    if given == NO_COLUMN:
        return ""
    if given:
        _check_there(kinds, given, option, where)
        return given
    found = [name for name in names if name in kinds]
    if len(found) > 1:
        raise UsageError(f"{where}: has {' and '.join(found)}: name one with {option}")
    return found[0] if found else ""


def _ends(kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that divide rows; a single number, such as a row's length, is none."""
    lists = (_INTEGERS, _NUMBERS, _BOOLEANS)
    of_lengths = [name for name in (*LENGTHS, BOUNDS, STARTS) if kinds.get(name) in lists]
    return (*of_lengths, POSITIONS) if POSITIONS in kinds else tuple(of_lengths)


def _check_there(kinds: Mapping[str, str], name: str, option: str, where: str) -> None:
    if name not in kinds:
        raise UsageError(
            f"{where}: {option} {name}: no such column: its columns are {', '.join(kinds)}"
        )


def _check_kinds(
    kinds: Mapping[str, str], names: Iterable[str], wanted: Collection[str], where: str
) -> None:
    """Check that columns hold lists of what they should; '' is none."""
    for name in filter(None, names):
        _check_there(kinds, name, "column", where)
        if kinds[name] not in wanted:
            raise UsageError(
                f"{where}: {name}: expected lists of {' or '.join(wanted)}, found {kinds[name]}: "
                "name another column, or none (--labels none, --mask none, --weights none)"
            )


def _check_alone(
    kinds: Mapping[str, str], unread: Sequence[str], rules: RowRules, where: str
) -> None:
    """Check that no other column looks like a mask; raises `UsageError`.

    Rows with labels say what is trained; without, a mask of another name would be lost.
    """
    if rules.are_chats:
        return
    masks = [name for name in unread if "mask" in name and kinds[name] in (_INTEGERS, _BOOLEANS)]
    if masks:
        raise UsageError(
            f"{where}: does {masks[0]} say which tokens are trained? --mask {masks[0]} reads it, "
            f"--mask {NO_COLUMN} trains all tokens"
        )


def _kinds(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what each key of records holds, in the order of the first ones.

    Nulls say nothing; lists without a value count as lists of integers.
    """
    found: dict[str, set[str]] = {}
    for record in records:
        for name, value in record.items():
            if value is not None:
                found.setdefault(name, set()).update(_kinds_in(value))
    kinds = {}
    for name, of_values in found.items():
        if of_values <= {_INTEGERS}:
            kinds[name] = _INTEGERS
        elif of_values <= {_INTEGERS, _NUMBERS}:
            kinds[name] = _NUMBERS
        else:
            kinds[name] = " and ".join(sorted(of_values))
    return kinds


def _kinds_in(value: Any) -> set[str]:
    """Return what a value holds: kinds of lists, or of a single value."""
    if not isinstance(value, list):
        return {f"a single {_kind(value).rstrip('s')}"}
    return {_kind(inner) for inner in value if inner is not None}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return _BOOLEANS
    if isinstance(value, int):
        return _INTEGERS
    if isinstance(value, float):
        return _NUMBERS
    return "texts" if isinstance(value, str) else "lists and objects"


def with_alignment(found: FoundColumns, alignment: str) -> FoundColumns:
    """Return columns with the alignment of their labels and masks."""
    return replace(found, rules=replace(found.rules, alignment=alignment))
