"""The benchmark's options."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.contenders import JSONL, SECTIONS, contenders_of, sections
from bench.options import PEERS, named_input, read_options, tokenizer_with_eos


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
    found = sections(tuple(SECTIONS), PEERS, ["--batch-bytes", "1MiB"], 800)
    names = [contender.name for contender in contenders_of(found)]
    assert len(names) == len(set(names))
    assert names[0] == JSONL


def test_every_name_that_a_comparison_uses_is_run():
    found = sections(tuple(SECTIONS), PEERS, [], 800)
    names = {contender.name for contender in contenders_of(found)}
    used = {n for s in found for c in s.comparisons for n in (c.over, *c.under)}
    assert {name.removesuffix(", very first run") for name in used} <= names
