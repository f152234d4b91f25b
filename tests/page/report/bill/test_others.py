"""Host RAM and disk on the page: the rows of the report, and bars of the same amounts."""

from __future__ import annotations

import dataclasses
import re

from tests.page.report.bill.conftest import MACHINE
from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.text.summary import missing_disk_bytes, summary_rows
from tokmill.page.report.bill.others import (
    FARTHEST,
    STRATEGIES,
    disk_chart,
    loading_bars,
    numbers_of,
    own_rows,
    own_text,
)
from tokmill.page.report.bill.tables import loading_of
from tokmill.settings.training import LOADING, TrainingSettings
from tokmill.words.units import size


def with_free(made, free_bytes):
    return dataclasses.replace(
        made.bill, disk=dataclasses.replace(made.bill.disk, free_bytes=free_bytes)
    )


def test_every_strategy_has_words():
    assert list(STRATEGIES) == list(LOADING)


def test_files_of_the_dataset_are_bars(unnamed):
    html = disk_chart(unnamed.bill)
    values = list(map(int, re.findall(r'<rect class="s1"[^>]* data-value="(\d+)"', html)))
    assert values == [line.n_bytes for line in unnamed.bill.disk.bill.lines]
    assert sum(values) == unnamed.bill.disk.bill.n_bytes
    assert "checkpoints" not in re.sub(r"<desc.*?</desc>", "", html)


def test_checkpoints_of_a_model_are_the_last_bar(llama):
    html = disk_chart(llama.bill)
    most = llama.bill.of_model.checkpoints.high_bytes
    values = re.findall(r'<rect class="s1"[^>]* data-value="(\d+)"', html)
    assert values[-1] == str(most)
    assert f"up to {size(most)}" in html
    assert ">checkpoints<" in html


def test_free_space_is_a_line_if_it_is_not_far_away(llama):
    most = llama.bill.of_model.checkpoints.high_bytes
    assert f"{size(most)} free" in disk_chart(with_free(llama, most))
    assert " free" not in disk_chart(with_free(llama, FARTHEST * most + 1))
    assert " free" not in disk_chart(with_free(llama, None))


def test_too_little_space_is_said(llama):
    found = with_free(llama, 1000)
    assert missing_disk_bytes(found) > 0
    assert "TOO LITTLE" in own_text(found, "disk", "disk")


def test_texts_are_the_rows_of_the_report_with_their_continuations(llama):
    rows = list(summary_rows(llama.bill, {"host"}))
    at = [row.label for row in rows].index("host RAM")
    assert own_text(llama.bill, "host", "host RAM").startswith(rows[at].text)
    assert own_text(llama.bill, "host", "no such row") == ""


def test_rows_are_taken_by_name(llama):
    found = dict(own_rows(llama.bill, "gpu", ("fits with", "verdict")))
    rows = {row.label: row.text for row in summary_rows(llama.bill, {"gpu"}) if row.label}
    assert found == {name: rows[name] for name in ("verdict", "fits with") if name in rows}


def test_numbers_of_a_case_by_its_place():
    amounts = (1, 2, 3, 4, 10, 20, 30, 40)
    assert numbers_of(amounts, 0, 2) == ((1, 2), 3, 4)
    assert numbers_of(amounts, 1, 2) == ((10, 20), 30, 40)


def test_a_dataset_that_does_not_fit_says_so_and_draws_the_machine():
    large = DatasetSize("pretrain", 10**10, 10**6, 4, largest_shard_tokens=10**8)
    table = loading_of(TrainingSettings(sequence=2048), large, MACHINE)
    found, limit = loading_bars(table, (0, 0))
    kinds = {bar.name: bar.kind for bar in found}
    assert kinds["memmap"] == "yes"
    assert kinds["lists"] == "no"
    assert limit is not None
    assert limit.text == "this machine, 64.00 GiB"
    assert limit.n_bytes == MACHINE.memory_bytes


def test_memory_that_others_use_now_is_said():
    busy = dataclasses.replace(MACHINE, available_bytes=1 << 20)
    size_ = DatasetSize("pretrain", 10**6, 10, 2)
    table = loading_of(TrainingSettings(sequence=2048), size_, busy)
    found, _ = loading_bars(table, (0, 0))
    assert found[0].text.endswith(", fits once memory is freed")
    assert found[0].kind == "maybe"
