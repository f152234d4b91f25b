"""Compare the datasets that two versions of tokmill make of the same inputs and settings.

    python -m bench.compare_versions OTHER_CHECKOUT [--tokenizer DIR] [--only TEXT] [CHATS…]

Runs the command line of this checkout and of the other one, with this interpreter, on the samples
of the repository, and on files of chats with a tokenizer of yours. Parts may have other sizes, so
whole splits are compared: ids, documents, masks, weights, packs, rejects (place and reason) and
counts. Prints a line for each case: `same`, or the first difference. Exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

COUNTS = "records documents tokens text_bytes drops rejects unread extra trained_tokens counters"
HEADER_BYTES = 34
"""Bytes of an `.idx` before the lengths of its documents."""
HERE = Path(__file__).parents[1]
SAMPLES = HERE / "data_samples"
ALWAYS = {"engine": "reference", "workers": "1", "max_reject_fraction": "1"}
SAME, NEW = "same", "not compared: the other version has no such option"
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
            found += [f"--{name.replace('_', '-')}", *([] if value == "yes" else [value])]
        return found


def pretrain(name: str, tokenizer: Path, *inputs: Path, **settings: str) -> Case:
    """Return a case of `pretrain`, of encyclopedia records if it is not told otherwise."""
    settings = ALWAYS | {"renderer": "encyclopedia"} | settings
    return Case(f"pretrain {name}", "pretrain", inputs, tokenizer, settings)


def sft(name: str, tokenizer: Path, *inputs: Path, **settings: str) -> Case:
    """Return a case of `sft`."""
    settings = ALWAYS | {"schema": "mixed", "template": "chatml"} | settings
    return Case(f"sft {name}", "sft", inputs, tokenizer, settings)


def run(checkout: Path, case: Case, work: Path) -> dict[str, Any]:
    """Run a case; return what its dataset holds, or only the exit code and the last message."""
    output = work / "out"
    shutil.rmtree(output, ignore_errors=True)
    places = {"PYTHONPATH": str(checkout / "src"), "TOKMILL_CACHE_DIR": str(work / "cache")}
    command = [sys.executable, "-m", "tokmill", case.command, *map(str, case.inputs)]
    command += [*case.options, "--tokenizer", str(case.tokenizer), "--output", str(output)]
    variables = os.environ | places
    done = subprocess.run(command, env=variables, cwd=work, capture_output=True, text=True)
    if done.returncode:
        message = (done.stderr.strip().splitlines() or [""])[-1]
        return {"exit code": done.returncode, "message": message}
    return {"exit code": 0} | contents(output)


def contents(directory: Path) -> dict[str, Any]:
    """Return what a dataset holds, by name; shards of a split are joined in their order."""
    manifest = json.loads((directory / "manifest.json").read_bytes())
    dtype = {"uint16": "<u2", "uint32": "<u4"}[manifest["dtype"]]
    held: dict[str, Any] = {key: manifest["totals"].get(key) for key in COUNTS.split()}
    held["dtype"] = dtype
    shards: dict[str, list[str]] = {split: [] for split in ("train", "val")}
    for shard in manifest["shards"]:
        shards[shard["split"]].append(shard["name"])
    for split, pack in manifest.get("packs", {}).items():
        shards[f"packed {split}"] = [shard["name"] for shard in pack.get("shards", [])]
        for kind in ("rows", "samples"):
            file = directory / f"packs-{split}-{kind}.bin"
            held[f"packs of {split}, {kind}"] = np.fromfile(file, "<i8")
    for split, names in shards.items():
        prefixes = [directory / Path(name).stem for name in names]
        for ending, kind in ((".bin", dtype), (".mask", "u1"), (".weight", "<f4")):
            files = [prefix.with_suffix(ending) for prefix in prefixes]
            arrays = [np.fromfile(file, kind) for file in files if file.exists()]
            held[f"{split}, {ending}"] = np.concatenate([np.empty(0, kind), *arrays])
        lengths = [document_lengths(prefix.with_suffix(".idx")) for prefix in prefixes]
        held[f"{split}, lengths"] = np.concatenate([np.empty(0, "<i4"), *lengths])
    rejects = [
        " ".join(str(reject[key]) for key in ("source", "line", "byte_offset", "reason"))
        for file in sorted((directory / "rejects").glob("*.jsonl"))
        for reject in map(json.loads, file.read_text("utf-8").splitlines())
    ]
    held["rejects, places"] = np.array(rejects, object)
    return held


def document_lengths(file: Path) -> np.ndarray[Any, Any]:
    """Return the lengths of the documents of a shard, in tokens, from its `.idx`."""
    data = file.read_bytes()
    return np.frombuffer(data, "<i4", int.from_bytes(data[18:26], "little"), HEADER_BYTES)


def first_difference(here: dict[str, Any], there: dict[str, Any]) -> str:
    """Return where two datasets differ first, or `SAME`."""
    for key in here | there:
        one, other = here.get(key), there.get(key)
        if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
            if one is not other and one != other:
                return f"{key}: {one} here, {other} there"
        elif len(one) != len(other):
            return f"{key}: {len(one):,} here, {len(other):,} there"
        elif len(unequal := np.flatnonzero(one != other)):
            at = int(unequal[0])
            return f"{key}, number {at:,}: {one[at]} here, {other[at]} there"
    return SAME


def compare(here: Path, there: Path, case: Case, work: Path) -> str:
    """Run a case in both versions at once; return `SAME`, `NEW`, or the first difference."""
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(run, (here, there), (case, case), (work / "here", work / "there"))
    if one["exit code"]:
        return f"exit code {one['exit code']} here: {one['message']}"
    if "No such option" in other.get("message", ""):
        return NEW
    return first_difference(one, other)


def main() -> int:
    """Compare all cases; return 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare_versions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("other", type=Path, help="a checkout of the other version")
    parser.add_argument("chats", type=Path, nargs="*", help="more chats than the samples")
    parser.add_argument("--tokenizer", type=Path, help="the tokenizer of these chats")
    parser.add_argument("--only", default="", help="run only cases whose names contain this")
    options = parser.parse_args()
    n_different = 0
    own = SAMPLES / "tokenizer"
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for name in ("here", "there"):
            (work / name).mkdir()
        cases = [*sample_cases(work, own)]
        cases += chat_cases(work, sorted((SAMPLES / "sft").glob("*.*")), own)
        if options.chats:
            chats = [path.resolve() for path in options.chats]
            cases += chat_cases(work, chats, (options.tokenizer or own).resolve())
        for case in cases:
            if options.only in case.name:
                outcome = compare(HERE, options.other.resolve(), case, work)
                n_different += outcome not in (SAME, NEW)
                print(f"{case.name}: {outcome}", flush=True)
    return 1 if n_different else 0


def sample_cases(work: Path, own: Path) -> Iterator[Case]:
    """Yield the samples of the repository: every container, broken ones, settings of reading."""
    ends = {"eos_token": "<eos>", "bos_token": "<bos>"}
    for file in sorted(SAMPLES.glob("records*")):
        yield pretrain(file.name, own, file, **ends)
    records, table = SAMPLES / "records.jsonl", SAMPLES / "records.parquet"
    small = {"part_bytes": "64KiB", "val_fraction": "0.1", "workers": "2"}
    yield pretrain("small parts", own, records, table, **ends, **small)
    limits = {"max_tokens": "500", "min_tokens": "20", "shard_tokens": "4000"}
    yield pretrain("limits", own, records, table, **ends, **limits)
    for engine in ("gigatoken", "fastokens", "auto"):
        yield pretrain(engine, own, records, **ends, engine=engine)
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


if __name__ == "__main__":
    sys.exit(main())
