"""Pages, what stands on them, and a dataset of SFT whose trained tokens are picked by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.fixtures.written_datasets import described, shard
from tokmill.bill.bill_settings import bill_settings
from tokmill.bill.full_bill import FullBill, full_bill
from tokmill.bill.inputs import complete_inputs
from tokmill.bill.on_disk import on_disk
from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import write_pack_index
from tokmill.dataset.reader import read_manifest
from tokmill.page.report import report_page
from tokmill.page.sample_page import MOST_EMBEDDED
from tokmill.page.samples import chosen_documents
from tokmill.tokenizer.tokenizer import Tokenizer

SHARDS = {
    "train-0000000-0000": ["one", "two"],
    "val-0000000-0000": ["three"],
    "train-0000001-0000": ["four", "five"],
}
"""Messages by shard: samples are <|im_start|> text <eos>, of which the text and <eos> are trained,
but for the text's first token."""


@pytest.fixture
def dataset(tmp_path: Path, tokenizer: Tokenizer) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Write the dataset; `weight` of what is trained, where it is to have weights."""

    def make(weight: float = 0) -> tuple[Path, dict[str, Any]]:
        library = tokenizer.library()
        listed, lengths = [], []
        for name, texts in SHARDS.items():
            samples = [[2, *library.encode(text).ids, 0] for text in texts]
            masks = [[0, 0, *[1] * (len(sample) - 2)] for sample in samples]
            listed.append(shard(tmp_path, name, samples, "uint16", masks, weight)[0])
            lengths += map(len, samples)
        packs = Packs(np.array([0, 1, 4]), np.array([2, 0, 1, 3]))
        write_pack_index(tmp_path, "train", {}, [packs], "blake3")
        n_trained = sum(lengths) - 2 * len(lengths)
        said = described(
            lengths, "uint16", records=5, trained_tokens=n_trained, drops={}, rejects={}
        )
        said["config"]["sft"] = {
            "preset": "tokmill",
            "template": "plain",
            "weights": "file" if weight else "refuse",
        }
        said["config"]["tokenizer"]["path"] = tokenizer.name
        pack = {"rows": 2, "capacity": 20, "fill": 0.9, "samples": 4, "bytes_per_sample": 45}
        manifest = said | {
            "kind": "sft",
            "mask": {"preset": "tokmill", "boundary": "split", "template": "plain"},
            "packs": {"train": pack},
            "shards": listed,
            "sources": [],
            "files": [],
        }
        manifest["tokenizer"] |= {
            "name": "tiny",
            "vocab_size": 290,
            "eos": {"id": 0, "token": "<eos>"},
            "bos": None,
            "identity": tokenizer.identity,
        }
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        return tmp_path, manifest

    return make


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; skips the tests of a machine that has none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium")
    # In the quick loop this skips; playwright itself would end with an error of its own.
    subprocess.run([chromium, "--version"], check=True, capture_output=True)
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


class Reader(HTMLParser):
    """Collects numbers of tables and bars by the name of the table, tiles, and texts; tags nest."""

    VOID = frozenset({"meta", "br", "input"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, dict[str, list[float]]] = {}
        self.bars: dict[str, dict[str, list[float]]] = {}
        self.tiles: dict[str, float] = {}
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.row = self.term = ""
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if "id" in values:
            self.ids.append(values["id"])
        if tag not in self.VOID:
            self.open.append((tag, values))
        if "data-value" not in values:
            return
        value = float(values["data-value"])
        if tag == "dd":
            self.tiles[self.term] = value
            return
        names = [own["aria-label"] for name, own in self.open if name == "table"]
        if names:
            found = self.bars if tag == "i" else self.tables
            found.setdefault(names[-1], {}).setdefault(self.row, []).append(value)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.texts.append(data)
        tag, values = self.open[-1] if self.open else ("", {})
        if tag == "th" and values.get("scope") == "row":
            self.row = data
        self.term = data if tag == "dt" else self.term


@dataclass(frozen=True)
class Page:
    """A page with what stands on it, and the manifest and the bill that it is about."""

    html: str
    manifest: dict[str, Any]
    bill: FullBill
    read: Reader

    @property
    def text(self) -> str:
        return " ".join(self.read.texts)


@pytest.fixture(scope="session")
def page_of() -> Callable[..., Page]:
    """Make the page of a directory, by default with its manifest."""

    def make(
        directory: Path,
        manifest: dict[str, Any] | None = None,
        tokenizer: str = "",
        given: dict[str, dict[str, Any]] | None = None,
    ) -> Page:
        manifest = manifest or read_manifest(directory)
        base = manifest["config"]
        settings = bill_settings(base, None, None, given or {})
        bill = full_bill(complete_inputs(settings, on_disk(directory, manifest)))
        numbers = chosen_documents(directory, manifest, MOST_EMBEDDED)
        html = report_page(directory, manifest, bill, numbers, tokenizer=tokenizer)
        return Page(html, manifest, bill, Reader(html))

    return make


@pytest.fixture
def pretrain_rows(
    tmp_path: Path, write_rows: Callable[..., Path], tokenizer_dir: Path
) -> Callable[..., Path]:
    """Make a dataset of rows, and return its directory."""

    def make(rows: list[Any], **settings: Any) -> Path:
        source = write_rows(tmp_path / "rows.jsonl", rows)
        tokmill.pretrain(
            source, tokenizer=tokenizer_dir, output=tmp_path / "out", progress=False, **settings
        )
        return tmp_path / "out"

    return make
