"""The settings of a mix, and what its sources are asked for: a share, or epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from pathlib import Path
from typing import Any

from tokmill.errors import UsageError
from tokmill.settings.declare import (
    PATH,
    dataset_setting,
    runtime_setting,
    shard_tokens_setting,
)
from tokmill.settings.json_schema import table_schema
from tokmill.settings.load import checked_values, read_toml
from tokmill.settings.names import settings_of
from tokmill.settings.toml_paths import from_folder
from tokmill.words import plural

DROP, MARK = "drop", "mark"
TRAINED = "trained"
WORDS = "words"
NO_SHUFFLE = -1
_SECTION = "mix"
_OF_HELD_OUT = ("against_fields", "drop_contaminated", "report")
_ALSO = {
    "inputs": ("string", "object"),
    "drop": ("string",),
    "against": ("string",),
    "against_fields": ("string",),
    "dedup": ("boolean",),
    "shuffle": ("boolean",),
}
"""Types of JSON that stand for settings in a file, beside their own."""


@dataclass(frozen=True, slots=True)
class MixSettings:
    """The settings of a mix; their help is that of the options of `tokmill mix`."""

    inputs: tuple[str, ...] = dataset_setting(
        (),
        "Datasets: DIR, DIR=SHARE, DIR=EPOCHSx; DIR#SOURCE is one source of a dataset.",
        is_path=PATH,
    )
    output: str = runtime_setting("", "Directory to write the dataset to.", is_path=PATH)
    tokens: int = dataset_setting(
        0,
        "Write at most this many tokens of train; 0: as many as need no document twice.",
        unit="count",
        minimum=0,
    )
    count: str = dataset_setting(
        "all",
        "Tokens that shares and --tokens count; trained: those that the masks of chats train.",
        choices=("all", TRAINED),
    )
    shuffle: int = dataset_setting(
        NO_SHUFFLE,
        "Seed of a shuffled order of all documents; without it they keep the order of the inputs.",
        minimum=NO_SHUFFLE,
        metavar="SEED",
    )
    dedup: str = dataset_setting(
        "",
        "Documents whose ids are those of one before, in val or train; drop: leave them out; "
        "mark: keep them, and list them in duplicates-train.bin.",
        choices=("", DROP, MARK),
    )
    drop: tuple[str, ...] = dataset_setting(
        (),
        'JSON Lines of documents to leave out: {"source": "a.jsonl", "record": 7}, or '
        '{"hash": "…"}. Once for each file.',
        metavar="FILE",
        is_path=PATH,
    )
    against: tuple[str, ...] = dataset_setting(
        (),
        "Held-out texts, such as benchmarks: files, folders or datasets. Documents that share "
        "--ngram tokens in a row with one are marked in contaminated-train.bin.",
        metavar="PATH",
        is_path=PATH,
        in_plan_if_set=True,
    )
    against_fields: tuple[str, ...] = dataset_setting(
        (),
        "Fields of held-out records to look for, such as question; none: all that hold text.",
        in_plan_if_set=True,
    )
    ngram: int = dataset_setting(
        13,
        "Tokens, or words, in a row that a document and a held-out text share.",
        minimum=1,
        maximum=1000,
        in_plan_if_set=True,
    )
    ngram_unit: str = dataset_setting(
        "tokens",
        "What --ngram counts; words: those of the text, without case, punctuation and blanks, for "
        "which all documents are decoded.",
        choices=("tokens", WORDS),
        in_plan_if_set=True,
    )
    drop_contaminated: bool = dataset_setting(
        False,
        "Leave out the documents that share tokens with held-out texts.",
        in_plan_if_set=True,
    )
    report: str = runtime_setting(
        "",
        "JSON Lines to write: what each document shares with held-out texts, and which of these "
        "are too short; with --plan nothing else is written.",
        metavar="FILE",
        is_path=PATH,
    )
    min_tokens: int = dataset_setting(
        0,
        "Leave out documents with fewer tokens, eos included.",
        unit="count",
        minimum=0,
        zero_is_value=True,
    )
    max_tokens: int = dataset_setting(
        0, "Leave out longer documents; 0: no limit.", unit="count", minimum=0
    )
    where: str = dataset_setting(
        "",
        "Keep the documents for which a function is true, package.module:function; it gets ids, "
        "lengths and origins of a batch.",
        metavar="FUNCTION",
    )
    shard_tokens: int = shard_tokens_setting()
    dtype: str = dataset_setting(
        "", "uint32: also accept datasets of uint16, and widen their ids.", choices=("", "uint32")
    )
    workers: int = runtime_setting(
        0, "Worker processes; 0: one for each core, if they have work.", minimum=0, maximum=256
    )

    @property
    def is_shuffled(self) -> bool:
        """Return whether documents are put into a seeded order."""
        return self.shuffle != NO_SHUFFLE

    @property
    def seed(self) -> int:
        """Return the seed of the order, and of the documents that a share takes."""
        return max(0, self.shuffle)

    @property
    def ngram_in_words(self) -> str:
        """Return the length of a shared run, such as `13 tokens`."""
        return plural(self.ngram, self.ngram_unit.removesuffix("s"))

    @property
    def has_filters(self) -> bool:
        """Return whether a setting looks at each document by itself."""
        filters = (self.drop, self.min_tokens, self.max_tokens, self.where)
        return any(filters) or self.drop_contaminated

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide the bytes, as plain values."""
        values: dict[str, Any] = {}
        for name, setting in settings_of(_SECTION, MixSettings).items():
            value = getattr(self, name)
            is_left_out = setting.metadata.get("in_plan_if_set") and value == setting.default
            if setting.metadata["affects_output"] and not is_left_out:
                values[name] = list(value) if isinstance(value, tuple) else value
        return values


def default_of(name: str) -> Any:
    """Return the default of a setting, as a plan states it."""
    default = settings_of(_SECTION, MixSettings)[name].default
    return list(default) if isinstance(default, tuple) else default


def is_unset(name: str, value: object) -> bool:
    """Return whether the value of a setting is the default, which asks for nothing."""
    return bool(value == settings_of(_SECTION, MixSettings)[name].default)


@dataclass(frozen=True, slots=True)
class Request:
    """One source as it was asked for.

    Attributes:
        name: as the user wrote it, without share and epochs.
        directory: of the dataset.
        source: a source inside it, by its name or the path of its file; '' for all.
        share: of the tokens, a positive number whose sum over all sources means nothing; or None.
        epochs: how often each document is written; None with a share.
    """

    name: str
    directory: Path
    source: str
    share: Fraction | None
    epochs: Fraction | None


def mix_settings(
    inputs: Sequence[str | Path] | Mapping[str, Any] = (),
    config: str | Path | None = None,
    **values: Any,
) -> MixSettings:
    """Return the settings of keyword arguments, then of the table `[mix]` of a TOML file.

    `inputs`: datasets, or a mapping of datasets to shares (`0.4`) or epochs (`"2.5x"`).

    Raises:
        UsageError: a setting is unknown or wrong.
    """
    table = read_toml(Path(config)).get(_SECTION, {}) if config else {}
    if not isinstance(table, dict):
        raise UsageError(f"{config}: expected a table [{_SECTION}], found {table!r}")
    for name, setting in settings_of(_SECTION, MixSettings).items():
        if config and name in table and "is_path" in setting.metadata:
            table[name] = from_folder(table[name], Path(config))
    merged = {**table, **{name: value for name, value in values.items() if value is not None}}
    if inputs:
        merged["inputs"] = inputs
    merged["inputs"] = _as_texts(merged.get("inputs", ()))
    _translate(merged)
    settings = MixSettings(**checked_values(_SECTION, settings_of(_SECTION, MixSettings), merged))
    if not settings.inputs:
        raise UsageError("no dataset to mix: name directories, such as wiki=0.4 code=0.6")
    for name in _OF_HELD_OUT:
        if not settings.against and not is_unset(name, getattr(settings, name)):
            raise UsageError("needs held-out texts: name them with against", f"{_SECTION}.{name}")
    if not settings.output:
        raise UsageError("expected a directory to write to, found none", f"{_SECTION}.output")
    return settings


def _translate(values: dict[str, Any]) -> None:
    """Replace values as Python and TOML may have them by those of the settings."""
    for name, default in (("dedup", DROP), ("shuffle", 0)):
        if values.get(name) is True:
            values[name] = default
        elif values.get(name) is False:
            del values[name]
    for name in ("output", "report"):
        if isinstance(values.get(name), Path):
            values[name] = str(values[name])
    for name in ("drop", "against", "against_fields"):
        if isinstance(values.get(name), str | Path):
            values[name] = [str(values[name])]


def table_of_mix() -> dict[str, Any]:
    """Return the JSON schema of the table `[mix]`, of all values that `mix_settings` takes."""
    settings = settings_of(_SECTION, MixSettings)
    table = table_schema(MixSettings.__doc__ or "", settings.values())
    for name, kinds in _ALSO.items():
        setting = table["properties"][name]
        text = {key: setting.pop(key) for key in ("description", "default")}
        table["properties"][name] = {
            **text,
            "anyOf": [setting, *({"type": kind} for kind in kinds)],
        }
    return table


def _as_texts(inputs: Any) -> list[str]:
    """Return inputs as they are written in a command; raises `UsageError`."""
    if isinstance(inputs, str | Path):
        inputs = [inputs]
    is_mapping = isinstance(inputs, Mapping)
    if not is_mapping and not isinstance(inputs, Sequence):
        raise UsageError(f"expected datasets, found {inputs!r}", f"{_SECTION}.inputs")
    texts = []
    for name in inputs:
        if not isinstance(name, str | Path):
            raise UsageError(f"expected a directory, found {name!r}", f"{_SECTION}.inputs")
        texts.append(str(name))
        if is_mapping:
            amount = "1x" if inputs[name] == "" else str(inputs[name])
            _number(amount.removesuffix("x"), f"{name}={amount}")
            texts[-1] += f"={amount}"
    return texts


def requests(settings: MixSettings) -> list[Request]:
    """Return what is asked of each source: shares of all, or epochs (1 by default) of each.

    Raises:
        UsageError: a number is wrong, a source is named twice, or settings contradict each other.
    """
    asked = [_request(text) for text in settings.inputs]
    names = [request.name for request in asked]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"{twice[0]}: named twice: {twice[0]}=2x writes it two times")
    with_share = [request for request in asked if request.share is not None]
    if with_share and len(with_share) < len(asked):
        other = next(request for request in asked if request.share is None)
        raise UsageError(
            f"{other.name}: has no share, and {with_share[0].name} has one: give all of them "
            "shares (0.4), or epochs (2.5x)"
        )
    if not with_share and settings.tokens:
        raise UsageError(
            "tokens: a budget is divided by shares: give each dataset one, such as wiki=0.4"
        )
    return asked


def _request(text: str) -> Request:
    """Return what `DIR`, `DIR#SOURCE` or either with an amount asks for.

    A directory that exists is one, whatever is in its name: `year=2024`, `C#`.
    """
    name, amount = text, "1x"
    before, equals, after = text.rpartition("=")
    is_amount = after[:1] in "0123456789.-+" and not {"#", "/"} & set(after)
    if equals and is_amount and not Path(text).is_dir():
        name, amount = before, after
    stops = [i for i, character in enumerate(f"{name}#") if character == "#"]
    stop = next((i for i in reversed(stops) if Path(name[:i]).is_dir()), stops[0])
    number = _number(amount.removesuffix("x"), text)
    share, epochs = (None, number) if amount.endswith("x") else (number, None)
    return Request(name, Path(name[:stop]), name[stop + 1 :], share, epochs)


def _number(text: str, where: str) -> Fraction:
    """Return a share, or a number of epochs; raises `UsageError`."""
    try:
        number = Fraction(text) if isfinite(float(text)) else Fraction(0)
    except ValueError:
        number = Fraction(0)
    if number <= 0:
        raise UsageError(f"{where}: expected a share such as 0.4 or epochs such as 2.5x above 0")
    return number
