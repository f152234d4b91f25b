"""The benchmark's options."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.contenders import JSONL, SECTIONS, Goals, contenders_of, goals, sections
from bench.options import PEERS, expanded, named_input, read_options, tokenizer_with_eos


def test_an_input_is_named_by_the_user_or_after_its_file():
    assert named_input("en=/d/a.jsonl") == ("en", Path("/d/a.jsonl"))
    assert named_input("/d/docs_en.jsonl") == ("docs_en", Path("/d/docs_en.jsonl"))


def test_a_tokenizer_may_name_its_eos():
    assert tokenizer_with_eos("/t/gpt2:<|endoftext|>") == (Path("/t/gpt2"), "<|endoftext|>")
    assert tokenizer_with_eos("/t/llama3") == (Path("/t/llama3"), "")


def test_variables_stand_in_for_options(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BENCH_DATA", "en=/a.jsonl zh=/b.jsonl")
    monkeypatch.setenv("BENCH_TOKENIZERS", "/t/x")
    assert [name for name, _ in read_options([]).inputs] == ["en", "zh"]
    assert [name for name, _ in read_options(["--input", "c=/c"]).inputs] == ["c"]
    assert read_options([]).tokenizers == ((Path("/t/x"), ""),)


def test_an_unknown_section_is_refused():
    with pytest.raises(SystemExit, match="unknown speed; known: peers"):
        read_options(["--sections", "peers,speed"])


def test_each_contender_runs_once_a_round_however_many_sections_want_it():
    found = sections(tuple(SECTIONS), PEERS, ["--batch-bytes", "1MiB"], 800, Goals())
    names = [contender.name for contender in contenders_of(found)]
    assert len(names) == len(set(names))
    assert names[0] == JSONL


def test_every_name_that_a_comparison_uses_is_run():
    found = sections(tuple(SECTIONS), PEERS, [], 800, Goals())
    names = {contender.name for contender in contenders_of(found)}
    used = {n for s in found for c in s.comparisons for n in (c.over, *c.under)}
    assert {name.removesuffix(", very first run") for name in used} <= names


def test_a_directory_of_tokenizers_stands_for_those_that_are_compared(tmp_path: Path):
    for name in ("qwen2.5", "gpt2", "other"):
        (tmp_path / name).mkdir()
    assert expanded(str(tmp_path)) == [
        (tmp_path / "gpt2", ""),
        (tmp_path / "qwen2.5", "<|endoftext|>"),
    ]
    assert expanded(f"{tmp_path}/other:<eos>") == [(tmp_path / "other", "<eos>")]


@pytest.mark.parametrize(
    ("tokenizer", "family", "is_chinese", "least"),
    [
        ("gpt2", "byte-level BPE", False, Goals(40, 20, 0.55, 0.6)),
        ("gpt2", "byte-level BPE", True, Goals(22, 8, 0.7, 0.7)),
        ("llama3", "byte-level BPE", False, Goals(25, 20, 0.55, 0.6)),
        ("llama3", "byte-level BPE", True, Goals(20, 8, 0.7, 0.7)),
        ("llama2", "SentencePiece BPE", True, Goals(10, 6)),
        ("bert", "WordPiece", False, Goals()),
    ],
)
def test_goals_follow_tokenizer_family_and_language(tokenizer, family, is_chinese, least):
    assert goals(tokenizer, family, is_chinese=is_chinese) == least


def test_goals_stand_in_the_comparisons():
    found = sections(("peers", "ceiling", "auto"), PEERS, [], 800, Goals(40, 20, 0.55, 0.6))
    least = {c.label: c.goal for s in found for c in s.comparisons if c.goal is not None}
    assert least == {
        "tokmill : encode_batch": 20,
        "tokmill : datatrove": 40,
        "tokmill : best engine alone": 0.55,
        "tokmill, Parquet : best engine alone": 0.6,
        "tokmill : better engine forced": 0.95,
    }
