"""What is left out of records, and what length rules drop, is counted and said."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tokmill.dataset.counts import Counts
from tokmill.dataset.manifest import Manifest, SourceEntry
from tokmill.errors import RecordError
from tokmill.inspect.summary import detail_rows, summary_rows
from tokmill.recipes.left_out import check_fields
from tokmill.run.finish import run
from tokmill.settings.schema import RenderSettings

BODY = "they hunt by night and sleep by day " * 9
PLAIN = {"text": BODY, "url": "https://a.b/c"}
MIXED = {"text": "a short abstract of it", "url": "https://a.b/c", "content": BODY}


@pytest.fixture
def made(configure, silent, tmp_path):
    """Run over files of rows, and return the manifest."""

    def make(*sources, name="out", **settings):
        paths = []
        for i, rows in enumerate(sources):
            path = tmp_path / f"{i}.jsonl"
            if not path.exists():  # as it was, for a run that goes on
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            paths.append(path)
        return run(configure(tmp_path / name, *paths, **settings), silent).plain

    return make


def by_source(manifest):
    return [source.get("fields") for source in manifest["sources"]]


def test_the_bytes_of_fields_are_kept_by_source(made):
    manifest = made([PLAIN] * 3, [{**PLAIN, "title": "cats at night"}] * 2)
    assert by_source(manifest) == [
        {"text": 3 * len(BODY), "url": 0},
        {"text": 2 * len(BODY), "title": 26, "url": 0},
    ]
    assert manifest["totals"]["fields"] == {"text": 5 * len(BODY), "title": 26, "url": 0}
    assert manifest["fields_read"] == ["text"]


def test_every_1000th_record_and_the_head_of_a_slice_are_weighed(made):
    rows = [{"text": f"{i:04d} " + "word " * 200} for i in range(2500)]
    (fields,) = by_source(made(rows))
    n_bytes = len(json.dumps(rows[0])) + 1
    n_head, n_near = (-(-size // n_bytes) for size in (64 << 10, 1 << 20))
    numbers = {*range(1, n_head + 1), *range(8, n_near + 1, 8), 1000, 2000}
    assert fields == {"text": len(numbers) * len(rows[0]["text"])}


def test_blocks_change_no_weighed_record_and_parts_only_by_their_slices(made):
    rows = [{"text": f"{i:04d} " + "word " * 9, "id": str(i)} for i in range(3000)]
    whole = made(rows, name="whole")
    small = made(rows, name="small", threads=3, block_bytes=20_000, shard_tokens=5000)
    assert by_source(small) == by_source(whole)


def test_records_that_became_no_document_are_not_weighed(made):
    manifest = made([PLAIN, {"text": "", "content": "a few words"}, PLAIN])
    assert manifest["totals"]["drops"] == {"empty": 1}
    assert by_source(manifest) == [{"text": 2 * len(BODY), "url": 0}]


def test_a_source_that_loses_most_of_its_text_is_an_error_of_the_run(made):
    with pytest.raises(RecordError) as caught:
        made([PLAIN] * 3, [PLAIN] * 100 + [MIXED] * 1500)
    message = str(caught.value)
    assert "1.jsonl: most of the text is left out: used are text" in message
    assert message.endswith("to accept it run again with --renderer=text --fields=text=text")


def test_named_fields_may_leave_out_most_of_the_text(made):
    files = [PLAIN] * 3, [PLAIN] * 100 + [MIXED] * 1500
    with pytest.raises(RecordError):
        made(*files)
    manifest = made(*files, renderer="text")  # goes on where the other ended
    assert manifest["run"]["resumed_parts"] == 1
    assert by_source(manifest)[1]["content"] > by_source(manifest)[1]["text"]


def test_one_weighed_source_in_a_hundred_may_lose_its_text():
    fields = [Counter(text=9, body=0) for _ in range(100)]
    rows = [SourceEntry(str(i), Counts(fields=of_file)) for i, of_file in enumerate(fields)]
    rows.append(SourceEntry("not weighed", Counts()))
    fields[5]["body"] = 90
    check_fields(RenderSettings(), 0.01, rows, {"text"})
    fields[6]["body"] = 90
    with pytest.raises(RecordError, match="2 files, as 5: most of the text is left out"):
        check_fields(RenderSettings(renderer="encyclopedia"), 0.01, rows, {"text"})


def test_tables_and_csv_are_weighed_by_all_their_columns(made, configure, silent, tmp_path):
    table = pa.table(
        {"text": [BODY] * 3, "id": [1, 2, 3], "title": [f"cats at night {i}" for i in range(3)]}
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "b.arrow", table.schema) as writer:
        writer.write_table(table)
    lines = [f'"{BODY}",{i},cats at night {i}' for i in range(3)]
    (tmp_path / "c.csv").write_text("text,id,title\n" + "\n".join(lines))
    paths = [tmp_path / name for name in ("a.parquet", "b.arrow", "c.csv")]
    manifest = run(configure(tmp_path / "tables", *paths), silent).plain
    assert by_source(manifest) == [{"text": 3 * len(BODY), "id": 0, "title": 45}] * 3


def test_sections_that_are_read_count_apart_from_other_keys(made):
    section = {"title": "habits", "content": BODY, "image": "a picture of it"}
    record = {"title": "cats", "sections": [section, section]}
    (fields,) = by_source(made([record]))
    assert fields == {
        "title": 4,
        "summary": 0,
        "sections[].title": 12,
        "sections[].content": 2 * len(BODY),
        "sections[].image": 30,
    }


@pytest.fixture
def chats(write_rows, tmp_path):
    """The path of ten short chats and one long one."""
    texts = ["one two", *["yes"] * 10]
    rows = [{"messages": [{"role": "user", "content": "a"},
                          {"role": "assistant", "content": text * 40 if i == 0 else text}]}
            for i, text in enumerate(texts)]  # fmt: skip
    return write_rows(tmp_path / "in.jsonl", rows)


@pytest.fixture
def totals_of(chats, tokenizer_dir, tmp_path):
    """Return a function that makes a dataset of the chats, and returns its totals."""

    def make(**settings) -> dict:
        name = "-".join(map(str, settings.values())) or "all"
        return tokmill.sft(
            chats, tokenizer=tokenizer_dir, template="plain", output=tmp_path / name,
            progress=False, **settings,
        ).manifest["totals"]  # fmt: skip

    return make


@pytest.mark.parametrize("rule", ["drop", "truncate-left", "truncate-right", "drop-turns"])
def test_kept_and_lost_tokens_are_all_tokens(totals_of, rule) -> None:
    everything, found = totals_of()["tokens"], totals_of(max_tokens=40, too_long=rule)
    reason = "cut samples" if rule.startswith("truncate") else "more than max_tokens"
    assert list(found["lost_tokens"]) == [reason]
    assert found["tokens"] + found["lost_tokens"][reason] == everything
    assert found["lost_tokens"][reason] > everything / 2


def test_windows_lose_nothing_but_those_that_are_too_short(totals_of) -> None:
    everything = totals_of()["tokens"]
    assert "lost_tokens" not in totals_of(max_tokens=40, too_long="window")
    found = totals_of(max_tokens=40, too_long="window", min_tokens=40)
    lost = found["lost_tokens"]
    assert list(lost) == ["fewer than min_tokens"]
    repeated = found["documents"] + found["drops"]["fewer than min_tokens"] - 11
    assert found["tokens"] + lost["fewer than min_tokens"] == everything + repeated


def test_the_summary_says_it_where_the_samples_stand(
    totals_of, tokenizer_dir, chats, tmp_path
) -> None:
    totals_of(max_tokens=40)
    manifest = tokmill.open(tmp_path / "40").manifest
    totals, read = manifest["totals"], Manifest.of(manifest, "")
    n_lost = totals["lost_tokens"]["more than max_tokens"]
    share = n_lost / (totals["tokens"] + n_lost)
    text = f"1 more than max_tokens ({n_lost:,} tokens, {share:.1%} of all)"
    assert dict(summary_rows(read, "d", 0))["drops"] == text
    assert dict(detail_rows(read, "d"))["drops"] == text
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
