"""The bill in headless Chromium: what is chosen is shown, with the numbers of the formulas."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.page.report.bill.conftest import MACHINE, Made
from tokmill.page.report.bill import section as section_module
from tokmill.page.report.bill.others import loading_bars, serving_bars, serving_words
from tokmill.page.report.bill.section import bill_section
from tokmill.page.report.bill.tables import loading_of, serving_of
from tokmill.page.report.bill.words import bars, bounded, title, words
from tokmill.page.report.report_page import assembled
from tokmill.page.report.section import Section
from tokmill.words.units import memory

SCRIPT = Path(section_module.__file__).with_name("script.js").read_text()
ROWS = """id => [...document.getElementById(id).querySelectorAll("g.bar")].map(bar => ({
  values: [...bar.querySelectorAll("rect[data-value]")].map(one => Number(one.dataset.value)),
  titles: [...bar.querySelectorAll("rect[data-value] title")].map(one => one.textContent),
  text: bar.querySelector("text.value").textContent,
  kind: bar.querySelector("text.value").getAttribute("class"),
  note: bar.querySelector(".note").textContent,
}))"""
CELLS = """id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row =>
  [...row.querySelectorAll("td")].map(cell => cell.textContent))"""


ONE_PAGE = pytest.mark.parametrize("shown", ["llama"], indirect=True)


@pytest.fixture(scope="module", params=["llama", "unnamed"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Made, Section, Path]:
    """The view of a bill, its section, and the file of a page that has it."""
    made: Made = request.getfixturevalue(request.param)
    section = bill_section(made.directory, made.manifest, made.bill, machine=MACHINE)
    path = tmp_path_factory.mktemp("bill") / "page.html"
    path.write_text(assembled("x", [Section("overview", "Overview", "<h1>x</h1>"), section]))
    return made, section, path


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    contexts, said = [], []

    def open_page(path: Path, address: str = "", **context: Any) -> Any:
        contexts.append(browser.new_context(**context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri() + address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def address(made: Made, at: Any, **others: str) -> str:
    axes = made.axes
    spread = axes.spreads[at[2]]
    return "#bill:" + urlencode({
        "model": axes.models[at[0]].model.name,
        "gpu": axes.gpus[at[1]].name,
        "spread": f"{spread.gpus} {spread.sharding}",
        "batch": axes.batches[at[3]],
        "sequence": axes.sequences[at[4]],
        **others,
    })  # fmt: skip


def text_of(page: Any, key: str) -> str:
    return page.locator(f'[data-text="{key}"]').text_content()


def check_training(page: Any, made: Made, at: Any) -> None:
    """Check that the page shows a case, in words and bars."""
    said = words(made.view, at)
    assert text_of(page, "verdict") == said.verdict
    assert page.get_attribute('[data-text="verdict"]', "class") == f"verdict {said.kind}"
    for key in ("memory", "remedies", "time"):
        assert text_of(page, key) == getattr(said, key), at
    assert text_of(page, "command") == f"{said.command} --explain"
    assert page.locator('[data-text="notes"] li').all_text_contents() == list(said.notes)
    assert page.text_content("#bill-training-title") == title(made.axes, at)
    check_bars(page, "bill-training", bars(made.view, at))


def check_bars(page: Any, chart: str, expected: Any) -> None:
    rows, limit = expected
    for bar, found in zip(rows, page.evaluate(ROWS, chart), strict=True):
        assert found["values"] == list(bar.amounts)
        assert [text.split(": ")[1] for text in found["titles"]] == list(map(memory, bar.amounts))
        assert found["text"] == bar.text
        assert found["kind"] == f"value {bar.kind}"
        assert found["note"] == bar.note
    line = page.locator(f"#{chart} line.limit")
    assert line.get_attribute("display") == ("inline" if limit else "none")
    assert line.get_attribute("data-value") == str(limit.n_bytes if limit else 0)
    for bar, cells in zip(rows, page.evaluate(CELLS, chart), strict=True):
        amounts = (*bar.amounts, bar.n_bytes, bar.low_bytes, bar.high_bytes)
        texts = [memory(n) if bar.high_bytes else "" for n in amounts]
        assert cells == [*texts, bar.why or bar.text.partition(", ")[2]]


def test_the_script_changes_nothing_until_a_case_is_chosen(shown, visit):
    _, section, path = shown
    page = visit(path)
    same = page.evaluate(
        """html => {
          const fresh = document.createElement("section");
          fresh.innerHTML = html;
          for (const one of fresh.querySelectorAll(".choices")) one.hidden = false;
          const live = document.getElementById("bill").cloneNode(true);
          live.querySelector("h2").remove();
          const [a, b] = [fresh.innerHTML, live.innerHTML];
          let at = 0;
          while (at < a.length && a[at] === b[at]) at += 1;
          return a === b ? "" : `${a.slice(at - 80, at + 80)} | ${b.slice(at - 80, at + 80)}`;
        }""",
        section.html,
    )
    assert same == ""


def test_a_case_that_is_chosen_is_shown(shown, visit):
    made, _, path = shown
    page = visit(path)
    check_training(page, made, made.axes.start)
    n = [len(each) for each in (made.axes.models, made.axes.gpus, made.axes.spreads)]
    at = (n[0] - 1, n[1] - 1, n[2] - 1, 3, 3)
    for key, place in zip(("model", "gpu", "spread"), at, strict=False):
        page.get_by_label({"model": "Model", "gpu": "GPU", "spread": "GPUs and sharding"}[key],
                          exact=True).select_option(str(place))  # fmt: skip
    for key in ("batch", "sequence"):
        page.locator(f'input[data-key="{key}"][value="3"]').click()
    check_training(page, made, at)
    assert page.evaluate("location.hash").startswith("#bill:model=")


def test_cases_from_the_address_are_those_of_the_formulas(shown, visit):
    made, _, path = shown
    axes = made.axes
    lengths = map(len, (axes.models, axes.gpus, axes.spreads, axes.batches, axes.sequences))
    everything = list(itertools.product(*map(range, lengths)))
    page = visit(path)
    for at in random.Random(1).sample(everything, 20):
        page.evaluate("hash => { location.hash = hash; }", address(made, at))
        page.wait_for_function(
            "text => document.getElementById('bill-training-title').textContent === text",
            arg=title(axes, at),
        )
        check_training(page, made, at)


@ONE_PAGE
def test_serving_and_loading_follow_their_choices(shown, visit):
    made, _, path = shown
    page = visit(path)
    serving = serving_of(made.axes, made.bill.settings.inference)
    size = made.bill.disk.size
    loading = loading_of(made.bill.settings.training, size, MACHINE)
    for kind, batch, workers, start in ((0, 0, 0, 0), (2, 2, 3, 1), (1, 1, 2, 0)):
        for key, value in {
            "weights": kind, "served": batch, "workers": workers, "starts": start
        }.items():  # fmt: skip
            page.locator(f'input[data-key="{key}"][value="{value}"]').check(force=True)
        at = (*made.axes.start[:2], kind, batch)
        check_bars(page, "bill-serving", serving_bars(made.axes, serving, at))
        said, verdict = serving_words(made.axes, serving, at)
        assert text_of(page, "served") == said
        assert page.get_attribute('[data-text="served"]', "class") == f"verdict {verdict}"
        check_bars(page, "bill-loading", loading_bars(loading, (start, workers)))


@ONE_PAGE
def test_the_keyboard_chooses_and_the_verdict_is_announced(shown, visit):
    made, _, path = shown
    page = visit(path)
    before = text_of(page, "verdict")
    page.get_by_label("GPU", exact=True).focus()
    page.keyboard.press("Home")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    active = "document.activeElement.dataset.key"
    assert page.evaluate(active) == "batch"
    outline = "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("ArrowRight")
    after = (made.axes.start[0], 0, made.axes.start[2], made.axes.start[3] + 1)
    check_training(page, made, (*after, made.axes.start[4]))
    assert text_of(page, "verdict") != before
    assert page.get_attribute('[data-text="verdict"]', "role") == "status"


@ONE_PAGE
def test_the_address_keeps_the_choice_and_ignores_what_it_does_not_know(shown, visit):
    made, _, path = shown
    at = (1, 2, 3, 2, 3)
    page = visit(path, address(made, at, served="32", evil="<b>", weights="none"))
    check_training(page, made, at)
    assert page.locator('input[data-key="served"]:checked').get_attribute("value") == "2"
    assert page.locator('input[data-key="weights"]:checked').get_attribute("value") == "0"
    page.reload()
    check_training(page, made, at)
    page.evaluate("hash => { location.hash = hash; }", "#bill:model=nothing")
    page.wait_for_function(
        "text => document.getElementById('bill-training-title').textContent === text",
        arg=title(made.axes, made.axes.start),
    )


def test_the_advice_of_the_settings_is_shown_with_their_case_only(shown, visit):
    made, _, path = shown
    page = visit(path)
    assert page.evaluate("document.querySelector('#bill .own').hidden") is False
    page.locator('input[data-key="sequence"]').first.check(force=True)
    is_start = made.axes.start[4] == 0
    assert page.evaluate("document.querySelector('#bill .own').hidden") is not is_start


@ONE_PAGE
def test_paper_has_the_chosen_case_and_no_controls(shown, visit):
    made, _, path = shown
    page = visit(path, address(made, (0, 0, 0, 3, 3)))
    page.emulate_media(media="print")
    assert not any(one.is_visible() for one in page.locator(".choices").all())
    assert page.text_content("#bill-training-title") == title(made.axes, (0, 0, 0, 3, 3))


@ONE_PAGE
def test_nothing_is_wider_than_the_screen(shown, visit):
    made, _, path = shown
    page = visit(path, address(made, (3, 0, 3, 3, 3)))
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true;")
    for width in (1280, 375, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@ONE_PAGE
def test_numbers_are_written_as_python_writes_them(shown, visit):
    _, _, path = shown
    chance = random.Random(2)
    numbers = [chance.randrange(2**44) >> chance.randrange(40) for _ in range(2000)]
    numbers += [(8 * n + k) << 17 for n in range(200) for k in range(8)]  # ties of MiB
    numbers += [n << 27 for n in range(1, 400)]  # ties of GiB
    numbers += [2**30 - 1, 2**30, 2**30 + 1, 0]
    block = SCRIPT[SCRIPT.index("const grouped") : SCRIPT.index("const plural")]
    page = visit(path)
    session = page.context.new_cdp_session(page)
    code = f"(() => {{ {block} return {numbers}.map(memory); }})()"
    found = session.send("Runtime.evaluate", {"expression": code, "returnByValue": True})
    assert found["result"]["value"] == list(map(memory, numbers))
    triples = [tuple(sorted(chance.sample(numbers, 3))) for _ in range(500)]
    code = f"(() => {{ {block} return {[list(t) for t in triples]}.map(t => bounded(...t)); }})()"
    found = session.send("Runtime.evaluate", {"expression": code, "returnByValue": True})
    assert found["result"]["value"] == [bounded(*each) for each in triples]
