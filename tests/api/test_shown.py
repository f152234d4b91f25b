"""What a notebook or terminal shows of a run and of its results."""

from __future__ import annotations

import io
import logging
import sys
import types
from pathlib import Path

import pytest

import tokmill

ROWS = [{"text": f"hello {i}", "note": "x"} for i in range(40)]
SETTINGS = {"workers": 1, "engine": "reference", "max_reject_fraction": 0.5}


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def source(tmp_path, write_rows) -> Path:
    path = write_rows(tmp_path / "in.jsonl", ROWS)
    with path.open("a") as file:
        file.write('{"text": 5}\n')
    return path


@pytest.fixture
def shown_in(monkeypatch, source, tokenizer_dir, tmp_path):
    """Run once where a terminal, a notebook or nobody watches, and return the lines shown."""

    def shown(where: str, **settings) -> list[str]:
        stream = _Terminal() if where == "terminal" else io.StringIO()
        cells: list[str] = []
        if where == "notebook":
            shell = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1))
            monkeypatch.setitem(sys.modules, "IPython", shell)

            def display(data: dict[str, str], raw: bool, display_id: bool = False):
                cells.append(data["text/plain"])
                return types.SimpleNamespace(update=lambda *_, **__: None)

            monkeypatch.setitem(
                sys.modules, "IPython.display", types.SimpleNamespace(display=display)
            )
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys, "stderr", stream)
        tokmill.pretrain(
            source, tokenizer=tokenizer_dir, output=tmp_path / where, **SETTINGS, **settings
        )
        return [*stream.getvalue().splitlines(), *cells]

    return shown


@pytest.mark.parametrize("where", ["terminal", "notebook"])
def test_a_run_says_what_it_reads_and_what_was_lost(shown_in, where):
    lines = "\n".join(shown_in(where))
    assert "fields: text 100%; left out: note" in lines
    assert "rejects: 1 wrong type" in lines


def test_a_run_that_nobody_watches_shows_nothing(shown_in, caplog):
    with caplog.at_level(logging.ERROR, logger="tokmill"):
        assert shown_in("pipe") == []


@pytest.mark.parametrize("progress", [False, lambda _: None], ids=["False", "function"])
def test_notes_can_be_silenced(shown_in, progress):
    assert shown_in("terminal", progress=progress) == []


def test_a_program_that_reads_the_log_does_not_see_notes_twice(shown_in, caplog):
    with caplog.at_level(logging.INFO, logger="tokmill"):
        assert shown_in("terminal") == []
    assert "left out: note" in caplog.text


def test_a_dataset_prints_the_rows_of_the_command(source, tokenizer_dir, tmp_path, command):
    dataset = tokmill.pretrain(source, tokenizer=tokenizer_dir, output=tmp_path / "o", **SETTINGS)
    again = command(
        "pretrain", str(source), "-t", str(tokenizer_dir), "-o", str(tmp_path / "o"),
        "--engine", "reference", "--max-reject-fraction", "0.5", "--workers", "1",
    )  # fmt: skip
    assert str(dataset).splitlines() == again.out.splitlines()
    assert "<th" in dataset._repr_html_()
    assert "40 documents" in dataset._repr_html_()


def test_forecasts_statistics_bills_and_loaders_print_what_they_hold(
    source, tokenizer_dir, tmp_path
):
    forecast = tokmill.plan(source, tokenizer=tokenizer_dir, **SETTINGS)
    dataset = tokmill.pretrain(source, tokenizer=tokenizer_dir, output=tmp_path / "o", **SETTINGS)
    loader = tokmill.loader.Loader(tokmill.loader.windows(dataset, 8, shift=True), 2, epochs=1)
    assert str(forecast).startswith("input ")
    assert str(dataset.stats()).startswith("lengths ")
    assert str(dataset.bill("gpt2")).startswith("verdict ")
    assert "samples an epoch, batch 2, 1 epoch>" in repr(loader)
    for shown in (forecast, dataset.stats(), dataset.bill("gpt2")):
        assert "<table>" in shown._repr_html_()
        assert len(repr(shown)) < 3_000


def test_markup_in_names_is_text(tmp_path, write_rows, tokenizer_dir):
    source = write_rows(tmp_path / "<b>.jsonl", [{"text": "a <b>", "<script>": "x"}])
    output = tmp_path / "<script>"
    dataset = tokmill.pretrain(source, tokenizer=tokenizer_dir, output=output, **SETTINGS)
    assert "<script>" not in dataset._repr_html_()


def test_a_forecast_that_would_stop_says_so_and_is_returned(source, tokenizer_dir, caplog):
    source.write_text('{"text": 5}\n' * 20 + '{"text": "a"}\n')
    forecast = tokmill.plan(source, tokenizer=tokenizer_dir, engine="reference")
    assert forecast.problem is not None
    assert str(forecast.problem) in caplog.text
    assert "max_reject_fraction=0.01" in str(forecast.problem)
    assert "--" not in str(forecast.problem)
