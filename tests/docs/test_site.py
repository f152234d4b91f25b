"""The site of docs/ builds without a warning, loads nothing of other hosts, and its links hold."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bench.pages import MODULES, public
from bench.site_links import outside, rewritten, site_path
from tests.docs.pages import PAGES, ROOT
from tokmill.bill.text.formulas import subjects
from tokmill.settings.names import schema

DEADLINE_S = 120
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Parser(HTMLParser):
    """Collects what a page links to, what it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADING and LOADING[tag] in values:
            self.loaded.append(values[LOADING[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning is an error."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: make oracles does it")
    directory = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", directory],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    return directory


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Parser]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Parser()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


def test_every_page_is_on_the_site_and_in_its_navigation(
    site: Path, parsed: dict[Path, Parser]
) -> None:
    pages = [page for page in PAGES if page.startswith("docs/")]
    pages += ["docs/api.md", "docs/formulas.md"]
    paths = [site / page.removeprefix("docs/").replace(".md", ".html") for page in pages]
    linked = {site / link for link in parsed[site / "index.html"].links}
    assert [path for path in paths if path not in linked | {site / "index.html"}] == []


def test_pages_made_from_code_hold_every_public_name_formula_and_setting(site: Path) -> None:
    api, formulas, settings = (
        (site / f"{page}.html").read_text(encoding="utf-8")
        for page in ("api", "formulas", "settings")
    )
    for module in MODULES:
        for name in public(importlib.import_module(module)):
            assert f"<code>{module}.{name}</code>" in api, name
    for subject in subjects():
        assert f">{subject.module}<" in formulas, subject.module
    for section in schema().values():
        for setting in section.values():
            assert f"<code>{setting.name}</code>" in settings, setting.name


def test_nothing_is_loaded_from_another_host(site: Path, parsed: dict[Path, Parser]) -> None:
    loaded = {link for page in parsed.values() for link in page.loaded}
    assert loaded
    assert [link for link in loaded if urlsplit(link).netloc] == []
    for path in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", path.read_text(encoding="utf-8")) == []


def test_links_inside_the_site_lead_to_files_and_anchors(parsed: dict[Path, Parser]) -> None:
    for path, page in parsed.items():
        if path.name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), (path.name, link)
            if parts.fragment and target in parsed:
                assert unquote(parts.fragment) in parsed[target].anchors, (path.name, link)


def test_no_fence_is_left_as_text(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert "<p>```" not in path.read_text(encoding="utf-8"), path.name


def test_code_in_tables_has_no_backslashes(site: Path) -> None:
    assert "<code>&lt;|endoftext|&gt;</code>" in (site / "tokenizers.html").read_text()


def test_files_outside_of_docs_get_a_place_on_the_site() -> None:
    assert site_path("CONTRIBUTING.md") == "repository/CONTRIBUTING.md"
    assert site_path("tests/cli/shapes.py") == "repository/tests/cli/shapes.py.txt"
    assert site_path("docs/sft.md") == "sft.md"


def test_links_are_written_for_the_page_that_has_them() -> None:
    text = "[a](../../CONTRIBUTING.md#style), [b](../sft.md), [c](https://x.org/y), [d](#here)"
    expected = (
        "[a](../repository/CONTRIBUTING.md#style), [b](../sft.md), [c](https://x.org/y), [d](#here)"
    )
    assert rewritten("start/install.md", text) == expected
    assert list(outside("start/install.md", text)) == ["CONTRIBUTING.md"]
    assert rewritten("repository/CONTRIBUTING.md", "[f](docs/format.md)") == "[f](../format.md)"
    assert (
        rewritten("index.md", "```\n[a](../CONTRIBUTING.md)\n```")
        == "```\n[a](../CONTRIBUTING.md)\n```"
    )
