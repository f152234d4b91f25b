"""Pages, and what stands on them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tokmill.bill.bill_settings import bill_settings
from tokmill.bill.full_bill import FullBill, full_bill
from tokmill.bill.inputs import complete_inputs
from tokmill.bill.on_disk import on_disk
from tokmill.dataset.manifest import Manifest
from tokmill.dataset.reader import read_manifest
from tokmill.inspect.samples import chosen_documents
from tokmill.page.report import report_page
from tokmill.page.sample_page import MOST_EMBEDDED


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
        plain: dict[str, Any] | None = None,
        tokenizer: str = "",
        given: dict[str, dict[str, Any]] | None = None,
    ) -> Page:
        manifest = Manifest.of(plain, directory) if plain else read_manifest(directory)
        base = manifest.plain["config"]
        settings = bill_settings(base, None, None, given or {})
        bill = full_bill(complete_inputs(settings, on_disk(directory, manifest.plain)))
        numbers = chosen_documents(directory, manifest, MOST_EMBEDDED)
        html = report_page(directory, manifest, bill, numbers, tokenizer=tokenizer)
        return Page(html, manifest.plain, bill, Reader(html))

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
