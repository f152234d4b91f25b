"""The plan of a run, as a value and as `plan.json`: written, read again, and compared.

It is made from inputs and output-affecting settings alone, and fixes engine and parts for all
workers and for later attempts of the same run. Its key "task" is what another process needs
besides: the settings and the chat template. The tokenizer stands beside it, in a file that it names
by its sum, so that a thousand tasks neither list the input nor ask the Hugging Face Hub. How a
machine works (workers, threads) is not in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import digest_of_chunks, json_chunks
from tokmill.dataset.layout import KEPT_TOKENIZER, MIX_ENGINE, PLAN, SHARD_BYTES, token_dtype
from tokmill.dataset.made_by import maker_of
from tokmill.dataset.plan_file import PLAN_FORMAT, parse_plan, plan_fingerprint
from tokmill.dataset.rules import differing_rule, rules_in, rules_of_kind
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import IMPORT
from tokmill.errors import StateError, TokmillError, UsageError
from tokmill.extensions import DOTTED_PATH
from tokmill.recipes.spec import ROWS, TOKENS, Part, ReadingSettings, RunSpec
from tokmill.settings.load import build_config
from tokmill.settings.names import find_setting, plain
from tokmill.settings.schema import Config, RunSettings
from tokmill.sources.files import Slice, SourceFile, cut
from tokmill.sources.json_lines import parser_entry
from tokmill.tokenizer.kept import packed_tokenizer, planned_tokenizer
from tokmill.tokenizer.tokenizer import Tokenizer, tokenizer_differences
from tokmill.version import __version__
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.place import Place
    from tokmill.dataset.plan_file import PlanFile, TaskReading, TokenRulesEntry
    from tokmill.recipes.row_columns import RowRules
    from tokmill.sources.token_layouts import TokenRules

    Rows = Sequence[Sequence[Any]]


PART_BYTES, SFT_PART_BYTES = 256 << 20, 64 << 20
_MOST_PARTS = 4_000
"""Parts by default; a record of each is read to finish."""

MAX_SLICES = 16_384
"""Most slices of a part: a worker holds the counts of each, and a million tiny files need many
workers."""

_FILE_FIELDS = tuple(field.name for field in fields(SourceFile))

_HEAD = {
    "format_version": "the format's version",
    "eos_id": "the id of eos",
    "bos_id": "the id of bos",
    "template_sha256": "the chat template's sha256",
    "template_tokens": "the tokens that the chat template names",
    "checksum": "the algorithm of checksums (output.checksum)",
}
"""Keys of a plan besides its settings that decide bytes, and their names in messages."""

_TOKEN_RULES = {
    "trainer": "the program that wrote the tokens (--from)",
    "adds_eos": "--add-eos",
    "dtype": "--dtype",
    "val": "the files of the val split (--val)",
}
_ROW_RULES = {
    **_TOKEN_RULES,
    "ids": "the column of ids (--ids)",
    "labels": "the column of labels (--labels)",
    "masks": "the columns of masks (--mask)",
    "weights": "the column of weights (--weights)",
    "attention": "the column of the attention mask",
    "ends": "the columns of the ends of samples",
    "booleans": "the columns of true and false",
    "absent": "the columns that the first rows do not have",
    "alignment": "--alignment",
}
"""Keys of the rules of an import, and their names in messages."""

_EXTENSION = {"distribution": "distribution", "version": "version", "target": "target"}
_EXTENSION["sha256"] = "source"

_SHA256_DIGITS, _SHOWN_DIGITS = 64, 12
"""Of a hash, these digits are shown: enough to tell two tokenizers apart."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before its first token: the settings of its workers, and its parts in order.

    `kept`: the file beside the plan in which its tokenizer is, see `tokenizer.kept`.
    """

    spec: RunSpec
    parts: tuple[Part, ...]
    kept: FileEntry

    def fingerprint_of(self, part: Part) -> str:
        """Return the sha256 of what decides the bytes of a part."""
        return part.fingerprint(self.spec)

    def head(self) -> dict[str, Any]:
        """Return the content of `plan.json` without task, files and parts."""
        return {
            **self.spec.identity(),
            **self.spec.outside(),
            "tokmill_version": __version__,
            "checksum": self.spec.config.output.checksum,
            "engine": self.spec.engine.as_json(),
            **({"parser": parser_entry()} if self.spec.tokens is None else {}),
        }

    def files(self) -> Iterator[list[Any]]:
        """Yield every input file once, as a row of `plan.json`, in the order of its first slice.

        If files are read in several ways, a row ends with the number of its reading.
        """
        seen: set[SourceFile] = set()
        for part in self.parts:
            for piece in part.slices:
                if piece.file not in seen:
                    seen.add(piece.file)
                    row = [getattr(piece.file, name) for name in _FILE_FIELDS]
                    yield [*row, part.reading] if self.spec.own_readings else row

    def rows_of_parts(self) -> Iterator[list[list[int]]]:
        """Yield every part as a row of `plan.json`: its slices, each file as its row in `files`."""
        numbers: dict[SourceFile, int] = {}
        for part in self.parts:
            yield [
                [numbers.setdefault(s.file, len(numbers)), s.start, s.stop, s.n_bytes]
                for s in part.slices
            ]

    def chunks(self) -> Iterator[bytes]:
        """Return the bytes of `plan.json`, about 1 MiB at a time."""
        extra = {
            "format": PLAN_FORMAT,
            "task": _task_entry(self.spec),
            "tokenizer": self.kept.as_json(),
        }

        def body() -> dict[str, Any]:
            """Return all but the fingerprint; the rows of files and parts are iterators."""
            rows = {"files": self.files(), "parts": self.rows_of_parts()}
            return {**self.head(), **extra, **rows}

        return json_chunks({**body(), "fingerprint": plan_fingerprint(body())})


def new_plan(spec: RunSpec, parts: tuple[Part, ...]) -> tuple[Plan, bytes]:
    """Return the plan of a new run, and the bytes of the file of its tokenizer."""
    packed = packed_tokenizer(spec.tokenizer, spec.template)
    kept = digest_of_chunks([packed], spec.config.output.checksum).entry(KEPT_TOKENIZER)
    return Plan(spec, parts, kept), packed


def resolve(config: Config, tokenizer: Tokenizer, n_bytes: int) -> Config:
    """Return the settings with `auto` and 0 replaced where a byte depends on them.

    `n_bytes`: of all inputs. A part is by default about 5 to 30 seconds of work on two cores.

    Raises:
        TokenizerError: dtype uint16 is asked for and cannot hold the tokenizer's ids.
    """
    dtype = token_dtype(config.output.dtype, tokenizer.max_emittable_id)
    least = PART_BYTES if config.sft is None else SFT_PART_BYTES
    output = replace(
        config.output,
        dtype=dtype.name,
        part_bytes=config.output.part_bytes or max(least, -(-n_bytes // _MOST_PARTS)),
        shard_tokens=config.output.shard_tokens or SHARD_BYTES // dtype.itemsize,
    )
    return replace(config, output=output)


def cut_into_parts(groups: Iterable[Iterable[SourceFile]], part_bytes: int) -> tuple[Part, ...]:
    """Return parts of about `part_bytes` and at most `MAX_SLICES`, in the order of the files.

    A larger file is cut where its format allows; smaller files of a group share a part: they are
    read in the same way.
    """
    parts: list[Part] = []
    for reading, files in enumerate(groups):
        gathered: list[Slice] = []
        n_bytes = 0
        for file in files:
            for piece in cut(file, part_bytes):
                is_full = n_bytes + piece.n_bytes > part_bytes or len(gathered) == MAX_SLICES
                if gathered and is_full:
                    parts.append(Part(len(parts), tuple(gathered), reading))
                    gathered, n_bytes = [], 0
                gathered.append(piece)
                n_bytes += piece.n_bytes
        if gathered:
            parts.append(Part(len(parts), tuple(gathered), reading))
    return tuple(parts)


def read_plan(place: Place) -> tuple[PlanFile, str] | None:
    """Read the plan of a place, and its stamp; None if it has none.

    The stamp comes first: the plan may be replaced meanwhile.

    Raises:
        StateError: it is damaged, not tokmill's, or of a newer format.
    """
    stamp = place.stamp(PLAN)
    try:
        return parse_plan(place.read(PLAN), f"{place.where}/{PLAN}"), stamp
    except FileNotFoundError:
        return None


def check_plan(place: Place, stamp: str) -> None:
    """Check that the plan in a place is still the one with which a run began.

    Raises:
        StateError: it was removed or replaced.
    """
    if place.stamp(PLAN) != stamp:
        raise StateError(
            f"{place.where}/{PLAN}: was replaced or removed since this run began: another run took "
            "this place over; nothing more is written to it: choose another --output"
        )


# The plan as another process reads it


def plan_of_file(written: PlanFile, stamp: str, place: Place, run: RunSettings) -> Plan:
    """Return the plan that `read_plan` has read in a place; nothing of it is imported or compared.

    `stamp`: of the file. `run`: how this machine works.

    Raises:
        StateError: it has no task, or is damaged.
    """
    where, task = f"{place.where}/{PLAN}", written.task
    try:
        if task is None:
            raise ValueError("task: missing")
        config = build_config(task.config, where=where)
        spec = RunSpec(
            replace(config, run=run, output=replace(config.output, dir=place.where)),
            planned_tokenizer(place, written.kept),
            EngineChoice.from_json(written.plain["engine"]),
            n_threads=1,
            template=_template(task.template, where),
            extensions=written.extensions,
            plan_stamp=stamp,
            readings=tuple(_reading(entry, where) for entry in task.readings),
            tokens=_token_rules(task.tokens),
            rows=_row_rules(task.rows),
        )
        return Plan(spec, _parts(written.files, written.parts), written.kept)
    except (
        LookupError, TypeError, ValueError, AttributeError, RecursionError, UsageError,
    ) as error:  # fmt: skip
        raise StateError(
            f"{where}: has no task that can be read ({error!r}): plan the run again with this "
            "tokmill"
        ) from None


def code_named_by(plan: Plan) -> tuple[str, ...]:
    """Return the dotted paths of a plan, sorted: to work on it is to import and call them.

    Names of extensions are none: what they name was installed.
    """
    spec = plan.spec
    renders = [spec.config.render, *(reading.render for reading in spec.readings)]
    inputs = [spec.config.input, *(reading.input for reading in spec.readings)]
    names = {render.renderer_name for render in renders} | {own.where for own in inputs}
    return tuple(sorted(filter(DOTTED_PATH.fullmatch, names)))


def _parts(files: Rows, parts: Rows) -> tuple[Part, ...]:
    of_row = [SourceFile(*row[: len(_FILE_FIELDS)]) for row in files]
    readings = [sum(row[len(_FILE_FIELDS) :]) for row in files]  # 0 if all are read in one way
    return tuple(
        Part(i, tuple(Slice(of_row[n], *rest) for n, *rest in rows), readings[rows[0][0]])
        for i, rows in enumerate(parts)
    )


def _task_entry(spec: RunSpec) -> dict[str, Any]:
    """Return the key "task" of a plan."""
    config = spec.config
    config = replace(config, run=RunSettings(), output=replace(config.output, dir=""))
    return {
        "config": plain(config),
        "template": spec.template,
        "readings": [_reading_entry(reading) for reading in spec.readings],
        **spec.import_rules(),
    }


def _reading_entry(reading: ReadingSettings) -> dict[str, Any]:
    """Return how a group of files is read, as plain values for `_reading`."""
    config = Config(input=reading.input, render=reading.render, sft=reading.sft)
    sections = {"input", "render" if reading.sft is None else "sft"}
    return {
        "source": reading.source,
        "files": reading.files,
        "settings": {name: values for name, values in plain(config).items() if name in sections},
        "is_named": reading.is_named,
        "labels": sorted(reading.labels),
    }


def _reading(entry: TaskReading, where: str) -> ReadingSettings:
    config = build_config(entry.settings, where=where)
    settings = (config.input, config.render, config.sft)
    labels = frozenset(entry.labels)
    return ReadingSettings(entry.source, entry.files, *settings, entry.is_named, labels)


def _token_rules(entry: TokenRulesEntry | None) -> TokenRules | None:
    """Return how the files of an import are read; None for a run of text."""
    if entry is None:
        return None
    from tokmill.sources.token_layouts import TokenRules  # a run of text needs none of it

    return TokenRules.of(entry)


def _row_rules(rules: Mapping[str, Any] | None) -> RowRules | None:
    """Return how the rows of an import are read; None for other runs."""
    if rules is None:
        return None
    from tokmill.recipes.row_columns import RowRules

    return RowRules.from_json(rules)


def _template(source: str, where: str) -> str:
    """Return the chat template of a plan; raises `UsageError` for what can be none."""
    if not source:
        return ""
    from tokmill.chat.limits import checked_source  # a run of documents imports nothing of chats

    return checked_source(source, where)


# Whether a plan is that of this command


def check_same(written: PlanFile, plan: Plan, place: Place) -> None:
    """Check that the plan that stands in a place is the plan of this command.

    Raises:
        StateError: they differ; names a rule that does, or the first three differences.
    """
    where = place.where
    check_command(written, plan.spec.command, where)
    check_rules(written, plan.spec.command, where)
    before = dict(_fixed_values(written.plain))
    after = dict(_fixed_values(json.loads(json.dumps(plan.head(), sort_keys=True))))
    changes = []
    if told := _changed_tokenizer(written, plan.spec.tokenizer, place):
        changes.append(told)
    changes += [
        f"{_named(name)} was {_shown(before.get(name))}, is {_shown(after.get(name))}"
        for name in {**after, **before}
        if before.get(name) != after.get(name)
    ]
    # Row by row, so that the rows of a million files are not in memory twice.
    if not _are_equal(written.files, plan.files()):
        changes += _changed_files(written.files, list(plan.files()))
    elif not changes and not _are_equal(written.parts, plan.rows_of_parts()):
        changes.append("the parts differ")
    if changes:
        more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
        raise StateError(
            f"{where}: holds a run of other inputs or settings: {'; '.join(changes[:3])}{more}"
            ": choose another --output, or run with --overwrite to start again"
        )


def command_of(written: PlanFile) -> str:
    """Return the command that made a plan: `pretrain`, `sft`, `import` or `mix`."""
    if written.engine.name == IMPORT:
        return "import"
    if written.engine.name == MIX_ENGINE:
        return "mix"
    return "sft" if "sft" in written.settings else "pretrain"


def check_command(written: PlanFile, wanted: str, where: str) -> None:
    """Check that a plan was made by the command that is `wanted`; raises `StateError`."""
    made, maker = command_of(written), maker_of(written.engine.name)
    if made != wanted:
        raise StateError(
            f"{where}: holds {maker} of other inputs or settings: it was made by tokmill {made}, "
            f"this is tokmill {wanted}: choose another --output, or run with --overwrite to start "
            "again"
        )


def _changed_tokenizer(written: PlanFile, tokenizer: Tokenizer, place: Place) -> str:
    """Return a line on how the tokenizer differs from that of a plan, or ''."""
    if written.tokenizer_identity == tokenizer.identity:
        return ""
    try:
        there = planned_tokenizer(place, written.kept)
        told = tokenizer_differences(there, tokenizer)
    except (LookupError, TypeError, ValueError, TokmillError):
        told = "another one gives these ids"
    return f"the tokenizer differs: {told}"


def check_rules(written: PlanFile, kind: str, where: str) -> None:
    """Check that a plan was made under the rules of this tokmill.

    `kind`: the command of this run; a plan of another one is another difference. An import reads no
    text, and has no rules.

    Raises:
        StateError: it was not: what is done already has other text than what would follow.
    """
    if kind == "import" or kind != command_of(written):
        return
    if differs := differing_rule(rules_in(written.rules, kind), rules_of_kind(kind)):
        raise StateError(
            f"{where}: holds a run that began under other rules: {differs}: choose another "
            "--output, or run with --overwrite to start again"
        )


def _fixed_values(head: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a plan fixes besides its files and parts, by the key of a setting or in words."""
    for section, values in head["settings"].items():
        for key, value in values.items():
            yield f"{section}.{key}", value
    for key, words in _HEAD.items():
        yield words, head.get(key)
    for key, value in {**head.get(TOKENS, {}), **head.get(ROWS, {})}.items():
        yield _ROW_RULES[key], value
    yield "the number of ways in which files are read", len(head.get("readings", ())) or 1
    for reading in head.get("readings", ()):
        for key, value in {"source": reading["source"], **reading["settings"]}.items():
            yield f"{key} of {reading['files']}", value
    for extension in head.get("extensions", ()):
        for key, words in _EXTENSION.items():
            yield f"{words} of {extension['kind']} {extension['name']}", extension[key]


def _named(name: str) -> str:
    """Return the name of a fixed value for a message: of a setting, its option."""
    setting = find_setting(name)
    return name if setting is None else setting.option


def _shown(value: Any) -> str:
    is_hash = isinstance(value, str) and len(value) == _SHA256_DIGITS and value.isalnum()
    return f"{value[:_SHOWN_DIGITS]}…" if is_hash else repr(value)


def _are_equal(rows: Sequence[Any], others: Iterable[Any]) -> bool:
    return all(row == other for row, other in zip_longest(rows, others))


def _changed_files(before_rows: Rows, after_rows: Rows) -> list[str]:
    """Return a line for each input file that is gone, new or changed."""
    before = {row[0]: row[1:] for row in before_rows}
    after = {row[0]: row[1:] for row in after_rows}
    changes = [f"{path} is gone" for path in before if path not in after]
    changes += [f"{path} is new" for path in after if path not in before]
    for path, values in after.items():
        was = before.get(path, values)
        if was[2] != values[2]:
            how = f"{plural(was[2], 'byte')} before, {values[2]:,} now"
        else:
            how = "it was modified" if was[3] != values[3] else "its kind or revision"
        if was != values:
            changes.append(f"{path} has changed ({how})")
    return changes or ["the input files come in another order"]
