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
    "--></title></style></textarea><!--<script>window.evil=1</script>",
    "\u202eevil\u202c \u2028 \u2029 \u2066 \u0000 \u001b[31m",
    "\"'><a href=javascript:window.evil=1 autofocus onfocus=window.evil=1>x</a>",
    "{{constructor.constructor('window.evil=1')()}}",
    "a" * 1_000_000,
]
WIDTHS = (1280, 390, 320)
PAGES = ("hostile", "pretrain", "chats", "many")
ONE_PAGE = pytest.mark.parametrize("written", ["chats"], indirect=True)
"""What does not depend on the text of records is looked at on the page with the most on it."""
MOST_PIXELS = 4000
SCROLLING = "getComputedStyle(document.documentElement).scrollBehavior"


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


@pytest.fixture(scope="module", params=PAGES)
def written(
    request: pytest.FixtureRequest,
    page_of: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The file of a page with a model: hostile records, documents, packed chats, many sources."""
    given = {
        "model": {"name": "llama-3.2-1b"},
        "training": {"gpu": "RTX 4090", "gpus": 8, "price_per_hour": 0.5, "micro_batch": 8},
    }
    kind, manifest = request.param, None
    name = {"pretrain": "pretrained", "many": "chats"}.get(kind, kind)
    made = request.getfixturevalue(name)
    if kind == "many":
        manifest = json.loads(json.dumps(made.manifest))
        (source,) = manifest["sources"]
        paths = [f"corpus/part-{i}/crawl-2024-{i:05d}.jsonl" for i in range(500)]
        manifest["sources"] = [{**source, "path": path} for path in paths]
        reasons = {f"reason {i}": 1 + i for i in range(30)}
        manifest["totals"] |= {"drops": reasons, "unread_keys": {f"key{i}": i for i in range(40)}}
    page = page_of(getattr(made, "directory", made), manifest, given=given)
    path = tmp_path_factory.mktemp("page") / f"{kind}.html"
    path.write_text(page.html)
    assert path.stat().st_size < 2_000_000
    return path


def test_a_page_is_short_safe_and_readable(written, visit):
    """One visit for all: to open such a page takes longer than to look at it."""
    seen = visit(written)
    check_first_screens(seen)
    seen.open_all()
    check_nothing_runs(seen)
    for width in WIDTHS:
        seen.set_width(width)
        assert seen.run("document.documentElement.scrollWidth") <= width
        assert seen.run("outside()") == []
        check_bars(seen)


def check_first_screens(seen: Visit) -> None:
    """A desktop shows the page in five screens, and the verdict in the first."""
    assert seen.run("document.documentElement.scrollHeight") <= MOST_PIXELS
    for part in ("header .tiles", ".verdict"):
        bottom = seen.run(f"document.querySelector('{part}').getBoundingClientRect().bottom")
        assert 0 < bottom < 800


def check_nothing_runs(seen: Visit) -> None:
    """Nothing of a record runs, and nothing is loaded."""
    assert seen.run("typeof window.evil") == "undefined"
    own = "'main :is(script, img, iframe, svg, [onerror], [onload], [onfocus])'"
    assert seen.run(f"document.querySelectorAll({own}).length") == 0
    assert seen.run("document.scripts.length") == 1
    assert seen.run("[...document.links].every(a => a.getAttribute('href')[0] === '#')")


def check_bars(seen: Visit) -> None:
    """Every bar is as long as its number."""
    bars = seen.run("bars()")
    assert len({bar["table"] for bar in bars}) >= 4
    scales: dict[Any, set[float]] = {}
    for bar in bars:
        for part in bar["parts"]:
            if part["width"] > bar["full"] / 10:
                scale = part["value"] / part["width"] * bar["full"]
                scales.setdefault((bar["table"], bar["column"]), set()).add(scale)
    for name, found in scales.items():
        assert max(found) == pytest.approx(min(found), rel=0.05), name
    columns = [one for one in seen.run("columns()") if one["value"]]
    for series in ("s1", "s2"):
        own = [one for one in columns if one["series"] == series]
        per_pixel = [one["value"] / one["height"] for one in own if one["height"] > 5]
        assert max(per_pixel) == pytest.approx(min(per_pixel), rel=0.05)


@pytest.mark.parametrize("written", ["hostile"], indirect=True)
def test_a_script_that_is_not_ours_is_refused_by_the_policy(written, browser, tmp_path):
    changed = tmp_path / "changed.html"
    html = written.read_text().replace("</main>", f"{PAYLOADS[0][9:]}{PAYLOADS[1]}</main>")
    changed.write_text(html)
    seen = Visit(browser, changed)
    assert seen.run("typeof window.evil") == "undefined"
    assert any("Content Security Policy" in text for text in seen.said)
    seen.context.close()


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
def test_the_keyboard_alone_reaches_everything_that_can_be_used(written, visit):
    seen = visit(written)
    assert seen.run(SCROLLING) == "smooth"
    usable = "main :is(summary, button:enabled, input)"
    n_usable = seen.run(
        f"[...document.querySelectorAll('{usable}')].filter(e => e.checkVisibility()).length"
    )
    tags: list[str] = []
    while len(tags) < n_usable:
        seen.page.keyboard.press("Tab")
        ring = seen.run("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", seen.run("document.activeElement.outerHTML")[:80]
        if seen.run(f"document.activeElement.matches('{usable}')"):
            tags.append(seen.run("document.activeElement.tagName"))
    assert tags[0] == "SUMMARY"  # of the first chart: the order of the page
    assert {"INPUT", "BUTTON", "SUMMARY"} == set(tags)
    seen.page.keyboard.press("Enter")
    assert seen.run("document.activeElement.parentElement.open") is True


@ONE_PAGE
def test_the_keyboard_chooses_the_theme_and_leads_past_the_contents(written, visit):
    seen = visit(written)
    seen.page.keyboard.press("Tab")
    assert seen.run("document.activeElement.getBoundingClientRect().left") >= 0
    seen.page.keyboard.press("Enter")
    assert seen.run("document.activeElement.id") == "content"
    seen.page.keyboard.press("Tab")
    assert seen.run("document.activeElement.closest('main') !== null") is True
    seen.page.focus("#theme")
    seen.page.keyboard.press("Enter")
    assert seen.run("document.documentElement.dataset.theme") == "dark"
    seen.page.keyboard.press("Space")
    assert seen.run("document.documentElement.dataset.theme") == "light"


@ONE_PAGE
def test_the_contents_lead_to_a_section_below_them(written, visit):
    seen = visit(written, reduced_motion="reduce")
    assert seen.run(SCROLLING) == "auto"
    for width in WIDTHS[:2]:
        seen.set_width(width)
        seen.page.click("nav a[href='#sources']")
        top = seen.run("document.querySelector('#sources-heading').getBoundingClientRect().top")
        assert top >= seen.run("document.querySelector('nav').getBoundingClientRect().bottom")


@ONE_PAGE
def test_samples_are_turned_by_pages(written, visit):
    seen = visit(written)
    shown = "[...document.querySelectorAll('article')].filter(a => !a.hidden).map(a => a.id)"
    first = seen.run(shown)
    n_all = seen.run("document.querySelectorAll('article').length")
    assert len(first) == 2
    found = [*first]
    while seen.run("document.querySelector('.pager button:last-of-type').disabled") is False:
        seen.page.click(".pager button:last-of-type")
        found += seen.run(shown)
    assert len(set(found)) == len(found) == n_all
    assert seen.run("document.querySelector('output').textContent").endswith(f" of {n_all}")
    for _ in range((n_all - 1) // 2):
        seen.page.click(".pager button:first-of-type:enabled")
    assert seen.run(shown) == first


@ONE_PAGE
def test_a_search_finds_text_and_sources_of_all_samples_on_the_page(written, visit):
    seen = visit(written)
    text = seen.run(
        "[...document.querySelectorAll('article')].at(-1).querySelector('h3').textContent"
    )
    shown = "[...document.querySelectorAll('article')].filter(a => !a.hidden)"
    seen.page.fill("input[type=search]", text.upper())
    assert text in seen.run(f"{shown}[0].textContent")
    assert seen.run("CSS.highlights.get('found').size") > 0
    seen.page.fill("input[type=search]", "no such text anywhere")
    assert seen.run(f"{shown}.length") == 0
    assert seen.run("document.querySelector('output').textContent") == "none found"
    seen.page.fill("input[type=search]", "")
    assert seen.run(f"{shown}.length") == 2
    texts = seen.run("[...document.querySelectorAll('article')].map(a => a.textContent)")
    for words in ("<|", "<", ".*", "[", "(", "\\", "的", "  ", "train"):
        seen.page.fill("input[type=search]", words)
        n = sum(words.strip() in text for text in texts)
        said = seen.run("document.querySelector('output').textContent")
        assert said == (f"1 to {min(2, n)} of {n}" if n else "none found"), words


@ONE_PAGE
def test_paper_is_light_has_all_numbers_and_no_controls(written, visit):
    seen = visit(written, color_scheme="dark")
    seen.page.emulate_media(media="print")
    for control in ("nav", ".pager"):
        assert not seen.page.locator(control).is_visible()
    assert seen.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    closed = "document.querySelectorAll('details:not([open], article *)').length"
    assert seen.run(closed) == 0
    assert [one for one in seen.run("contrasts()") if one[0] < 4.5] == []
    seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert seen.run("document.querySelectorAll('details[open]').length") == 0


@ONE_PAGE
def test_without_scripts_the_page_is_complete_and_has_no_dead_control(written, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written.as_uri())
    for control in ("#theme", ".pager"):
        assert not page.locator(control).is_visible()
    page.locator(".rest > details > summary").click()
    assert page.locator("article").last.is_visible()
    context.close()


@ONE_PAGE
def test_landmarks_and_names_are_there_for_a_screen_reader(written, visit):
    seen = visit(written)
    tree = seen.page.locator("body").aria_snapshot()
    for landmark in ('navigation "Contents"', "main:", 'button "Dark"', 'region "Sources"'):
        assert landmark in tree
    for named in ('table "Longer than a context"', 'searchbox "Search in these texts"'):
        assert named in tree
    levels = [int(tag[1]) for tag in seen.run(
        "[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName)"
    )]  # fmt: skip
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
