"""The page in headless Chromium: nothing is loaded or run, and it can be read and used."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tokmill

SCRIPT = Path(__file__).with_name("browser.js").read_text()
PAYLOADS = [
    "</script><script>window.evil=1</script>",
    "<img src=x onerror=window.evil=1>",
    "<svg onload=window.evil=1>",
    "--></title></style></textarea><script>window.evil=1</script>",
    "\u202eevil\u202c \u2028 \u2029 \u0000 \u001b[31m",
    "\"'><a href=javascript:window.evil=1 autofocus onfocus=window.evil=1>x</a>",
    "{{constructor.constructor('window.evil=1')()}}",
]
WIDTHS = (1280, 375, 320)
ONE_PAGE = pytest.mark.parametrize("written", ["model"], indirect=True)
"""What does not depend on the text of records is looked at on the page with the most charts."""


class Visit:
    """A page open in the browser, with everything that it said or asked for."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.set_width(WIDTHS[0])
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append("dialog"), dialog.dismiss()))
        self.context.route("**/*", self._route)
        self.page.goto(path.as_uri())

    def set_width(self, width: int) -> None:
        self.page.set_viewport_size({"width": width, "height": 800})

    def _route(self, route: Any) -> None:
        self.asked.append(route.request.url)
        if len(self.asked) > 1:
            route.abort()
        else:
            route.continue_()

    def run(self, expression: str) -> Any:
        """Evaluate an expression beside the functions of browser.js; the policy allows that."""
        session = self.context.new_cdp_session(self.page)
        answer = session.send(
            "Runtime.evaluate", {"expression": f"{SCRIPT}\n{expression}", "returnByValue": True}
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open_all(self) -> None:
        self.run("for (const one of document.querySelectorAll('details')) one.open = true;")


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    visits: list[Visit] = []

    def open_page(path: Path, **context: Any) -> Visit:
        visits.append(Visit(browser, path, **context))
        return visits[-1]

    yield open_page
    for one in visits:
        one.context.close()
        assert one.said == []
        assert len(one.asked) == 1, one.asked


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path) -> Path:
    """A dataset of hostile records, from files with hostile names, one with a title of 3 MB."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = [{"title": text, "summary": text, "sections": []} for text in PAYLOADS]
    rows = [{"title": "<b>" + "x" * 3_000_000, "summary": "", "sections": []}, *rows]
    rows += [{"title": "a " * 400 + text, "summary": "", "sections": []} for text in PAYLOADS]
    broken = [f"{{{text}".replace("\x00", "") for text in PAYLOADS]
    lines = [*map(json.dumps, rows), *broken, *(json.dumps({text: 1}) for text in PAYLOADS)]
    sources = []
    evil = "<img src=x onerror=window.evil=1>.jsonl"
    for name in (evil, "\u202etxt." + "长" * 60 + ".jsonl", "x" * 120 + ".jsonl"):
        sources.append(folder / name)
        sources[-1].write_text("\n".join(lines) + "\n")
    out = folder / "<script>window.evil=1<"
    tokmill.pretrain(
        [str(path) for path in sources], tokenizer=tokenizer_dir, output=out, progress=False,
        max_reject_fraction=1, engine="reference",
    )  # fmt: skip
    return out


@pytest.fixture(scope="module", params=["hostile", "model"])
def written(
    request: pytest.FixtureRequest,
    page_of: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The file of a page: of a hostile dataset, or of packed chats with a model."""
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    if request.param == "hostile":
        page = page_of(request.getfixturevalue("hostile"))
    else:
        given = {"model": {"name": "llama-3.2-1b"}, "training": {"gpu": "RTX 4090"}}
        page = page_of(request.getfixturevalue("chats").directory, given=given)
    path.write_text(page.html)
    assert path.stat().st_size < 2_000_000
    return path


def test_nothing_of_a_record_runs_and_nothing_is_loaded(written, visit):
    seen = visit(written)
    seen.open_all()
    assert seen.run("typeof window.evil") == "undefined"
    own = "'main, main *:not(svg *):is(script, img, iframe, [onerror], [onload], [onfocus])'"
    assert seen.run(f"document.querySelectorAll({own}).length") == 1
    assert seen.run("document.scripts.length") == 2
    assert seen.run("[...document.links].every(a => a.getAttribute('href')[0] === '#')")


def test_a_script_that_is_not_ours_is_refused_by_the_policy(written, browser, tmp_path):
    changed = tmp_path / "changed.html"
    html = written.read_text().replace("</main>", f"{PAYLOADS[0][9:]}{PAYLOADS[1]}</main>")
    changed.write_text(html)
    seen = Visit(browser, changed)
    assert seen.run("typeof window.evil") == "undefined"
    assert any("Content Security Policy" in text for text in seen.said)
    seen.context.close()


def test_nothing_stands_outside_of_the_screen(written, visit):
    seen = visit(written)
    seen.open_all()
    for width in WIDTHS:
        seen.set_width(width)
        assert seen.run("document.documentElement.scrollWidth") <= width
        assert seen.run("outside()") == []


def test_every_chart_has_bars_as_long_as_its_numbers(written, visit):
    seen = visit(written)
    charts = []
    for width in WIDTHS:
        seen.set_width(width)
        charts += seen.run("charts()")
    assert len(charts) >= 5 * len(WIDTHS)
    for chart in charts:
        side = "height" if chart["id"] == "lengths-histogram" else "width"
        for tone in {bar["tone"] for bar in chart["bars"]}:
            bars = [bar for bar in chart["bars"] if bar["tone"] == tone]
            largest = max(bars, key=lambda bar: bar["value"])
            for bar in bars:
                expected = bar["value"] / (largest["value"] or 1) * largest[side]
                assert bar[side] == pytest.approx(expected, abs=0.5), chart["id"]
        assert chart["overlaps"] == []
        assert chart["name"]
        assert chart["about"]
        values = sorted(bar["value"] for bar in chart["bars"])
        assert sorted(chart["cells"]) == values, chart["id"]


@ONE_PAGE
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast_in_both_themes(written, visit, scheme):
    seen = visit(written, color_scheme=scheme)
    seen.open_all()
    for is_dark in (scheme == "dark", scheme == "light"):
        assert seen.page.get_attribute("#theme", "aria-pressed") == str(is_dark).lower()
        page = seen.run("getComputedStyle(document.body).backgroundColor")
        assert (int(page[4:].split(",")[0]) < 64) == is_dark
        found = seen.run("contrasts()")
        assert len(found) > 100
        assert [one for one in found if one[0] < 4.5] == []
        seen.page.click("#theme")


@ONE_PAGE
def test_the_keyboard_reaches_the_contents_the_theme_and_the_numbers(written, visit):
    seen = visit(written)
    where = "document.activeElement.textContent"
    seen.page.keyboard.press("Tab")
    assert seen.run(where) == "Skip to the content"
    assert seen.run("document.activeElement.getBoundingClientRect().left") >= 0
    n_links = seen.run("document.querySelectorAll('nav a').length")
    for _ in range(n_links):
        seen.page.keyboard.press("Tab")
    assert seen.run(where) == "The run"
    assert seen.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    seen.page.keyboard.press("Tab")
    assert seen.run("document.activeElement.id") == "theme"
    seen.page.keyboard.press("Enter")
    assert seen.run("document.documentElement.dataset.theme") == "dark"
    seen.page.keyboard.press("Space")
    assert seen.run("document.documentElement.dataset.theme") == "light"
    seen.page.keyboard.press("Tab")
    assert seen.run("document.activeElement.tagName") == "SUMMARY"
    seen.page.keyboard.press("Enter")
    assert seen.run("document.activeElement.parentElement.open") is True


@ONE_PAGE
def test_the_skip_link_leads_past_the_contents(written, visit):
    seen = visit(written)
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("Enter")
    assert seen.run("document.activeElement.id") == "content"
    seen.page.keyboard.press("Tab")
    assert seen.run("document.activeElement.closest('main') !== null") is True


@ONE_PAGE
@pytest.mark.parametrize("width", [1280, 375])
def test_the_contents_lead_to_a_section_and_show_where_one_is(written, visit, width):
    seen = visit(written, reduced_motion="reduce")
    seen.set_width(width)
    seen.page.click("nav a[href='#lengths']")
    seen.page.wait_for_selector("nav a[href='#lengths'][aria-current]")
    assert seen.run("document.querySelectorAll('[aria-current]').length") == 1
    top = seen.run("document.querySelector('#lengths-heading').getBoundingClientRect().top")
    nav = seen.run("document.querySelector('nav').getBoundingClientRect().bottom")
    assert top >= (0 if width > 1000 else nav)
    seen.run("scrollTo(0, document.body.scrollHeight)")
    seen.page.wait_for_selector("nav a[href='#run'][aria-current]")


@ONE_PAGE
def test_the_motion_is_reduced_where_that_is_wished(written, visit):
    style = "getComputedStyle(document.documentElement).scrollBehavior"
    assert visit(written, reduced_motion="reduce").run(style) == "auto"
    assert visit(written).run(style) == "smooth"


@ONE_PAGE
def test_paper_has_all_numbers_and_no_controls(written, visit):
    seen = visit(written, color_scheme="dark")
    seen.page.emulate_media(media="print")
    hidden = "getComputedStyle(document.querySelector('nav')).display"
    assert seen.run(hidden) == "none"
    assert seen.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert seen.run("document.querySelectorAll('details:not([open])').length") == 0
    assert [one for one in seen.run("contrasts()") if one[0] < 4.5] == []
    seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert seen.run("document.querySelectorAll('details[open]').length") == 0


@ONE_PAGE
def test_without_scripts_the_page_is_complete_and_has_no_dead_control(written, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written.as_uri())
    assert page.locator("figure svg[role=img]").count() >= 5
    assert not page.locator("#theme").is_visible()
    page.locator("summary").first.click()
    assert page.locator("details table").first.is_visible()
    context.close()


@ONE_PAGE
def test_landmarks_and_names_are_there_for_a_screen_reader(written, visit):
    seen = visit(written)
    tree = seen.page.locator("body").aria_snapshot()
    for landmark in ('navigation "Contents"', "main:", 'button "Dark"', 'region "Sources"'):
        assert landmark in tree
    assert 'img "Longer than a context"' in tree
    levels = [int(tag[1]) for tag in seen.run(
        "[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName)"
    )]  # fmt: skip
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
