"""A plain run needs few packages; where one is missing that some input needs, a line says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer

SAMPLES = Path(__file__).parents[2] / "data_samples"
BLOCKED = ("sentencepiece", "chardet", "charset_normalizer")


@pytest.fixture
def without_packages(monkeypatch):
    """None of these can be imported."""
    for name in BLOCKED:
        for module in [*sys.modules]:
            if module.partition(".")[0] == name:
                monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, name, None)


def test_a_plain_run_needs_neither_sentencepiece_nor_a_detector_of_encodings(
    tokmill, without_packages, tmp_path
):
    tokenizer, out = SAMPLES / "tokenizer", tmp_path / "out"
    for command in (
        ("plan", SAMPLES / "records.jsonl", "-t", tokenizer),
        ("pretrain", SAMPLES / "records.jsonl", "-t", tokenizer, "-o", out),
        ("verify", out),
        ("inspect", out),
    ):
        assert tokmill(*command).code == 0, command


def test_what_needs_a_missing_package_names_it_in_one_line(tokmill, request, monkeypatch, tmp_path):
    (tmp_path / "text.txt").write_text("hello there\n" * 500)
    SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "spm"),
        vocab_size=14,
        model_type="bpe",
        minloglevel=5,
    )
    (tmp_path / "latin.txt").write_bytes("für schöne Grüße ".encode("latin-1") * 90)
    request.getfixturevalue("without_packages")
    command = (
        "pretrain",
        tmp_path / "text.txt",
        "-t",
        tmp_path / "spm.model",
        "-o",
        tmp_path / "a",
    )
    outcome = tokmill(*command)
    assert outcome.code not in (0, 70)
    assert "spm.model: the package sentencepiece, which encodes this model, is missing" in (
        outcome.error
    )
    command = (
        "pretrain",
        tmp_path / "latin.txt",
        "-t",
        SAMPLES / "tokenizer",
        "-o",
        tmp_path / "b",
    )
    outcome = tokmill(*command)
    assert outcome.code == 2
    assert "pip install 'chardet>=7.7'" in outcome.error
