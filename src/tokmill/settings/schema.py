"""Settings: frozen dataclasses with their help, choices and ranges.

Settings that affect the bytes of the dataset (`dataset_setting`) are stored in the plan; a run with
other values cannot continue in the same directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError
from tokmill.settings.declare import (
    NAME_OR_PATH,
    PATH,
    dataset_setting,
    max_samples_setting,
    runtime_setting,
    shard_tokens_setting,
)
from tokmill.settings.rows import Rows, brief, is_rows
from tokmill.settings.sft import SftSettings
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings
from tokmill.tables import ENGINES, FORMATS, RENDERERS

if TYPE_CHECKING:
    from typing import Unpack

    from tokmill.settings.arguments import SourceArguments


DTYPES = ("auto", "uint16", "uint32")
PROCESSES, RAY = "processes", "ray"
BLAKE3, SHA256 = "blake3", "sha256"
CHECKSUMS = (BLAKE3, SHA256)
_OF_THE_BILL = ("model.name", "training.gpu")
PRETRAIN_SECTIONS = ("input", "tokenizer", "render", "output", "limits", "run", *_OF_THE_BILL)
SFT_SECTIONS = ("input", "tokenizer", "sft", "output", "limits", "run", *_OF_THE_BILL)
READ_SETTINGS = ("input", "limits.on_error", "limits.on_unread", "limits.max_reject_fraction")
ENCODE_SETTINGS = ("tokenizer", "output.dtype", "run.engine", "run.threads")
BILL_SECTIONS = ("model", "training", "inference")
"""What a function or a command takes: sections, and single settings of others by their keys."""


@dataclass(frozen=True, slots=True)
class InputSettings:
    """Where records come from. The order of `paths` is the order of the dataset."""

    # Paths do not affect output: the plan has the slices, and the identity of the tokenizer.
    paths: tuple[str, ...] = runtime_setting(
        (),
        "Files, globs, directories, hf:NAME[@REVISION][?config=C&split=S], or - (stdin).",
        is_path=PATH,
    )
    sources: tuple[Source, ...] = runtime_setting(
        (),
        'Inputs with their own settings of reading, as a table of TOML: \'name = "sgd", '
        'paths = ["sgd.jsonl"], role_names = {system = "assistant"}\'.',
        metavar="TABLE",
    )
    format: str = dataset_setting(
        "auto", "Format of the input; auto: by file ending.", table=FORMATS, of_source=True
    )
    text_separator: str = dataset_setting(
        "",
        "Separator between documents in plain text; empty: one document per file.",
        of_source=True,
    )
    csv_delimiter: str = dataset_setting(",", "Delimiter of CSV files.", of_source=True)
    csv_header: str = dataset_setting(
        "auto",
        "Whether the first record of a CSV file names its columns; no: they are column_1, "
        "column_2, …; auto: it does, and one that looks like data is an error.",
        choices=("auto", "yes", "no"),
        in_plan_if_set=True,
        of_source=True,
    )
    csv_quote: str = dataset_setting(
        "auto",
        'Character that encloses cells of CSV files, or none; auto: ", and a file that may never '
        "quote is an error.",
        in_plan_if_set=True,
        of_source=True,
    )
    csv_escape: str = dataset_setting(
        "auto",
        "Character that escapes quotes, delimiters and line breaks in CSV files, such as \\, or "
        "none; auto: none, and a file that may have backslash escapes is an error.",
        in_plan_if_set=True,
        of_source=True,
    )
    keep: tuple[str, ...] = dataset_setting(
        (),
        "Fields of the records to keep beside the tokens, such as url,meta.language: a column of "
        "strings for each in a .meta file beside every shard.",
        in_plan_if_set=True,
        metavar="FIELD,…",
    )
    where: str = dataset_setting(
        "",
        "Keep the records for which a function is true, package.module:function; it gets each "
        "record as a dict.",
        in_plan_if_set=True,
        of_source=True,
        metavar="FUNCTION",
    )
    on_bad_text: str = dataset_setting(
        "reject",
        "Bytes that are not UTF-8, and halves of surrogate pairs, in a field that is read; reject: "
        "reject the record; replace: write U+FFFD for each, and count them.",
        choices=("reject", "replace"),
        in_plan_if_set=True,
        of_source=True,
    )
    max_record_bytes: int = dataset_setting(
        64 << 20,
        "Reject longer records; they are never held in memory.",
        minimum=1,
        maximum=1 << 30,
        unit="bytes",
    )
    max_decompression_ratio: int = runtime_setting(
        500,
        "Stop at a compressed file that holds more than this many bytes for each stored byte, once "
        "that is over 1 GiB; 0: no limit.",
        minimum=0,
        is_hidden=True,
    )

    def __post_init__(self) -> None:
        if "" in self.keep or len(set(self.keep)) < len(self.keep):
            raise UsageError(
                f"expected different fields, such as url,meta.language; found {self.keep!r}",
                "input.keep",
            )

    @property
    def replaces_bad_text(self) -> bool:
        """Return whether U+FFFD is written for what is no text."""
        return self.on_bad_text == "replace"

    @property
    def all_paths(self) -> tuple[str, ...]:
        """Return the paths of the run, and those of its sources."""
        return (*self.paths, *(path for source in self.sources for path in source.path_list))


KEYS_OF_RECORDS = {
    "title": "title",
    "summary": "summary",
    "sections": "sections",
    "section_title": "title",
    "section_content": "content",
    "text": "text",
}
"""The roles of `render.fields`, each with the key that has it by default."""
_JOINS = {"separator": ":", "terminator": "。"}
"""The arguments of renderer encyclopedia: text between a title and its text, after a section."""

_UNCLEAR = {"unclear": "encyclopedia"}
"""The argument of renderer sections: the renderer of files of no clear script."""

_ARGUMENTS = {"encyclopedia": _JOINS, "sections": _UNCLEAR}


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """How a record becomes a document."""

    renderer: str = dataset_setting(
        "auto",
        "How a record becomes text; auto: by the keys of the first records; sections: encyclopedia "
        "or article, by the script of each file; encyclopedia:separator=:,terminator=。 names what "
        "stands behind a title and a section.",
        table=RENDERERS,
        of_source=True,
    )
    fields: tuple[str, ...] = dataset_setting(
        (),
        "Keys of title, summary, sections, section_title, section_content and text in the records: "
        "title=headline,text=body; of a role that is given twice, the first key that is filled.",
        is_mapping=True,
        of_source=True,
        metavar="ROLE=KEY,…",
    )
    template: str = dataset_setting(
        "", "Format string over keys, such as '{title}\\n{body}'.", of_source=True
    )
    strip_end: str = dataset_setting(
        "",
        "Leave this string out at the end of each text, such as '<|endoftext|>' in a dump that was "
        "prepared for a trainer.",
        in_plan_if_set=True,
    )

    def __post_init__(self) -> None:
        for role, keys in self._keys().items():
            if role not in KEYS_OF_RECORDS or "" in keys:
                roles = ", ".join(KEYS_OF_RECORDS)
                raise UsageError(
                    f"expected ROLE=KEY, such as text=body, with a role of {roles}; found {role!r}",
                    "render.fields",
                )
        given, (name, colon, _) = self._arguments(), self.renderer.partition(":")
        has_none = bool(colon) and name in _ARGUMENTS and not given
        is_wrong = has_none or bool(given.keys() - _ARGUMENTS.get(name, {}).keys())
        if is_wrong or given.get("unclear", "article") not in ("article", "encyclopedia"):
            raise UsageError(
                "expected encyclopedia:separator=:,terminator=。, sections:unclear=article, or a "
                f"name without arguments, found {self.renderer!r}",
                "render.renderer",
            )

    @property
    def renderer_name(self) -> str:
        """Return the renderer without its arguments."""
        return self.renderer.partition(":")[0] if self._arguments() else self.renderer

    @property
    def separator(self) -> str:
        """Return the text between a title and its text."""
        return self._arguments().get("separator", _JOINS["separator"])

    @property
    def terminator(self) -> str:
        """Return the text after every section."""
        return self._arguments().get("terminator", _JOINS["terminator"])

    @property
    def unclear(self) -> str:
        """Return the renderer of a file whose letters are few or of no clear script."""
        return self._arguments().get("unclear", _UNCLEAR["unclear"])

    def keys_of(self, role: str) -> tuple[str, ...]:
        """Return the keys of a role of `KEYS_OF_RECORDS`, in the order in which they are tried."""
        return self._keys().get(role, (KEYS_OF_RECORDS[role],))

    def key_of(self, role: str) -> str:
        """Return the first key of a role."""
        return self.keys_of(role)[0]

    @property
    def text_field(self) -> str:
        """Return the keys of the text, with commas between them."""
        return ",".join(self.keys_of("text"))

    def with_keys(self, **keys: str) -> RenderSettings:
        """Return the settings with other keys of some roles."""
        kept = [pair for pair in self.fields if pair.partition("=")[0] not in keys]
        named = [f"{role}={key}" for role, key in keys.items() if key != KEYS_OF_RECORDS[role]]
        return replace(self, fields=tuple(sorted((*kept, *named), key=role_of_pair)))

    def _keys(self) -> Mapping[str, tuple[str, ...]]:
        keys: dict[str, tuple[str, ...]] = {}
        for pair in self.fields:
            role, _, key = pair.partition("=")
            keys[role.strip()] = (*keys.get(role.strip(), ()), key.strip())
        return keys

    def _arguments(self) -> Mapping[str, str]:
        """Return the arguments in `NAME:KEY=VALUE,KEY=VALUE`; a value may hold any character."""
        _, _, arguments = self.renderer.partition(":")
        pairs = re.split(r",(?=[a-z_]+=)", arguments) if _ARGUMENT.match(arguments) else []
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


_ARGUMENT = re.compile("[a-z_]+=")


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """The tokenizer, and tokens added to documents. Empty: as the tokenizer's files say."""

    path: str = runtime_setting(
        "",
        "tokenizer.json, a directory, a SentencePiece .model, a tiktoken file or a Hub name.",
        is_path=NAME_OR_PATH,
    )
    eos_token: str = dataset_setting(
        "", "Token added after every document; empty: the tokenizer's own."
    )
    bos_token: str = dataset_setting("", "Token added before every document; empty: none.")
    pattern: str = dataset_setting(
        "", "Regular expression that splits text for a tiktoken file, or the name of a known one."
    )
    control_tokens_in_text: str = dataset_setting(
        "text",
        "Strings of control tokens inside records; text: keep them as text; parse: make them "
        "control tokens; reject: reject the record.",
        choices=("text", "parse", "reject"),
    )


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """Where the dataset is written, and how it is divided into parts, shards, splits and rows."""

    dir: str = runtime_setting("", "Directory to write the dataset to.", is_path=PATH)
    dtype: str = dataset_setting(
        "auto", "Type of token ids; auto: uint16 if all ids fit.", choices=DTYPES
    )
    part_bytes: int = dataset_setting(
        0,
        "Bytes of input per part, the unit of work and of what a stopped run keeps; 0: 256 MiB, of "
        "chats 64 MiB, more for an input of over 4,000 parts.",
        minimum=0,
        unit="bytes",
    )
    shard_tokens: int = shard_tokens_setting()
    val_fraction: float = dataset_setting(
        0.0,
        "Fraction of documents for validation shards; 0: none.",
        minimum=0.0,
        maximum=1.0,
        zero_is_value=True,
    )
    packing: int = dataset_setting(
        0,
        "Pack documents into rows of this many tokens, by an index; longer ones are cut, as by "
        "tokmill pack. 0: no packing.",
        minimum=0,
        maximum=1 << 28,
        unit="context",
    )
    max_samples_per_row: int = max_samples_setting()
    checksum: str = runtime_setting(
        BLAKE3,
        "Checksum of files; sha256 is slower, but sha256sum can check it.",
        choices=CHECKSUMS,
        is_hidden=True,
    )


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Documents that are left out, and when a run stops because too much is broken."""

    min_tokens: int = dataset_setting(
        0,
        "Drop documents with fewer tokens (eos not counted; in chats all tokens count); 0: none.",
        minimum=0,
        zero_is_value=True,
    )
    max_tokens: int = dataset_setting(
        0,
        "Drop documents with more tokens (eos not counted; for chats see --too-long); 0: no limit.",
        minimum=0,
    )
    on_error: str = runtime_setting(
        "skip",
        "Broken records; skip: count them and continue; fail: stop at the first one.",
        choices=("skip", "fail"),
    )
    on_unread: str = runtime_setting(
        "error",
        "Input that cannot be read to its end (cut off, damaged, an open quote or array); error: "
        "fail after all other input; skip: count the unread bytes and finish.",
        choices=("error", "skip"),
    )
    max_reject_fraction: float = runtime_setting(
        0.01,
        "Stop if more than this fraction of records is rejected; of fewer than 1,000 records up to "
        "10 rejects never stop.",
        minimum=0.0,
        maximum=1.0,
    )
    max_unknown_fraction: float = runtime_setting(
        0.1,
        "Stop if more than this fraction of the tokens is the unknown token, or of the text is "
        "characters that the tokenizer leaves out; 1: no limit.",
        minimum=0.0,
        maximum=1.0,
    )
    max_empty_fraction: float = runtime_setting(
        1.0,
        "Stop if more than this fraction of records has no text; such records are drops. 1: no "
        "limit.",
        minimum=0.0,
        maximum=1.0,
    )


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the work is done; nothing here changes a byte of the dataset."""

    engine: str = runtime_setting(
        "auto",
        "Engine that encodes text; auto: the fastest one whose ids equal those of the reference.",
        table=ENGINES,
    )
    workers: int = runtime_setting(
        0, "Worker processes; 0: by cores, input and memory.", minimum=0, maximum=256
    )
    threads: int = runtime_setting(
        0, "Threads in each worker; 0: cores divided by workers.", minimum=0, maximum=256
    )
    executor: str = runtime_setting(
        PROCESSES,
        "Where parts are worked on: processes of this machine, or ray: tasks of a Ray cluster at "
        "ADDRESS (HOST:PORT), by default at RAY_ADDRESS, of this machine, or started here.",
        metavar="[processes|ray[:ADDRESS]]",
    )
    block_bytes: int = runtime_setting(
        4 << 20, "Bytes of input per block.", minimum=1, maximum=256 << 20, unit="bytes",
        is_hidden=True,
    )  # fmt: skip
    engine_memory_bytes: int = runtime_setting(
        0,
        "Reload the engine when its caches have grown by this much, but not before it has encoded "
        "16 MiB of text; 0: 200 MiB per thread, or less if memory is short.",
        minimum=0,
        unit="bytes",
        is_hidden=True,
    )

    def __post_init__(self) -> None:
        if self.executor not in (PROCESSES, RAY) and not self.executor.startswith(f"{RAY}:"):
            raise UsageError(
                f"expected {PROCESSES}, {RAY} or {RAY}:HOST:PORT, found {self.executor!r}",
                "run.executor",
            )

    @property
    def is_on_ray(self) -> bool:
        """Return whether parts are tasks of a Ray cluster."""
        return self.executor != PROCESSES

    @property
    def ray_address(self) -> str:
        """Return the address of the Ray cluster; '' if none is named."""
        return self.executor.partition(":")[2]


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a run; `sft` is None for pretraining.

    `model`, `training` and `inference` describe the model of the bill; None if not given.
    """

    input: InputSettings = field(default_factory=InputSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    render: RenderSettings = field(default_factory=RenderSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    run: RunSettings = field(default_factory=RunSettings)
    sft: SftSettings | None = None
    model: ModelSettings | None = None
    training: TrainingSettings | None = None
    inference: InferenceSettings | None = None


def role_of_pair(pair: str) -> str:
    """Return the first half of a pair `role=key`."""
    return pair.partition("=")[0]


class Source:
    """A named set of inputs with settings of reading of its own; others are those of the run.

    `paths`: files, globs, directories or `hf:NAME`: one, or a sequence; or rows in memory, as
    `tokmill.pretrain` takes them. The keyword arguments are the settings of the same names, and
    `tokmill.settings.arguments.SourceArguments` lists them.

        >>> web = tokmill.Source("web", "corpus/*.jsonl", renderer="article")
        >>> tokmill.pretrain(web, tokenizer="gpt2/", output="web")
    """

    def __init__(
        self,
        name: str,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Rows,
        **settings: Unpack[SourceArguments],
    ) -> None:
        self.name, self.paths, self.settings = name, paths, dict(settings)

    def __repr__(self) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f"Source({self.name!r}, {brief(self.paths)}{arguments})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Source):
            return False
        if is_rows(self.paths) or is_rows(other.paths):  # tables have no truth value
            return self is other
        return self.values() == other.values()

    def __hash__(self) -> int:
        return hash((self.name, () if is_rows(self.paths) else self.path_list))

    @property
    def path_list(self) -> tuple[str, ...]:
        """Return the paths, in their order; not of rows in memory, which are written first."""
        if isinstance(self.paths, str | os.PathLike):
            return (os.fspath(self.paths),)
        paths: Any = self.paths
        return tuple(os.fspath(path) for path in paths)

    def values(self) -> dict[str, Any]:
        """Return name, paths and the settings that are given, as a `[[source]]` table has them."""
        chosen = {name: value for name, value in self.settings.items() if value is not None}
        return {"name": self.name, "paths": self.paths, **chosen}


class UnclearNamesError(UsageError):
    """Records whose keys or roles must be named; `table`: the settings to give, as TOML.

    `about`: the message up to the settings, `options`: the same settings as options.
    """

    def __init__(self, about: str, options: str, table: str) -> None:
        super().__init__(f"{about}{options}")
        self.about, self.table = about, table
