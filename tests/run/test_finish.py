from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import blake3
import pytest
from tokenizers import Tokenizer as Library

from tokmill.dataset.manifest import Manifest
from tokmill.dataset.packs import sample_lengths
from tokmill.dataset.verify import verify
from tokmill.place import open_place
from tokmill.run.finish import run
from tokmill.settings.schema import TokenizerSettings
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.tokenizer import PROBE_TEXT, load_tokenizer
from tokmill.version import __version__

FORMAT_PAGE = Path(__file__).parents[2] / "docs" / "format.md"


@pytest.fixture
def finished(tmp_path, configure, listener, write_rows):
    """A dataset of several parts with drops, rejects and validation shards."""
    rows = [{"text": f"{i}" + " hello" * (i % 9)} for i in range(60)]
    rows[7:7] = [b"{bad", b"[]"]
    paths = [write_rows(tmp_path / name, rows) for name in ("a.jsonl", "b.jsonl")]
    config = configure(
        tmp_path / "out",
        *paths,
        part_bytes=900,
        shard_tokens=100,
        val_fraction=0.3,
        min_tokens=4,
        bos_token="<bos>",
        max_reject_fraction=1.0,
    )
    return tmp_path / "out", run(config, listener).plain, paths


def documented_keys() -> set[str]:
    """Return the keys that the page of the format lists for the manifest of every run."""
    section = FORMAT_PAGE.read_text().split("## `manifest.json`")[1].split("\n`records = ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    keys = {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}
    # only of runs with an extension, and of those with the setting: tests/extensions, test_keep.py
    return keys - {"extensions", "keep"}


def test_the_manifest_has_the_keys_of_the_page_of_the_format_and_no_other(finished):
    directory, manifest, _ = finished
    assert len(documented_keys()) > 10
    assert set(manifest) == documented_keys() - {"readings"}
    assert json.loads((directory / "manifest.json").read_bytes()) == manifest


def test_every_other_file_is_listed_with_its_size_and_sum(finished):
    directory, manifest, _ = finished
    found = {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ("manifest.json", ".lock")
    }
    listed = {entry["name"]: (entry["bytes"], entry["blake3"]) for entry in manifest["files"]}
    assert len(listed) == len(manifest["files"])
    assert listed == {
        name: (len(data), blake3.blake3(data).hexdigest()) for name, data in found.items()
    }
    assert {name.split("/")[0].split("-")[0] for name in found} == {
        "train",
        "val",
        "rejects",
        "parts",
        "plan.json",
        "tokenizer.zst",
    }


def test_all_counts_add_up(finished):
    _directory, manifest, paths = finished
    totals, sources = manifest["totals"], manifest["sources"]
    assert [source["path"] for source in sources] == [str(path) for path in paths]
    for counts in (totals, *sources):
        drops, rejects = sum(counts["drops"].values()), sum(counts["rejects"].values())
        assert counts["records"] == counts["documents"] + drops + rejects
        assert drops > 0
        assert rejects > 0
    for key in ("records", "documents", "tokens", "text_bytes", "input_bytes"):
        assert totals[key] == sum(source[key] for source in sources)
    assert totals["records"] == 2 * 62
    assert [source["input_bytes"] for source in sources] == [path.stat().st_size for path in paths]
    shards = manifest["shards"]
    assert totals["documents"] == sum(shard["documents"] for shard in shards)
    assert totals["tokens"] == sum(shard["tokens"] for shard in shards)
    assert totals["documents"] == sum(manifest["length_histogram"])
    assert manifest["length_histogram"][-1] > 0
    assert min(shard["documents"] for shard in shards) > 0
    order = [(shard["name"].split("-")[1], *shard["name"].split("-")[::2]) for shard in shards]
    assert order == sorted(order)


def test_the_tokenizer_is_described_with_the_ids_of_a_probe(finished, tokenizer_dir):
    _, manifest, _ = finished
    path = tokenizer_dir / "tokenizer.json"
    library = Library.from_file(str(path))
    assert manifest["tokenizer"] == {
        "name": str(tokenizer_dir),
        "identity": load_tokenizer(TokenizerSettings(path=str(tokenizer_dir))).identity,
        "vocab_size": library.get_vocab_size(),
        "eos": {"id": 0, "token": "<eos>"},
        "bos": {"id": 1, "token": "<bos>"},
        "probe": {
            "text": PROBE_TEXT,
            "ids": library.encode(PROBE_TEXT, add_special_tokens=False).ids,
        },
    }


def test_what_the_run_took_is_noted(finished):
    _, manifest, _ = finished
    taken = manifest["run"]
    assert taken["wall_s"] > 0
    assert taken["cpu_s"] >= 0
    assert taken["text_bytes_per_s"] == pytest.approx(
        manifest["totals"]["text_bytes"] / taken["wall_s"], rel=0.05
    )
    assert {key: taken[key] for key in ("peak_memory_bytes", "resumed_parts", "workers")} == {
        "peak_memory_bytes": 12345,
        "resumed_parts": 0,
        "workers": 1,
    }
    assert (manifest["format_version"], manifest["tokmill_version"]) == (1, __version__)
    assert manifest["engine"]["name"] == "reference"


@pytest.fixture
def packed(tmp_path, configure, listener, write_rows):
    """Return a function that makes a dataset of packed rows, from prompts and answers."""

    def make(name, **settings):
        rows = [{"prompt": f"{i}", "completion": " hello" * (1 + i % 9)} for i in range(40)]
        path = write_rows(tmp_path / "a.jsonl", rows)
        config = configure(tmp_path / name, path, max_tokens=60, val_fraction=0.3, **settings)
        sft = SftSettings(template="plain", packing=60, packed_rows=True)
        return tmp_path / name, run(dataclasses.replace(config, sft=sft), listener).plain

    return make


def test_samples_are_packed_when_all_parts_are_there(packed):
    directory, manifest = packed("out")
    assert verify(open_place(str(directory)), manifest).problems == ()
    assert set(manifest) == documented_keys() - {"fields_read", "readings"} | {"mask", "packs"}
    assert list(manifest["packs"]) == ["train", "val"]
    for split, packs in manifest["packs"].items():
        lengths = sample_lengths(directory, Manifest.of(manifest, directory).shards, split)
        assert (packs["capacity"], packs["samples"]) == (60, len(lengths))
        assert packs["tokens"] == lengths.sum()
        assert [entry["name"] for entry in packs["shards"]] == [f"packed-{split}-0000"]
        listed = {entry["name"] for entry in manifest["files"]}
        assert {f"packs-{split}-rows.bin", f"packed-{split}-0000.mask"} <= listed


def test_packs_do_not_depend_on_how_a_run_was_cut(packed):
    directory, _ = packed("out")
    other, manifest = packed("cut", part_bytes=300, shard_tokens=50)
    assert len(manifest["shards"]) > 4
    names = sorted(path.name for path in directory.glob("pack*"))
    assert len(names) == 2 * 5
    for name in names:
        assert (directory / name).read_bytes() == (other / name).read_bytes()
