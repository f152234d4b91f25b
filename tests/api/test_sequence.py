"""A dataset as a sequence: slices, tokens, tables, and what is shown of it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

import tokmill

ROWS = [{"text": f"hello {i} " * (i % 3 + 1), "lang": "en" if i % 2 else "de"} for i in range(30)]
CHATS = [
    {"messages": [{"role": "user", "content": f"q {i}"}, {"role": "assistant", "content": "<b>é"}]}
    for i in range(6)
]


@pytest.fixture
def texts(tmp_path, write_rows, tokenizer_dir) -> tokmill.Dataset:
    one = write_rows(tmp_path / "a.jsonl", ROWS)
    two = write_rows(tmp_path / "b.jsonl", ROWS[:7])
    return tokmill.pretrain(
        [one, two], tokenizer=tokenizer_dir, output=tmp_path / "t", engine="reference", workers=1,
        keep=["lang"], val_fraction=0.2, part_bytes=300,
    )  # fmt: skip


@pytest.fixture
def chats(tmp_path, write_rows, tokenizer_dir) -> tokmill.Dataset:
    source = write_rows(tmp_path / "c.jsonl", CHATS)
    return tokmill.sft(
        source, tokenizer=tokenizer_dir, output=tmp_path / "s", engine="reference", workers=1,
        template="plain", packing=64, max_tokens=64,
    )  # fmt: skip


@pytest.mark.parametrize("own", [slice(2, 9), slice(-3, None), slice(None, None, 7), slice(5, 5)])
def test_a_slice_has_the_ids_and_texts_of_its_documents(texts, own):
    numbers = range(len(texts))[own]
    assert [ids.tolist() for ids in texts[own]] == [texts[n].tolist() for n in numbers]
    assert texts.text(own) == [texts.text(n) for n in numbers]


def test_lengths_and_sums_are_those_of_the_documents(texts):
    assert texts.lengths.tolist() == [len(ids) for ids in texts]
    assert texts.lengths.sum() == texts.n_tokens
    assert (texts.dtype, texts.vocab_size) == (np.dtype("uint16"), texts.tokenizer.vocab_size)
    assert [source["documents"] for source in texts.sources] == [30, 7]
    assert texts.decode(texts[3]) == texts.decode(texts[3].tolist()) == texts.text(3)


def test_the_table_has_a_row_for_each_document_with_its_origin_and_kept_fields(texts):
    table = texts.to_arrow()
    assert table.column("tokens").to_pylist() == texts.lengths.tolist()
    for number, row in enumerate(table.to_pylist()):
        origin = texts.origin(number)
        assert (row["split"], row["shard"]) == (origin.split, origin.shard)
        assert (row["path"], row["record"]) == (origin.path, origin.record)
        assert row["lang"] == texts.meta(number)["lang"]
    of_val = [row for row in table.to_pylist() if row["split"] == "val"]
    assert texts.split("val").to_arrow().to_pylist() == of_val


def test_the_table_of_imported_tokens_has_no_origins(texts, tokenizer_dir, tmp_path):
    texts.export("megatron", tmp_path / "m")
    imported = tokmill.import_dataset(
        sorted(tmp_path.glob("m/**/*.bin")), trainer="megatron", output=tmp_path / "i",
        tokenizer=tokenizer_dir,
    )  # fmt: skip
    table = imported.to_arrow()
    assert table.num_rows == len(imported)
    assert table.column("record").null_count == len(imported)


def test_tokens_say_what_is_trained(chats):
    tokens = chats.tokens(2)
    assert [token.id for token in tokens] == chats[2].tolist()
    assert [token.is_trained for token in tokens] == chats.mask(2).astype(bool).tolist()
    assert "<b>" in "".join(token.text for token in tokens if token.is_trained)


def test_a_part_of_a_character_is_written_as_bytes(chats):
    texts = "".join(token.text for token in chats.tokens(2))
    assert "<b>\\xc3\\xa9" in texts
    assert texts.encode()


def test_a_sample_is_the_same_for_a_seed(texts):
    drawn = texts.sample(5, seed=3)
    assert drawn == texts.sample(5, seed=3) == sorted(set(drawn))
    assert drawn != texts.sample(5, seed=4)
    assert texts.sample(1000) == list(range(len(texts)))


def test_shown_samples_are_the_tokens_with_ids_and_what_is_trained(chats):
    shown = chats.show([2])
    page = shown._repr_html_()
    spans = re.findall(r'<span title="id (\d+)(, [a-z ]+)?" style="[^"]*">', page)
    assert [int(id_) for id_, _ in spans] == chats[2].tolist()
    assert [state == ", trained" for _, state in spans] == chats.mask(2).astype(bool).tolist()
    assert "<b>é" not in page
    # Its two bytes are two tokens.
    assert "<b>\\xc3\\xa9" in html.unescape(re.sub(r"<[^>]*>", "", page))
    assert "⟦<b>é" in repr(shown)


def test_samples_of_a_split_are_its_own(texts):
    val = texts.split("val")
    assert val.text(1) in repr(val.show([1]))


def test_a_packed_row_is_shown_with_its_samples(chats):
    row = chats.packs["train"].row(0)
    shown = chats.show_row(0)
    assert [sample.number for sample in shown.samples] == row.tolist()
    assert "from token 0 of the row" in repr(shown)


def test_a_report_without_a_path_is_shown(texts):
    page = texts.report()
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert "Lengths" in page.html


def test_a_plot_has_lengths_and_sources(texts):
    pytest.importorskip("matplotlib", reason="not installed")
    by_length, by_source = texts.plot().axes
    assert sum(bar.get_height() for bar in by_length.patches) == len(texts)
    assert sum(bar.get_width() for bar in by_source.patches) == texts.n_tokens


def test_a_notebook_shows_a_plot_as_a_picture(texts):
    pytest.importorskip("matplotlib", reason="not installed")
    pytest.importorskip("IPython", reason="needs the extra dev")
    from IPython.core.formatters import PNGFormatter

    assert PNGFormatter()(texts.plot()).startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_says_what_it_needs(texts, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(tokmill.TokmillError, match="pip install matplotlib"):
        texts.plot()


def test_paths_are_left_as_they_are(texts, tmp_path):
    assert Path(texts.sources[0]["path"]) == tmp_path / "a.jsonl"
