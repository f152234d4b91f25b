"""The library in a child process: the ids of the library in this one, whatever happens to it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Library

import tokmill
from tokmill.children import Child
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.reference import TokenizersProcess, TokenizersReference
from tokmill.engines.trial.hostile_texts import hostile_texts
from tokmill.errors import TokenizerError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer import library_process
from tokmill.tokenizer.control_tokens import added_tokens, with_control_tokens
from tokmill.tokenizer.library_process import library_started, started_for
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(library_process, "LEAST_BYTES", 1)
    monkeypatch.setattr(library_process, "_two_processors", lambda: True)


@pytest.fixture
def folder(tmp_path, tokenizer_dir) -> Path:
    """A copy of the tiny tokenizer, which a test may change."""
    shutil.copytree(tokenizer_dir, tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def load(folder: Path) -> Tokenizer:
    return load_tokenizer(TokenizerSettings(path=str(folder)))


def reference(tokenizer: Tokenizer, control: str = "text"):
    return load_engine(REFERENCE, tokenizer, control_in_text=control, n_threads=1)


def ids(engine, texts: list[str]) -> list[list[int]]:
    batch = engine.encode(pa.array(texts, pa.large_string()))
    ends = batch.offsets.tolist()
    return [batch.ids[a:b].tolist() for a, b in pairwise(ends)]


def texts(tokenizer: Tokenizer) -> list[str]:
    return [*hostile_texts([tokenizer.eos.content]), f"a{tokenizer.eos.content}b", "", "猫" * 999]


def change(folder: Path, edit) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_bytes())
    edit(content)
    file.write_text(json.dumps(content))


def kill_child() -> None:
    pid = library_process._started.get()._child._process.pid
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("control", ["text", "parse"])
def test_a_child_gives_the_ids_and_the_facts_of_the_library(folder, control):
    alone = load(folder)
    with library_started(str(folder)):
        tokenizer = load(folder)
        engine = reference(tokenizer, control)
        assert isinstance(engine, TokenizersProcess)
        assert tokenizer == alone  # eos, special ids, sizes: read from the file
        assert tokenizer.spare == []
        given = texts(tokenizer)
        assert ids(engine, given) == ids(reference(alone, control), given)
        assert ids(engine, []) == []


def test_a_program_that_embeds_python_starts_no_child(folder, monkeypatch):
    monkeypatch.setattr("sys.executable", None)
    with library_started(str(folder)):
        assert started_for(folder / "tokenizer.json") is None


def test_a_small_tokenizer_another_kind_or_a_single_processor_starts_no_child(
    folder, tmp_path, monkeypatch
):
    (tmp_path / "a.model").write_bytes(b"\n\x01")
    for path in (str(tmp_path / "a.model"), str(tmp_path / "none"), "a\0b", "", str(tmp_path)):
        with library_started(path):
            assert library_process._started.get() is None
    monkeypatch.setattr(library_process, "_two_processors", lambda: False)
    with library_started(str(folder)):
        assert started_for(folder / "tokenizer.json") is None
    monkeypatch.setattr(library_process, "_two_processors", lambda: True)
    monkeypatch.setattr(library_process, "LEAST_BYTES", 1 << 30)
    with library_started(str(folder)):
        assert started_for(folder / "tokenizer.json") is None
        assert isinstance(reference(load(folder)), TokenizersReference)


def test_another_tokenizer_than_that_of_the_block_is_loaded_here(folder, tokenizer_dir):
    with library_started(str(folder)):
        assert load(tokenizer_dir).child is None


def test_a_variant_and_a_copy_for_another_process_do_not_use_the_child(folder):
    with library_started(str(folder)):
        tokenizer = load(folder)
        assert pickle.loads(pickle.dumps(tokenizer)).child is None
        variant = replace(tokenizer, json=tokenizer.json + " ")
        assert isinstance(reference(variant), TokenizersReference)


@pytest.mark.parametrize("control", ["text", "parse"])
def test_the_child_marks_the_control_tokens_of_a_template(folder, control):
    strings = [token for token, known in added_tokens(load(folder)).items() if not known.special]
    assert strings
    given = [f"a{string}b" for string in strings] * 2
    alone = with_control_tokens(load(folder), strings)
    expected = ids(reference(alone, control), given)
    with library_started(str(folder)):
        tokenizer = load(folder)
        one = with_control_tokens(tokenizer, strings[:1])
        both = with_control_tokens(one, strings)
        assert both == alone
        engine = reference(both, control)
        assert isinstance(engine, TokenizersProcess)
        assert ids(engine, given) == expected
        assert isinstance(reference(tokenizer, control), TokenizersProcess)
        # It cannot go back: the library of this process takes its place.
        assert ids(reference(tokenizer, control), given) == ids(
            reference(load(folder / "tokenizer.json"), control), given
        )
        assert ids(engine, given) == expected


def test_a_variant_of_the_marked_tokenizer_is_loaded_here(folder):
    with library_started(str(folder)):
        marked = with_control_tokens(load(folder), ["<tool>"])
        other = with_control_tokens(replace(marked, json=marked.json + " "), ["<tool>"])
        assert isinstance(reference(other), TokenizersReference)


def test_the_child_ends_with_the_block(folder):
    with library_started(str(folder)):
        process = library_process._started.get()._child._process
        assert process.poll() is None
    assert process.poll() is not None
    assert library_process._started.get() is None


@pytest.mark.parametrize("when", ["while it loads", "between two texts"])
def test_a_child_that_is_killed_is_replaced_by_the_library_here(folder, when):
    with library_started(str(folder)):
        tokenizer = load(folder)
        if when == "while it loads":
            kill_child()
        engine = reference(tokenizer)
        if when == "between two texts":
            ids(engine, ["a"])
            kill_child()
        expected = ids(reference(load(folder / "tokenizer.json")), texts(tokenizer))
        assert ids(engine, texts(tokenizer)) == expected


@pytest.mark.parametrize("when", ["while it loads", "before its answer", "within its answer"])
def test_an_answer_that_nobody_took_is_not_given_to_other_texts(folder, when, monkeypatch):
    with library_started(str(folder)):
        tokenizer = load(folder)
        process = tokenizer.child.process
        if when != "while it loads":
            process.loaded()

        def stop(*_):
            raise KeyboardInterrupt

        def stop_within(*_):
            os.read(process._child.fileno(), 9)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Child, "receive", stop_within if when[:6] == "within" else stop)
            with pytest.raises(KeyboardInterrupt):
                process.encode(["hello world"], parse=False)
        expected = ids(TokenizersReference(tokenizer, parse=False), ["other"])
        assert ids(reference(tokenizer), ["other"]) == expected


def test_a_file_that_changed_meanwhile_is_not_taken_from_the_child(folder):
    with library_started(str(folder)):
        started_for(folder / "tokenizer.json").loaded()
        change(folder, lambda content: content.update(version="1.0", normalizer={"type": "NFC"}))
        tokenizer = load(folder)
        expected = ids(TokenizersReference(tokenizer, parse=False), ["e\u0301"])
        assert ids(reference(tokenizer), ["e\u0301"]) == expected


def test_a_refused_file_is_refused_in_the_same_words(folder):
    change(folder, lambda content: content["model"]["merges"].append(["no", "such"]))
    with pytest.raises(TokenizerError) as here:
        load(folder)
    with library_started(str(folder)):
        tokenizer = load(folder)
        with pytest.raises(TokenizerError) as there:
            reference(tokenizer)
    assert str(there.value) == str(here.value)
    assert "the tokenizers library refuses it" in str(there.value)


def test_a_refused_file_is_refused_though_its_child_was_killed(folder):
    change(folder, lambda content: content["model"]["merges"].append(["no", "such"]))
    with library_started(str(folder)):
        tokenizer = load(folder)
        kill_child()
        with pytest.raises(TokenizerError, match="the tokenizers library refuses it"):
            ids(reference(tokenizer), ["a"])


def test_ids_that_the_file_does_not_say_are_found_before_anything_is_encoded(folder, monkeypatch):
    wrong = frozenset({(0, "a", True)})
    monkeypatch.setattr("tokmill.tokenizer.tokenizer.numbered_tokens", lambda _: wrong)
    with library_started(str(folder)):
        tokenizer = load_tokenizer(TokenizerSettings(path=str(folder), eos_token="0"))
        with pytest.raises(TokenizerError, match="gives its added tokens other ids"):
            reference(tokenizer)


def test_a_file_with_unusual_ids_is_loaded_here(folder):
    last = {"content": "<gap>", "special": True, **dict.fromkeys(("lstrip", "rstrip"), False)}
    last |= {"id": 9_999, "single_word": False, "normalized": False}
    change(folder, lambda content: content["added_tokens"].append(last))
    with library_started(str(folder)):
        tokenizer = load(folder)
        assert tokenizer.child is None
        assert tokenizer.special_ids == load(folder / "tokenizer.json").special_ids


def test_a_run_with_a_child_makes_the_bytes_of_one_without(
    folder, tmp_path, write_rows, monkeypatch
):
    rows = [{"text": f"hel hello {i} 猫 the cat {'x' * (i % 7)}"} for i in range(200)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    started = []
    start = library_process._start
    monkeypatch.setattr(
        library_process, "_start", lambda path: started.append(start(path)) or started[-1]
    )
    with_child = tokmill.pretrain(source, tokenizer=folder, output=tmp_path / "a")
    monkeypatch.setattr(library_process, "LEAST_BYTES", 1 << 30)
    without = tokmill.pretrain(source, tokenizer=folder, output=tmp_path / "b")
    assert [one is not None for one in started] == [True, False]
    assert started[0]._child._process.poll() is not None
    names = sorted(path.name for path in (tmp_path / "b").glob("*.bin"))
    assert names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert with_child.n_tokens == without.n_tokens


def test_a_run_of_chats_with_a_child_makes_the_bytes_of_one_without(
    folder, tmp_path, write_rows, monkeypatch
):
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"hel {i} <tool>"},
                {"role": "assistant", "content": "the cat"},
            ]
        }
        for i in range(50)
    ]
    source = write_rows(tmp_path / "in.jsonl", rows)
    settings = {"tokenizer": folder, "template": "plain"}
    tokmill.sft(source, output=tmp_path / "a", **settings)
    monkeypatch.setattr(library_process, "LEAST_BYTES", 1 << 30)
    tokmill.sft(source, output=tmp_path / "b", **settings)
    names = sorted(
        path.name for path in (tmp_path / "b").glob("*.*") if path.suffix in (".bin", ".mask")
    )
    assert len(names) == 2
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_run_with_a_refused_tokenizer_writes_nothing(folder, tmp_path, write_rows):
    change(folder, lambda content: content["model"]["merges"].append(["no", "such"]))
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello"}])
    with pytest.raises(TokenizerError, match="refuses it"):
        tokmill.pretrain(source, tokenizer=folder, output=tmp_path / "out")
    assert not (tmp_path / "out" / "plan.json").exists()


def test_the_library_numbers_added_tokens_as_the_file_is_read(folder):
    content = json.loads((folder / "tokenizer.json").read_bytes())
    decoder = Library.from_str(json.dumps(content)).get_added_tokens_decoder()
    with library_started(str(folder)):
        found = started_for(folder / "tokenizer.json").loaded()
    assert found.added == {(i, token.content, token.special) for i, token in decoder.items()}
    assert found.refused == ""
