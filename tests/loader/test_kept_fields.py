"""Batches carry kept fields of the documents of their rows, where they are asked for."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import tokmill
from tokmill.errors import UsageError
from tokmill.loader import Loader, Phase, collate, packs, tensors, windows

QUIET: Any = {"progress": False}
FIELDS = ["language", "url"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory, tokenizer_dir) -> tokmill.Dataset:
    """Documents with a URL each, some with a language, in shards of a few, with packs of 16."""
    folder = tmp_path_factory.mktemp("kept")
    with (folder / "a.jsonl").open("w") as file:
        for i in range(40):
            language = {} if i % 3 else {"language": "en" if i % 2 else "de"}
            row = {"text": f"{i} " + "x " * (i % 9), "url": f"u{i}", **language}
            file.write(json.dumps(row) + "\n")
    made = tokmill.pretrain(
        folder / "a.jsonl", tokenizer=tokenizer_dir, output=folder / "out",
        keep=["url", "language"], shard_tokens=100, **QUIET,
    )  # fmt: skip
    tokmill.pack(made.directory, length=16)
    return tokmill.open(made.directory)


def fields_of_tokens(batch: dict[str, Any]) -> list[tuple[str | None, str | None] | None]:
    """Return the fields of each label's token, row after row; None for padding."""
    found: list[Any] = []
    for row, ids in enumerate(np.asarray(batch["column_ids"]).tolist()):
        values = list(zip(*(batch[name][row] for name in FIELDS), strict=True))
        found += [None if place < 0 else values[place] for place in ids]
    return found


def wanted(dataset: tokmill.Dataset) -> list[tuple[str | None, str | None]]:
    """Return the fields of each token of the split."""
    found: list[tuple[str | None, str | None]] = []
    for number, ids in enumerate(dataset):
        own = dataset.meta(number)
        found += [(own["language"], own["url"])] * len(ids)
    return found


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("length", [1, 7, 64])
def test_every_label_of_a_window_finds_the_fields_of_its_document(kept, shift, length) -> None:
    source = windows(kept, length, shift=shift, columns=FIELDS)
    batch = source.batch(range(len(source)))
    every = wanted(kept)
    assert fields_of_tokens(batch) == every[int(shift) :][: len(source) * length]
    for row, urls in enumerate(batch["url"]):  # documents come once, and all of them have tokens
        assert np.unique(batch["column_ids"][row]).tolist() == list(range(len({*urls})))
    plain = windows(kept, length, shift=shift)
    assert set(batch) - set(plain.batch([0])) == {"column_ids", "language", "url"}
    again = pickle.loads(pickle.dumps(source))
    assert again[1]["url"].tolist() == batch["url"][1] == source[1]["url"].tolist()


@pytest.mark.parametrize("shift", [True, False])
def test_every_token_of_a_pack_finds_the_fields_of_its_sample(kept, shift: bool) -> None:
    padded = packs(kept, shift=shift, columns=FIELDS)
    batch = padded.batch(range(len(padded)))
    found = fields_of_tokens(batch)
    short = packs(kept, shift=shift, pad=False, columns=FIELDS)
    rows = [short[i] for i in range(len(short))]
    lengths = np.array([len(row["input_ids"]) for row in rows])
    is_padding = np.arange(16) >= lengths[:, None]
    assert [one is None for one in found] == is_padding.ravel().tolist()
    url_of = {}
    for number, ids in enumerate(kept):
        url_of[f"u{number}"] = {*ids.tolist()}
    tokens = batch["input_ids"].ravel().tolist()
    for own, token in zip(found, tokens, strict=True):
        assert own is None or token in url_of[str(own[1])]
    one_row = short.batch(range(len(short)))
    assert fields_of_tokens(one_row) == [own for own in found if own is not None]
    for flat in (one_row, collate(rows, flatten=True)):
        assert len(flat["url"]) == 1
        assert fields_of_tokens(flat) == fields_of_tokens(one_row)


def test_a_blend_keeps_fields_in_their_rows_and_padding_has_none(kept) -> None:
    pytest.importorskip("torch", reason="needs torch")
    options: Any = {"shift": False, "columns": FIELDS, "document_ids": True}
    one, other = windows(kept, 32, **options), windows(kept, 32, **options)
    for batch in Loader([(one, 1), (other, 1)], 5, epochs=1, tail="pad"):
        for row in range(5):
            urls = [f"u{number}" for number in np.unique(batch["document_ids"][row]).tolist()]
            assert batch["url"][row] == ([] if batch["is_padding"][row] else urls)
        assert (batch["column_ids"][batch["is_padding"]] == -1).all()
        assert tensors(batch)["url"] == batch["url"].tolist()
    phase = Phase("9 samples", length=16, batch=3)
    found = list(Loader(one, phases=[phase], workers=2))
    assert len(found) == 3
    for batch in found:
        for row in range(3):
            numbers = np.unique(batch["document_ids"][row]).tolist()
            assert batch["url"][row] == [f"u{number}" for number in numbers]


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_data_loader_stacks_rows_with_fields(kept, n_workers: int) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs torch's DataLoader")
    source = windows(kept, 32, shift=True, columns=FIELDS)
    loader = torch.utils.data.DataLoader(
        source, batch_size=len(source), collate_fn=collate, num_workers=n_workers
    )
    (batch,) = loader
    expected = source.batch(range(len(source)))
    assert batch["url"] == expected["url"].tolist()
    assert batch["column_ids"].tolist() == expected["column_ids"].tolist()


def test_grain_stacks_rows_with_fields_by_collate_or_refuses_them(kept) -> None:
    grain: Any = pytest.importorskip("grain", reason="needs grain")
    pytest.importorskip("torch", reason="needs torch")
    source = windows(kept, 32, shift=True, columns=FIELDS)
    rows = grain.MapDataset.source(source).seed(1).shuffle()
    batch = rows.batch(len(source), batch_fn=collate)[0]
    expected = source.batch(range(len(source)))
    assert sorted(batch["url"]) == sorted(expected["url"].tolist())
    with pytest.raises(ValueError, match=r"must have the same shape|same structure"):
        rows.batch(len(source))[0]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (["text"], r"fields that the dataset keeps \(url, language\), found 'text'; keep=text"),
        ("url", r'columns: expected a list of names, such as \["url"\], found \'url\''),
        ([3], "columns: expected a list of names"),
    ],
)
def test_columns_that_cannot_be_are_refused(kept, columns: Any, reason: str) -> None:
    for make in (packs, windows):
        with pytest.raises(UsageError, match=reason):
            make(kept, shift=True, columns=columns)


def test_rows_of_a_blend_have_the_same_fields(kept) -> None:
    sources = [windows(kept, 8, shift=True, columns=columns) for columns in (["url"], FIELDS)]
    with pytest.raises(UsageError, match=r"column_ids language url, but .* column_ids url in"):
        Loader([(source, 1) for source in sources], 1)


def test_fields_that_were_not_kept_or_have_the_name_of_an_array_are_refused(
    pretrained, tmp_path, tokenizer_dir
) -> None:
    with pytest.raises(UsageError, match=r"keeps \(none\), found 'url'; keep=url keeps it when"):
        windows(pretrained, 8, shift=True, columns=["url"])
    (tmp_path / "a.jsonl").write_text('{"text": "one two three", "labels": "x"}\n')
    made = tokmill.pretrain(
        tmp_path / "a.jsonl",
        tokenizer=tokenizer_dir,
        output=tmp_path / "out",
        keep=["labels"],
        **QUIET,
    )
    with pytest.raises(UsageError, match="columns: 'labels' is the name of an array of rows"):
        windows(made, 2, shift=True, columns=["labels"])
