"""Settings: frozen dataclasses, and a strict loader from TOML.

Precedence: command-line option, environment variable, file, default (the command line resolves the
first two). An unknown key, a wrong type or a value out of range is a `UsageError` that names the
file and the key. Fields whose metadata says `affects_output` decide the bytes of the dataset: they
are kept in the plan, and a run with other values does not continue in the same directory.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS = ("auto", "jsonl", "array", "csv", "parquet", "text", "arrow")
RENDERERS = ("auto", "encyclopedia", "text", "template")
ENGINES = ("auto", "tokenizers", "gigatoken", "fastokens", "tokenizers+cache")
DTYPES = ("auto", "uint16", "uint32")
SIZE_UNITS = {
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)},
}


def _bytes_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that decides the bytes of the dataset; `text` is its help."""
    return field(default=default, metadata={"affects_output": True, "help": text, **metadata})


def _speed_setting(default: Any, text: str, **metadata: Any) -> Any:
    """Declare a setting that decides speed, memory or messages, and never a byte of the dataset."""
    return field(default=default, metadata={"affects_output": False, "help": text, **metadata})


@dataclass(frozen=True, slots=True)
class InputSettings:
    """Where records come from. The order of `paths` is the order of the dataset."""

    # The plan's slices fix the inputs, and its tokenizer's sha256 the tokenizer; paths do not.
    paths: tuple[str, ...] = _speed_setting((), "Files, globs, directories, hf:NAME, or - (stdin).")
    format: str = _bytes_setting("auto", "Format of the input; auto: by ending.", choices=FORMATS)
    text_separator: str = _bytes_setting(
        "", "What separates documents in plain text; empty: one document per file."
    )
    csv_delimiter: str = _bytes_setting(",", "Delimiter of CSV files.")
    hub_config: str = _bytes_setting("", "Configuration of a Hub dataset.")
    hub_split: str = _bytes_setting("train", "Split of a Hub dataset.")
    hub_revision: str = _bytes_setting("", "Revision of a Hub dataset.")
    max_record_bytes: int = _bytes_setting(
        64 << 20,
        "A longer record is a reject, never held in memory.",
        minimum=1,
        maximum=1 << 30,
    )


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """How a record becomes a document."""

    renderer: str = _bytes_setting(
        "auto", "How a record becomes text; auto: by the first records' keys.", choices=RENDERERS
    )
    title_field: str = _bytes_setting("title", "Key of the title.")
    summary_field: str = _bytes_setting("summary", "Key of the summary.")
    sections_field: str = _bytes_setting("sections", "Key of the list of sections.")
    section_title_field: str = _bytes_setting("title", "Key of a section's title.")
    section_content_field: str = _bytes_setting("content", "Key of a section's content.")
    separator: str = _bytes_setting(":", "Between a title and what it titles.")
    terminator: str = _bytes_setting("。", "After every section.")
    text_field: str = _bytes_setting("text", "Key of the text, for the text renderer.")
    template: str = _bytes_setting("", "Format string over keys, such as '{title}\\n{body}'.")


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """Which tokenizer, and the tokens placed around documents. Empty means: from its own files."""

    path: str = _speed_setting(
        "", "tokenizer.json, a directory, a SentencePiece .model, a tiktoken file or a Hub name."
    )
    eos_token: str = _bytes_setting("", "Token appended to every document; empty: as configured.")
    bos_token: str = _bytes_setting("", "Token put before every document; empty: none.")
    pattern: str = _bytes_setting("", "Split pattern of a tiktoken file, by name.")
    control_tokens_in_text: str = _bytes_setting(
        "text",
        "What a control token's string inside a record becomes.",
        choices=("text", "parse", "reject"),
    )


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """Where the dataset goes, and how it is cut."""

    dir: str = _speed_setting("", "Directory to write the dataset to.")
    dtype: str = _bytes_setting("auto", "Type of the ids; auto: uint16 if all fit.", choices=DTYPES)
    part_bytes: int = _bytes_setting(
        1 << 30, "Input per part, the unit of commit and resume.", minimum=1
    )
    shard_tokens: int = _bytes_setting(
        0, "Tokens per shard at most; 0: 1 GiB of tokens.", minimum=0
    )
    val_fraction: float = _bytes_setting(
        0.0, "Fraction of documents that go to val shards.", minimum=0.0, maximum=1.0
    )


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What is left out, and when a run that eats the wrong file stops."""

    min_tokens: int = _bytes_setting(
        0, "Drop documents of fewer tokens (eos not counted).", minimum=0
    )
    max_tokens: int = _bytes_setting(
        0, "Drop documents of more tokens (eos not counted); 0: no limit.", minimum=0
    )
    on_error: str = _speed_setting("skip", "What a broken record does.", choices=("skip", "fail"))
    max_reject_fraction: float = _speed_setting(
        0.01, "Stop when more than this fraction is rejected.", minimum=0.0, maximum=1.0
    )


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the work is done; nothing here changes a byte."""

    engine: str = _speed_setting(
        "auto", "Encoder; auto: the fastest exact one on this corpus.", choices=ENGINES
    )
    workers: int = _speed_setting(0, "Worker processes; 0: one.", minimum=0, maximum=256)
    threads: int = _speed_setting(
        0, "Threads in each worker; 0: the cores divided by the workers.", minimum=0, maximum=256
    )
    batch_bytes: int = _speed_setting(4 << 20, "Input per batch.", minimum=1)
    engine_memory_bytes: int = _speed_setting(
        0,
        "Renew the engine when its caches have grown by this; 0: 200 MiB a thread.",
        minimum=0,
    )


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a run."""

    input: InputSettings = field(default_factory=InputSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    render: RenderSettings = field(default_factory=RenderSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    run: RunSettings = field(default_factory=RunSettings)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file into nested dicts.

    Raises:
        UsageError: the file is missing, unreadable, or not TOML.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such configuration file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def build_config(values: Mapping[str, Mapping[str, Any]], *, where: str) -> Config:
    """Build a `Config` from sections of plain values; `where` names their origin in messages.

    Raises:
        UsageError: an unknown section or key, a wrong type, a value outside its range or choices.
    """
    sections = {f.name: f for f in dataclasses.fields(Config)}
    types = get_type_hints(Config)
    built: dict[str, Any] = {}
    for name, section in values.items():
        if name not in sections:
            raise UsageError(f"{where}: unknown section [{name}]; known: {', '.join(sections)}")
        if not isinstance(section, dict):
            raise UsageError(f"{where}: [{name}] must be a table, found {_kind(section)}")
        built[name] = _build_section(types[name], section, f"{where}: {name}")
    return Config(**built)


def _build_section(section_type: type, values: Mapping[str, Any], where: str) -> Any:
    known = {f.name: f for f in dataclasses.fields(section_type)}
    types = get_type_hints(section_type)
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise UsageError(f"{where}.{key}: unknown key; known: {', '.join(known)}")
        checked[key] = _check(types[key], value, known[key].metadata, f"{where}.{key}")
    low, high = checked.get("min_tokens", 0), checked.get("max_tokens", 0)
    if high and low > high:
        raise UsageError(f"{where}.min_tokens: {low} is more than max_tokens, {high}")
    return section_type(**checked)


def _check(expected: Any, value: Any, metadata: Mapping[str, Any], where: str) -> Any:
    if expected == tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise UsageError(f"{where}: expected a list of strings, found {_kind(value)}")
        if any(not isinstance(item, str) for item in value):
            raise UsageError(f"{where}: expected a list of strings, found {value!r}")
        return tuple(value)
    if expected is float and type(value) is int:
        value = float(value)
    if expected is int and isinstance(value, str) and where.endswith("_bytes"):
        value = parse_size(value, where)
    if type(value) is not expected:
        raise UsageError(f"{where}: expected {expected.__name__}, found {_kind(value)} ({value!r})")
    if isinstance(value, str) and not _is_utf8(value):
        raise UsageError(f"{where}: expected text in UTF-8, found {value!r}")
    choices, low, high = (metadata.get(key) for key in ("choices", "minimum", "maximum"))
    if choices is not None and value not in choices:
        raise UsageError(f"{where}: expected one of {', '.join(choices)}; found {value!r}")
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise UsageError(f"{where}: expected {bounds}, found {value!r}")
    return value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    return "a table" if isinstance(value, dict) else type(value).__name__


def parse_size(text: str, where: str) -> int:
    """Read a size such as `8 MiB`, `1GB` or `4096`, in bytes.

    Raises:
        UsageError: it is not a number with one of the units B, kB, KiB, MB, MiB, GB, GiB, TB, TiB.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    factor = None if match is None else SIZE_UNITS.get(match[2].lower() or "b")
    if match is None or factor is None:
        raise UsageError(f"{where}: expected a size such as 8MiB or 1GB, found {text!r}")
    return int(float(match[1]) * factor)


def output_settings(config: Config) -> dict[str, dict[str, Any]]:
    """Give the settings that decide the bytes of a dataset, by section, as plain values."""
    chosen: dict[str, dict[str, Any]] = {}
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        kept = {
            f.name: getattr(value, f.name)
            for f in dataclasses.fields(value)
            if f.metadata["affects_output"]
        }
        if kept:
            chosen[section.name] = kept
    return chosen


def plain(config: Config) -> dict[str, dict[str, Any]]:
    """Give every setting as plain values, ready for JSON."""
    values = dataclasses.asdict(config)
    values["input"]["paths"] = list(values["input"]["paths"])
    return values
