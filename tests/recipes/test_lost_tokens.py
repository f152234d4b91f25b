"""What length rules drop or cut off is counted in tokens too, beside samples."""

from __future__ import annotations

import pytest

import tokmill
from tokmill.page.summary import detail_rows, summary_rows


@pytest.fixture
def chats(write_rows, tmp_path):
    """The path of ten short chats and one long one."""
    texts = ["one two", *["yes"] * 10]
    rows = [{"messages": [{"role": "user", "content": "a"},
                          {"role": "assistant", "content": text * 40 if i == 0 else text}]}
            for i, text in enumerate(texts)]  # fmt: skip
    return write_rows(tmp_path / "in.jsonl", rows)


@pytest.fixture
def run(chats, tokenizer_dir, tmp_path):
    """Return a function that makes a dataset of the chats, and returns its totals."""

    def make(**settings) -> dict:
        name = "-".join(map(str, settings.values())) or "all"
        return tokmill.sft(
            chats, tokenizer=tokenizer_dir, template="plain", output=tmp_path / name,
            progress=False, **settings,
        ).manifest["totals"]  # fmt: skip

    return make


@pytest.mark.parametrize("rule", ["drop", "truncate-left", "truncate-right", "drop-turns"])
def test_kept_and_lost_tokens_are_all_tokens(run, rule) -> None:
    everything, found = run()["tokens"], run(max_tokens=40, too_long=rule)
    reason = "cut samples" if rule.startswith("truncate") else "more than max_tokens"
    assert list(found["lost_tokens"]) == [reason]
    assert found["tokens"] + found["lost_tokens"][reason] == everything
    assert found["lost_tokens"][reason] > everything / 2


def test_windows_lose_nothing_but_those_that_are_too_short(run) -> None:
    everything = run()["tokens"]
    assert "lost_tokens" not in run(max_tokens=40, too_long="window")
    found = run(max_tokens=40, too_long="window", min_tokens=40)
    lost = found["lost_tokens"]
    assert list(lost) == ["fewer than min_tokens"]
    repeated = found["documents"] + found["drops"]["fewer than min_tokens"] - 11
    assert found["tokens"] + lost["fewer than min_tokens"] == everything + repeated


def test_the_summary_says_it_where_the_samples_stand(run, tokenizer_dir, chats, tmp_path) -> None:
    run(max_tokens=40)
    manifest = tokmill.open(tmp_path / "40").manifest
    totals = manifest["totals"]
    n_lost = totals["lost_tokens"]["more than max_tokens"]
    share = n_lost / (totals["tokens"] + n_lost)
    text = f"1 more than max_tokens ({n_lost:,} tokens, {share:.1%} of all)"
    assert dict(summary_rows(manifest, "d", 0))["drops"] == text
    assert dict(detail_rows(manifest, "d"))["drops"] == text
    assert manifest["sources"][0]["lost_tokens"] == totals["lost_tokens"]


def test_documents_of_pretraining_too_and_by_file(write_rows, tokenizer_dir, tmp_path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(1, 60):  # small files are encoded together
        write_rows(tmp_path / "in" / f"{n:02}.jsonl", [{"text": "yes " * n}])
    made = {
        most: tokmill.pretrain(
            tmp_path / "in", tokenizer=tokenizer_dir, output=tmp_path / str(most),
            max_tokens=most, progress=False,
        ).manifest
        for most in (0, 50)
    }  # fmt: skip
    totals = [made[most]["totals"] for most in (0, 50)]
    n_eos = totals[0]["documents"] - totals[1]["documents"]
    (reason,) = totals[1]["lost_tokens"]
    lost = totals[1]["lost_tokens"][reason]
    assert totals[1]["tokens"] + lost + n_eos == totals[0]["tokens"]
    for whole, row in zip(made[0]["sources"], made[50]["sources"], strict=True):
        expected = {} if row["documents"] else {reason: whole["tokens"] - 1}
        assert row.get("lost_tokens", {}) == expected
