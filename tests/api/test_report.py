"""`Dataset.report` writes one page, whole or not at all, and no file of the dataset."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.errors import StorageError, UsageError


def tiles_of(path: Path) -> dict[str, float]:
    """Return the numbers at the head of a page."""
    found = re.findall(r'<dt>([^<]+)</dt><dd data-value="([^"]+)">', path.read_text())
    return {name: float(value) for name, value in found}


def test_the_page_of_a_dataset_is_written_and_replaced(pretrained, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    pretrained.report(path)
    assert tiles_of(path)["tokens"] == pretrained.n_tokens
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_the_page_has_the_bill_that_is_given(chats, tmp_path):
    bill = chats.bill("llama-3.2-1b", gpu="RTX 4090")
    chats.report(str(tmp_path / "report.html"), bill)
    assert tiles_of(tmp_path / "report.html")["size on disk"] == bill.disk.bill.n_bytes


@pytest.mark.parametrize("trainer", ["megatron", "datatrove"])
def test_the_page_of_an_import_has_no_amount_of_unknown_text(single, chats, tmp_path, trainer):
    original = single if trainer == "megatron" else chats
    original.export(trainer, tmp_path / "old")
    made = tokmill.import_dataset(
        tmp_path / "old", trainer=trainer, output=tmp_path / "new", tokenizer=TOKENIZER
    )
    made.report(tmp_path / "report.html")
    assert tiles_of(tmp_path / "report.html")["tokens"] == original.n_tokens
    html = (tmp_path / "report.html").read_text()
    assert "text bytes per token" not in html.lower()
    assert "of text a second" not in html


def test_a_page_that_cannot_be_written_leaves_nothing(pretrained, tmp_path):
    with pytest.raises(UsageError, match="not a file"):
        pretrained.report(tmp_path)
    with pytest.raises(StorageError):
        pretrained.report(tmp_path / "missing" / "report.html")
    with pytest.raises(UsageError, match="path: expected a path, found 3"):
        pretrained.report(3)
    assert list(tmp_path.iterdir()) == []
