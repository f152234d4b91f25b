"""The pictures of the pages are there, small, and what the program makes of tokmill's output."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from bench.pictures import BROWSERS, MOST_BYTES, PICTURES, make_datasets, road, take
from tests.docs.pages import PAGES, read

SHOWN = re.compile(r"!\[([^\]]*)\]\((?:docs/)?pictures/([\w.]+)\)")
FRONT = ("README.md", "docs/index.md")


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


def test_the_front_pages_show_every_picture_with_words_for_who_cannot_see_it() -> None:
    names = {path.name for path in PICTURES.iterdir()}
    for page in FRONT:
        assert {name for _, name in SHOWN.findall(read(page))} == names
    texts = [text for page in PAGES for text, _ in SHOWN.findall(read(page))]
    assert min(map(len, texts)) > 10


def test_they_are_small() -> None:
    sizes = [path.stat().st_size for path in PICTURES.iterdir()]
    assert sum(sizes) <= MOST_BYTES
    for path in PICTURES.glob("*.png"):
        width, height = png_size(path)
        assert 900 <= width <= 1200
        assert 400 <= height <= 900


def test_the_road_is_drawn_with_the_figures_of_the_samples(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    drawn = road(*make_datasets())
    assert drawn == (PICTURES / "road.svg").read_text(encoding="utf-8"), "python -m bench.pictures"


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no chromium is installed")
def test_a_picture_of_a_page_is_taken(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("<p>a</p>")
    take(page, tmp_path / "a.png", 300, 200)
    assert png_size(tmp_path / "a.png") == (300, 200)
