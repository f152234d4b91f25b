from __future__ import annotations

import dataclasses
import itertools
import json

import pytest

from tokmill.dataset.plan_file import PlanFile
from tokmill.errors import StateError
from tokmill.place import open_place
from tokmill.run.plan import Plan, check_same, cut_into_parts, read_plan, resolve
from tokmill.settings.schema import Config, OutputSettings
from tokmill.settings.sft import SftSettings
from tokmill.sources.files import SourceFile


def file(path: str, n_bytes: int, data_format: str = "jsonl", compression: str = "") -> SourceFile:
    return SourceFile(path, data_format, compression, n_bytes, 7, "")


def described(parts) -> list[list[tuple[str, int, int, int]]]:
    return [[(s.file.path, s.start, s.stop, s.n_bytes) for s in part.slices] for part in parts]


def test_a_large_file_is_cut_and_small_ones_share_a_part_in_order():
    files = [file("a", 40), file("b", 50), file("c", 250), file("d", 10), file("e", 0)]
    parts = cut_into_parts([files], 100)
    assert described(parts) == [
        [("a", 0, -1, 40), ("b", 0, -1, 50)],
        [("c", 0, 83, 83)],
        [("c", 83, 166, 83)],
        [("c", 166, 250, 84), ("d", 0, -1, 10), ("e", 0, -1, 0)],
    ]
    assert [part.index for part in parts] == [0, 1, 2, 3]


def test_a_part_has_at_most_so_many_slices(monkeypatch):
    monkeypatch.setattr("tokmill.run.plan.MAX_SLICES", 2)
    parts = cut_into_parts([[file(name, 1) for name in "abcde"]], 100)
    assert described(parts) == [
        [("a", 0, -1, 1), ("b", 0, -1, 1)],
        [("c", 0, -1, 1), ("d", 0, -1, 1)],
        [("e", 0, -1, 1)],
    ]


@pytest.mark.parametrize("part_bytes", [1, 9, 10, 11, 1 << 30])
def test_parts_cover_every_byte_once(part_bytes):
    files = [file("a", 30), file("b", 7), file("c", 10)]
    slices = [s for part in cut_into_parts([files], part_bytes) for s in part.slices]
    assert sum(s.n_bytes for s in slices) == 47
    by_path: dict[str, list[tuple[int, int]]] = {}
    for piece in slices:
        end = piece.file.n_bytes if piece.is_whole else piece.stop
        by_path.setdefault(piece.file.path, []).append((piece.start, end))
    assert list(by_path) == ["a", "b", "c"]
    for ranges, n_bytes in zip(by_path.values(), (30, 7, 10), strict=True):
        bounds = [0, *(stop for _, stop in ranges)]
        assert ranges == list(itertools.pairwise(bounds))
        assert bounds[-1] == n_bytes


@pytest.mark.parametrize(
    ("max_id", "dtype", "expected", "shard_tokens"),
    [
        (65_535, "auto", "uint16", 1 << 29),
        (65_536, "auto", "uint32", 1 << 28),
        (10, "uint32", "uint32", 1 << 28),
    ],
)
def test_the_dtype_and_the_shard_size_are_resolved(
    tokenizer, max_id, dtype, expected, shard_tokens
):
    config = dataclasses.replace(Config(), output=OutputSettings(dtype=dtype))
    large = dataclasses.replace(tokenizer, max_emittable_id=max_id)
    resolved = resolve(config, large, 0)
    assert resolved.output.dtype == expected
    assert resolved.output.shard_tokens == shard_tokens


@pytest.mark.parametrize(
    ("sft", "n_bytes", "part_bytes"),
    [
        (None, 10, 256 << 20),
        (SftSettings(), 10, 64 << 20),
        (None, 4 << 40, (4 << 40) // 4000 + 1),
    ],
)
def test_parts_are_small_and_at_most_four_thousand(tokenizer, sft, n_bytes, part_bytes):
    config = dataclasses.replace(Config(), sft=sft)
    assert resolve(config, tokenizer, n_bytes).output.part_bytes == part_bytes


@pytest.fixture
def plan(tmp_path, configure, plan_of, write_rows) -> Plan:
    """A plan of four parts over two files."""
    rows = [{"text": f"hello {i}"} for i in range(9)]
    paths = [write_rows(tmp_path / name, rows) for name in ("a.jsonl", "b.jsonl")]
    return plan_of(configure(tmp_path / "out", *paths, part_bytes=100))


def test_a_file_given_twice_is_named_once(tmp_path, configure, plan_of, write_rows):
    path = write_rows(tmp_path / "a.jsonl", [{"text": "x"}])
    twice = plan_of(configure(tmp_path / "out", path, path))
    data = json.loads(b"".join(twice.chunks()))
    assert len(data["files"]) == 1
    assert data["parts"] == [[[0, 0, -1, 14], [0, 0, -1, 14]]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:-3], "Expecting ',' delimiter"),
        (lambda data: data[:20], "Unterminated string"),
        (lambda data: data.replace(b'"eos_id":0', b'"eos_id":1'), "its fingerprint does not match"),
        (lambda data: b" " + data.replace(b'"eos_id":0', b'"eos_id":1'), "its fingerprint does"),
    ],
)
def test_a_damaged_plan_is_an_error_that_names_the_damage(tmp_path, plan, change, problem):
    (tmp_path / "plan.json").write_bytes(change(b"".join(plan.chunks())))
    expected = rf"plan\.json: damaged \({problem}.*\): run with --overwrite to start again"
    with pytest.raises(StateError, match=expected):
        read_plan(open_place(str(tmp_path)))


def test_a_plan_of_a_newer_format_names_both_versions(tmp_path):
    (tmp_path / "plan.json").write_text('{"format": "tokmill plan", "format_version": 2}')
    with pytest.raises(StateError, match=r"format version 2 is newer than version 1"):
        read_plan(open_place(str(tmp_path)))


def test_many_changes_are_named_up_to_three(plan, tmp_path):
    found = json.loads(b"".join(plan.chunks()))
    found["settings"]["limits"]["min_tokens"] = 5
    found["settings"]["output"]["val_fraction"] = 0.5
    found["eos_id"] = 77
    found["bos_id"] = 78
    with pytest.raises(StateError) as caught:
        check_same(PlanFile.of(found), plan, open_place(str(tmp_path)))
    message = str(caught.value)
    assert ("--min-tokens was 5, is 0; --val-fraction was 0.5, is 0.0; ") in message
    assert "the id of eos was 77, is 0 and 1 more: choose" in message


def test_parts_that_differ_alone_are_named(plan, tmp_path):
    found = json.loads(b"".join(plan.chunks()))
    found["parts"][0][0][2] += 1
    with pytest.raises(StateError, match="settings: the parts differ: choose"):
        check_same(PlanFile.of(found), plan, open_place(str(tmp_path)))


def test_settings_that_change_no_byte_are_not_in_the_plan(plan, tmp_path):
    found = json.loads(b"".join(plan.chunks()))
    assert "run" not in found["settings"]
    config = plan.spec.config
    other = dataclasses.replace(
        config,
        run=dataclasses.replace(config.run, workers=9, threads=9, block_bytes=1),
        limits=dataclasses.replace(config.limits, on_error="fail", max_reject_fraction=1.0),
        output=dataclasses.replace(config.output, dir="elsewhere"),
    )
    spec = dataclasses.replace(plan.spec, config=other)
    check_same(PlanFile.of(found), dataclasses.replace(plan, spec=spec), open_place(str(tmp_path)))
