from __future__ import annotations

from tokmill.recipes.table import make_recipe
from tokmill.run.forecast.encoded_sample import encode_sample
from tokmill.run.prepare import prepare, sample


def test_a_sample_is_what_the_run_makes_of_it_window_by_window(
    tmp_path, configure, plan_of, write_rows
):
    first = write_rows(tmp_path / "a.jsonl", [{"text": "a" * 9}, {"text": "b"}, b"{bad"])
    second = write_rows(tmp_path / "b.jsonl", [{"text": "猫 is a cat"}])
    config = configure(tmp_path / "out", first, second, min_tokens=2)
    found = sample(prepare(config), 1 << 20, keep_blocks=True)
    assert found.is_whole
    sampled = encode_sample(make_recipe(plan_of(config).spec), found.blocks, len(found.window_read))
    assert sampled.records.tolist() == [3, 1]
    assert sampled.documents.tolist() == [1, 1]
    assert sampled.text_bytes.tolist() == [9, 12]
    assert sampled.tokens.tolist() == sampled.lengths.tolist()
    assert (sampled.drops.total(), sampled.rejects.total()) == (1, 1)
    assert not sampled.is_val.any()


def test_blocks_are_kept_only_when_they_are_asked_for(tmp_path, configure, write_rows):
    config = configure(tmp_path / "out", write_rows(tmp_path / "a.jsonl", [{"text": "a"}]))
    assert sample(prepare(config), 1 << 20).blocks == []
