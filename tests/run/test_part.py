from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Library

from tokmill.dataset.sidecars import read_index
from tokmill.engines import spot_check
from tokmill.errors import ParityError
from tokmill.place import open_place
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.run.part import run_part
from tokmill.timing import StageTimer
from tokmill.values import TokenBatch

SAMPLES = Path(__file__).parents[2] / "data_samples"
EOS, BOS = 2, 1


def documents(directory: Path, dtype: str = "<u2", split: str = "*") -> list[list[int]]:
    """Read every document with NumPy, by the lengths in the index."""
    found = []
    for path in sorted(directory.glob(f"{split}-*.bin")):
        tokens = np.memmap(path, dtype, "r")
        lengths, offsets, item_bytes = read_index(path.with_suffix(".idx"))
        assert item_bytes == tokens.itemsize
        assert lengths[:].sum() == len(tokens)
        starts = offsets[:] // item_bytes
        found += [
            tokens[start : start + n].tolist() for start, n in zip(starts, lengths[:], strict=True)
        ]
    return found


def render(record: dict) -> str:
    """The encyclopedia rule once more, in plain Python."""
    text = f"{record.get('title') or ''}:{record.get('summary') or ''}"
    for section in record.get("sections") or []:
        text += f"{section.get('title') or ''}:{section.get('content') or ''}。"
    return text


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    """The ids of every sample record, by the tokenizers library alone."""
    library = Library.from_file(str(SAMPLES / "tokenizer" / "tokenizer.json"))
    library.encode_special_tokens = True
    lines = (SAMPLES / "records.jsonl").read_bytes().rstrip(b"\n").split(b"\n")
    texts = [render(json.loads(line)) for line in lines]
    encoded = library.encode_batch(texts, add_special_tokens=False)
    return [encoding.ids for encoding in encoded]


@pytest.mark.parametrize("engine", ["reference", "gigatoken", "fastokens"])
def test_every_document_has_the_ids_of_the_library_and_eos(
    tmp_path, configure, plan_of, run_alone, expected, engine
):
    config = configure(
        tmp_path, SAMPLES / "records.jsonl", path=str(SAMPLES / "tokenizer"), engine=engine
    )
    run_alone(plan_of(config))
    assert documents(tmp_path) == [[*ids, EOS] for ids in expected]


def test_with_a_bos_and_wide_ids_documents_are_bos_ids_eos(
    tmp_path, configure, plan_of, run_alone, expected
):
    config = configure(
        tmp_path,
        SAMPLES / "records.jsonl",
        path=str(SAMPLES / "tokenizer"),
        bos_token="<bos>",
        dtype="uint32",
    )
    run_alone(plan_of(config))
    assert documents(tmp_path, "<u4") == [[BOS, *ids, EOS] for ids in expected]


def test_validation_and_training_hold_every_document_once_and_drops_are_short(
    tmp_path, configure, plan_of, run_alone, expected
):
    config = configure(
        tmp_path,
        SAMPLES / "records.jsonl",
        path=str(SAMPLES / "tokenizer"),
        val_fraction=0.2,
        min_tokens=20,
        max_tokens=2000,
    )
    counts = run_alone(plan_of(config)).record.total()
    train, val = documents(tmp_path, split="train"), documents(tmp_path, split="val")
    kept = [[*ids, EOS] for ids in expected if 20 <= len(ids) <= 2000]
    assert sorted(train + val) == sorted(kept)
    # In each split the order of the input holds.
    assert train == [document for document in kept if document in train]
    assert val == [document for document in kept if document in val]
    assert 0.1 < len(val) / len(kept) < 0.3
    assert counts.drops == {
        "fewer than min_tokens": sum(len(ids) < 20 for ids in expected),
        "more than max_tokens": sum(len(ids) > 2000 for ids in expected),
    }


def test_equal_documents_land_in_the_same_split(
    tmp_path, configure, plan_of, run_alone, write_rows
):
    rows = [{"text": f"text {i % 40}"} for i in range(400)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out"
    run_alone(plan_of(configure(out, source, val_fraction=0.3)))
    train = Counter(map(tuple, documents(out, split="train")))
    val = Counter(map(tuple, documents(out, split="val")))
    assert val
    assert not set(train) & set(val)
    assert set((train + val).values()) == {10}


def test_progress_adds_up_to_the_record(tmp_path, configure, plan_of, run_alone, write_rows):
    rows = [{"text": "hello " * i} for i in range(1, 20)]
    source = write_rows(tmp_path / "in.jsonl", [*rows, b"{bad", b"", {"text": ""}])
    config = configure(tmp_path / "out", source, block_bytes=60, min_tokens=4, shard_tokens=50)
    done = run_alone(plan_of(config))
    counts = done.record.total()
    assert len(done.heard) > 3
    for name in ("records", "documents", "tokens", "text_bytes", "input_bytes"):
        assert sum(getattr(progress, name) for progress in done.heard) == getattr(counts, name)
    assert sum((Counter(p.drops) for p in done.heard), Counter()) == counts.drops
    assert sum((Counter(p.rejects) for p in done.heard), Counter()) == counts.rejects
    assert counts.records == 21
    assert counts.rejects == {"not an object": 1}
    assert counts.drops["empty"] == 1
    assert counts.input_bytes == source.stat().st_size


class Lying:
    """An engine that is right but for the last id of every document."""

    name = "lying"
    renewable = False

    def __init__(self, honest) -> None:
        self._honest = honest

    def encode(self, text: pa.LargeStringArray, laps: StageTimer) -> TokenBatch:
        batch = self._honest.encode(text, laps)
        ids = batch.ids.copy()
        ids[batch.offsets[1:] - 1] ^= 1
        return TokenBatch(ids, batch.offsets)


def test_an_engine_with_wrong_ids_stops_the_part_and_nothing_is_committed(
    tmp_path, configure, plan_of, write_rows, monkeypatch
):
    monkeypatch.setattr(spot_check, "_SHARE_OF_FAST", 0.02)
    source = write_rows(tmp_path / "in.jsonl", [{"text": f"document {i}"} for i in range(3000)])
    plan = plan_of(configure(tmp_path / "out", source, engine="fastokens"))
    recipe = PretrainRecipe(plan.spec)
    recipe.engine = Lying(recipe.engine)
    with pytest.raises(ParityError) as caught:
        run_part(
            plan.spec,
            plan.parts[0],
            open_place(str(tmp_path / "out")),
            recipe,
            lambda progress: None,
        )
    message = str(caught.value)
    assert message.startswith(f"{source}: record ")
    assert "the text that begins 'document " in message
    assert sorted(path.name for path in (tmp_path / "out").rglob("*")) == ["parts", "rejects"]


def test_an_exact_fast_engine_is_checked_and_the_record_counts_it_for_any_block_size(
    tmp_path, configure, plan_of, run_alone, write_rows, monkeypatch
):
    monkeypatch.setattr(spot_check, "_SHARE_OF_FAST", 0.25)
    rows = [{"text": f"document {i} " * (20_000 if i % 99 == 7 else 1)} for i in range(300)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    records = []
    for name, settings in {"a": {"block_bytes": 4096}, "b": {"threads": 3}}.items():
        config = configure(tmp_path / name, source, engine="fastokens", min_tokens=9, **settings)
        records.append(run_alone(plan_of(config)).record)
    assert records[0].as_bytes() == records[1].as_bytes()
    counts = records[0].total()
    assert 30 < counts.checks["checked"] < 120
    assert 0.1 < counts.checks["checked_bytes"] / counts.text_bytes < 0.5
    assert counts.checks.keys() == {"checked", "checked_bytes"}
