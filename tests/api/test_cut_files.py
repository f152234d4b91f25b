"""A file of a dataset that is cut while it is open is one line, never the end of the process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tokmill

N_DOCUMENTS = 3000
"""So that every file has pages that are gone when it is cut."""

PROGRAM = """
import json, os, sys
import tokmill
from tokmill import loader

directory, ending, *chosen = sys.argv[1:]
dataset = tokmill.open(directory)
last = len(dataset) - 1
windows = loader.windows(directory, 16, shift=True, document_ids=True)
documents, packs = loader.documents(directory), loader.packs(directory, shift=True)
readings = {
    "ids": lambda: dataset[last],
    "every": lambda: [len(ids) for ids in dataset],
    "slice": lambda: [dataset[i] for i in range(last - 9, last)],
    "mask": lambda: dataset.mask(last),
    "weight": lambda: dataset.weight(last),
    "text": lambda: dataset.text(last),
    "origin": lambda: dataset.origin(last),
    "meta": lambda: dataset.meta(last),
    "windows": lambda: windows[len(windows) - 1],
    "documents": lambda: documents[len(documents) - 1],
    "packs": lambda: packs[len(packs) - 1],
    "rows": lambda: dataset.packs["train"].row(dataset.packs["train"].n_rows - 1),
    "stats": dataset.stats,
}
kept = dataset[last], dataset.packs["train"]
readings["kept rows"] = lambda: kept[1].row(kept[1].n_rows - 1)
for reading in chosen:
    readings[reading]()  # whatever it maps or opens stays so
for name in os.listdir(directory):
    if name.endswith(ending):
        os.chmod(os.path.join(directory, name), 0o644)
        os.truncate(os.path.join(directory, name), 8)
found = {}
for reading in chosen:
    try:
        readings[reading]()
        found[reading] = ""
    except tokmill.TokmillError as error:
        found[reading] = str(error)
sum(kept[0].tolist())
print(json.dumps(found))
"""

READINGS = {
    ("pretrain", ".bin"): ("ids", "every", "slice", "text", "windows", "documents", "stats"),
    ("pretrain", ".idx"): ("ids", "every", "slice", "windows", "documents", "packs", "stats"),
    ("pretrain", ".origin"): ("origin",),
    ("pretrain", ".meta"): ("meta",),
    ("pretrain", "-rows.bin"): ("packs", "rows", "kept rows"),
    ("pretrain", "-samples.bin"): ("packs", "rows", "kept rows"),
    ("pretrain", "-pieces.bin"): ("packs", "rows", "kept rows"),
    ("sft", ".mask"): ("mask", "windows", "packs", "stats"),
    ("sft", ".weight"): ("weight", "windows", "documents"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory, tokenizer_dir, write_rows) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("cut")
    common = {"tokenizer": tokenizer_dir, "engine": "reference", "progress": False}
    texts = [{"text": f"hello {i}", "url": str(i)} for i in range(N_DOCUMENTS)]
    tokmill.pretrain(
        write_rows(folder / "texts.jsonl", texts), output=folder / "pretrain", keep=["url"],
        packing=32, **common,
    )  # fmt: skip
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "y", "weight": 0.5}]
    tokmill.sft(
        write_rows(folder / "chats.jsonl", [{"messages": turns}] * N_DOCUMENTS),
        output=folder / "sft", template="plain", weights="file", max_tokens=64, packing=64,
        **common,
    )  # fmt: skip
    return folder.joinpath


@pytest.mark.parametrize(("kind", "ending"), READINGS, ids="-".join)
def test_a_file_that_is_cut_while_it_is_open_is_one_line(made, tmp_path, kind, ending):
    directory = tmp_path / "out"
    shutil.copytree(made(kind), directory)
    chosen = READINGS[kind, ending]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, directory, ending, *chosen],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    found = json.loads(done.stdout)
    assert list(found) == list(chosen)
    for reading, line in found.items():
        assert ending in line, reading
        assert "\n" not in line
