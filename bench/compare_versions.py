"""Compare the datasets that two versions of tokmill make of the same inputs and settings.

    python -m bench.compare_versions OTHER_CHECKOUT [--data FOLDER] [--shared FOLDER] [--only TEXT]

Runs the command line of this checkout and of the other one, with this interpreter, on the samples
of the repository, on the first MB of each `docs_*.jsonl` of --data, and on the chats and tokenizers
of --shared (cases: `bench/compared_cases.py`). Parts may have other sizes, so whole splits are
compared: ids, documents, masks, weights, packs, rejects (place and reason) and counts. Prints a
line for each case: `same`, or the first difference. Exits 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench.compared_cases import Case, all_cases

COUNTS = "records documents tokens text_bytes drops rejects unread extra trained_tokens counters"
HEADER_BYTES = 34
"""Bytes of an `.idx` before the lengths of its documents."""
HERE = Path(__file__).parents[1]
SAME, NEW = "same", "not compared: the other version has no such option"


def run(checkout: Path, case: Case, work: Path) -> dict[str, Any]:
    """Run a case; return what its dataset holds, or only the exit code and the last message."""
    output = work / "out"
    shutil.rmtree(output, ignore_errors=True)
    places = {"PYTHONPATH": str(checkout / "src"), "TOKMILL_CACHE_DIR": str(work / "cache")}
    command = [sys.executable, "-m", "tokmill", case.command, *map(str, case.inputs)]
    command += [*case.options, "--tokenizer", str(case.tokenizer), "--output", str(output)]
    variables = os.environ | places | case.variables
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
    parser.add_argument("--data", type=Path, help="a folder with docs_*.jsonl")
    parser.add_argument("--shared", type=Path, help="a folder with data/sft and data/tokenizers")
    parser.add_argument("--only", default="", help="run only cases whose names contain this")
    options = parser.parse_args()
    n_different = 0
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for name in ("here", "there"):
            (work / name).mkdir()
        for case in all_cases(work / "inputs", options.data, options.shared):
            if options.only in case.name:
                outcome = compare(HERE, options.other.resolve(), case, work)
                n_different += outcome not in (SAME, NEW)
                print(f"{case.name}: {outcome}", flush=True)
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())
