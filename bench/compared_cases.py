"""The inputs and settings that `bench.compare_versions` gives to two versions of tokmill."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SAMPLES = Path(__file__).parents[1] / "data_samples"
CUT_BYTES = 2 << 20
"""Bytes of each corpus that are compared."""
ALWAYS = {"engine": "reference", "workers": "1", "max_reject_fraction": "1"}
MASKS: tuple[dict[str, str], ...] = (
    {"packing": "1024", "packed_rows": "yes"},
    {"packing": "512", "too_long": "window", "window_overlap": "32", "workers": "2"},
    {"max_tokens": "200", "too_long": "truncate-left", "train": "+eos"},
    {"max_tokens": "200", "too_long": "drop-turns"},
    {"boundary": "joint-mask", "turns": "last"},
    {"boundary": "joint-reject"},
    {"samples": "turn", "val_fraction": "0.1", "part_bytes": "64KiB"},
    {"roles": "user,assistant", "train": "+header,+prompt,+suffix"},
    {"weights": "file", "train": "everything", "control_tokens_in_text": "parse"},
    {"inline_tags": "fields", "train": "-reasoning,-tool-calls,-eot"},
    {"default_system": "Be brief."},
    *(
        {"preset": preset}
        for preset in ("trl", "llamafactory", "torchtune", "nanochat", "minimind")
    ),
)
HIDDEN = ("block_bytes",)
TURNS = """\
{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}\
{%- if m['role'] == 'assistant' %}BEGIN{{ m['content'] or '' }}{{ '<|im_end|>' }}END\
{%- else %}{{ m['content'] or '' }}{{ '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"""


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the command line. `settings` are named as in its options, with underscores."""

    name: str
    command: str
    inputs: tuple[Path, ...]
    tokenizer: Path
    settings: dict[str, str]

    @property
    def options(self) -> list[str]:
        """Return the words of the settings; that of a flag is `yes`."""
        found = []
        for name, value in self.settings.items():
            if name not in HIDDEN:
                found += [f"--{name.replace('_', '-')}", *([] if value == "yes" else [value])]
        return found

    @property
    def variables(self) -> dict[str, str]:
        """Return the settings that have no option as environment variables."""
        return {f"TOKMILL_{n.upper()}": self.settings[n] for n in HIDDEN if n in self.settings}


def pretrain(name: str, tokenizer: Path, *inputs: Path, **settings: str) -> Case:
    """Return a case of `pretrain`, of encyclopedia records if it is not told otherwise."""
    settings = ALWAYS | {"renderer": "encyclopedia"} | settings
    return Case(f"pretrain {name}", "pretrain", inputs, tokenizer, settings)


def sft(name: str, tokenizer: Path, *inputs: Path, **settings: str) -> Case:
    """Return a case of `sft`."""
    settings = ALWAYS | {"schema": "mixed", "template": "chatml"} | settings
    return Case(f"sft {name}", "sft", inputs, tokenizer, settings)


def all_cases(work: Path, data: Path | None, shared: Path | None) -> Iterator[Case]:
    """Make the inputs in `work`, and yield every case; corpora and chats only where they are."""
    work.mkdir()
    own = SAMPLES / "tokenizer"
    yield from sample_cases(work, own)
    yield from chat_cases(work, sorted((SAMPLES / "sft").glob("*.*")), own)
    if shared:
        gpt2, qwen = (copied_tokenizer(work, shared, name) for name in ("gpt2", "qwen2.5"))
        yield from chat_cases(work, sorted((shared / "data" / "sft").glob("*.jsonl")), qwen)
        for corpus in sorted(data.glob("docs_*.jsonl")) if data else ():
            yield from corpus_cases(work / corpus.stem, corpus, gpt2, qwen)


def copied_tokenizer(work: Path, shared: Path, name: str) -> Path:
    """Return a copy of a tokenizer's directory with its compressed files decompressed."""
    copy = shutil.copytree(shared / "data" / "tokenizers" / name, work / "tokenizers" / name)
    for file in copy.glob("*.zst"):
        file.with_suffix("").write_bytes(zstd.decompress(file.read_bytes()))
    return copy


def sample_cases(work: Path, own: Path) -> Iterator[Case]:
    """Yield the samples of the repository: every container, broken ones, settings of reading."""
    ends = {"eos_token": "<eos>", "bos_token": "<bos>"}
    for file in sorted(SAMPLES.glob("records*")):
        yield pretrain(file.name, own, file, **ends)
    records, table = SAMPLES / "records.jsonl", SAMPLES / "records.parquet"
    small = {"part_bytes": "64KiB", "block_bytes": "16KiB", "val_fraction": "0.1", "workers": "2"}
    yield pretrain("small parts", own, records, table, **ends, **small)
    limits = {"max_tokens": "500", "min_tokens": "20", "shard_tokens": "4000"}
    yield pretrain("limits", own, records, table, **ends, **limits)
    for way in ("parse", "reject"):
        yield pretrain(f"{way} control tokens", own, records, **ends, control_tokens_in_text=way)
    template = {"renderer": "template", "template": "{title}\n{summary}"}
    yield pretrain("template", own, records, **ends, **template)
    renamed = work / "renamed.jsonl"
    renamed.write_bytes(records.read_bytes().replace(b'"title"', b'"name"'))
    yield pretrain("renamed keys", own, renamed, **ends, fields="title=name,section_title=name")
    texts, documents = SAMPLES / "text", SAMPLES / "documents.jsonl"
    yield pretrain("text files", own, texts, **ends, renderer="text")
    yield pretrain("separated texts", own, texts, **ends, renderer="text", text_separator="\n\n")
    source = f'name = "texts", paths = ["{documents}"], renderer = "text"'
    yield pretrain("two sources", own, table, **ends, source=source)
    broken = sorted((SAMPLES / "broken").glob("*.*"))
    for limit in ("64MiB", "500"):
        skip = {"on_unread": "skip", "max_record_bytes": limit}
        yield pretrain(f"broken, records up to {limit}", own, *broken, **ends, **skip)


def corpus_cases(folder: Path, corpus: Path, gpt2: Path, qwen: Path) -> Iterator[Case]:
    """Yield the beginning of a corpus in lines, and of some in every container."""
    name, ends = corpus.stem, {"eos_token": "<|endoftext|>"}
    with corpus.open("rb") as lines:
        write_containers(folder, lines.read(CUT_BYTES) + lines.readline())
    records = folder / "docs.jsonl"
    yield pretrain(f"{name}, qwen2.5", qwen, records, **ends)
    yield pretrain(f"{name}, gpt2", gpt2, records, **ends)
    if name.endswith("_more"):  # of the same languages
        return
    for file in sorted(set(folder.iterdir()) - {records}):
        renderer = "text" if file.suffix in (".csv", ".txt") else "encyclopedia"
        yield pretrain(f"{name} {file.name}, gpt2", gpt2, file, **ends, renderer=renderer)
    small = {"part_bytes": "512KiB", "val_fraction": "0.1", "workers": "2"}
    yield pretrain(f"{name}, small parts", gpt2, records, folder / "docs.parquet", **ends, **small)
    for engine in ("gigatoken", "fastokens", "auto"):
        yield pretrain(f"{name}, {engine}", gpt2, records, **ends, engine=engine)


def write_containers(folder: Path, text: bytes) -> None:
    """Write the records of a JSON Lines text in every container, and in a folder of several."""
    folder.mkdir()
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    (folder / "docs.jsonl").write_bytes(text)
    (folder / "docs.jsonl.gz").write_bytes(gzip.compress(text))
    (folder / "docs.jsonl.zst").write_bytes(zstd.compress(text))
    (folder / "docs.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1), "utf-8")
    with (folder / "docs.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["title", "text"], *([row["title"], row["summary"]] for row in rows)])
    (folder / "docs.txt").write_text("\n".join(row["summary"] for row in rows), "utf-8")
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "docs.parquet", row_group_size=500)
    with pa.ipc.new_file(folder / "docs.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=500)
    mixed = folder / "mixed"
    mixed.mkdir()
    for name in ("docs.jsonl.zst", "docs.json", "docs.parquet"):
        shutil.copy(folder / name, mixed / name)


def chat_cases(work: Path, files: list[Path], tokenizer: Path) -> Iterator[Case]:
    """Yield chats with each way to write them, and with options of masks and packing."""
    of = f"{len(files)} files, {tokenizer.name}"
    for template in ("chatml", "plain", "tokenizer"):
        yield sft(f"{of}, {template}", tokenizer, *files, template=template)
    alpaca = [file for file in files if "alpaca" in file.name]
    yield sft(f"{of}, alpaca", tokenizer, *alpaca, template="alpaca")
    for name, begin, end in (
        ("tags", "{% generation %}", "{% endgeneration %}"),
        ("no tags", "", ""),
    ):
        file = work / f"{name}.jinja"
        file.write_text(TURNS.replace("BEGIN", begin).replace("END", end), "utf-8")
        yield sft(f"{of}, {name}", tokenizer, *files, template=str(file))
    for options in MASKS:
        named = ", ".join(f"{name} {value}" for name, value in options.items())
        yield sft(f"{of}, {named}", tokenizer, *files, **options)
