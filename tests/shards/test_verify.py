from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokmill.config_values import build_config
from tokmill.executors.run import run
from tokmill.shards.canonical import manifest_sha256
from tokmill.shards.reader import read_manifest
from tokmill.shards.verify import Findings, verify

FIRST = "train-0000000-0000"


def check(directory: Path, manifest: dict[str, Any]) -> Findings:
    return verify(directory, manifest)


def problems(directory: Path, manifest: dict[str, Any]) -> list[str]:
    return check(directory, manifest).problems


def summed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Give a manifest its right own sum, as a forger would."""
    return {**manifest, "sha256": manifest_sha256(manifest)}


def put(position: int, *values: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes(values) + data[position + len(values) :]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_sound_dataset_has_no_problem_and_is_counted(make_dataset, dtype):
    directory, manifest = make_dataset(dtype=dtype)
    found = check(directory, manifest)
    assert found == Findings(
        n_files=7,
        n_bytes=sum(path.stat().st_size for path in directory.iterdir())
        - (directory / "manifest.json").stat().st_size,
        n_shards=3,
        n_documents=5,
        n_tokens=17,
    )


@pytest.mark.parametrize("sums", [{}, {"blake3": "00", "sha256": "00"}])
def test_a_file_without_one_known_sum_is_found(make_dataset, sums):
    directory, manifest = make_dataset()
    entry = next(e for e in manifest["files"] if e["name"] == "plan.json")
    del entry["blake3"]
    entry |= sums
    assert problems(directory, summed(manifest)) == [
        f"manifest.json: plan.json: expected one sum, blake3 or sha256, found {len(sums)}"
    ]


def test_the_lock_file_is_no_problem(make_dataset):
    directory, manifest = make_dataset()
    (directory / ".lock").write_bytes(b"")
    assert problems(directory, manifest) == []


def test_a_changed_byte_is_found(make_dataset, rewrite):
    directory, manifest = make_dataset()
    rewrite(directory, manifest, f"{FIRST}.bin", put(2, 9))
    assert problems(directory, manifest) == [f"{FIRST}.bin: its bytes have changed (blake3)"]


def test_a_changed_plan_is_found(make_dataset, rewrite):
    directory, manifest = make_dataset()
    rewrite(directory, manifest, "plan.json", lambda data: b"[]\n")
    assert problems(directory, manifest) == ["plan.json: its bytes have changed (blake3)"]


def test_a_truncated_shard_is_found(make_dataset, rewrite):
    directory, manifest = make_dataset()
    rewrite(directory, manifest, f"{FIRST}.bin", lambda data: data[:-2])
    assert problems(directory, manifest) == [
        f"{FIRST}.bin: 12 bytes, the manifest says 14",
        f"{FIRST}: 2 documents and 6 tokens, the manifest says 2 and 7",
        f"{FIRST}.idx: its lengths do not add up to the 6 tokens",
        "manifest.json: says 17 tokens, the shards hold 16",
        "manifest.json: its sources sum to 17 tokens, not 16",
    ]


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b""])
def test_a_shard_that_cannot_be_mapped_is_found(make_dataset, change, rewrite):
    directory, manifest = make_dataset()
    rewrite(directory, manifest, f"{FIRST}.bin", change)
    found = problems(directory, manifest)
    assert found[0].startswith(f"{FIRST}.bin: ")
    assert found[1].startswith(f"{directory / FIRST}.bin: ")


@pytest.mark.parametrize("name", [f"{FIRST}.bin", f"{FIRST}.idx", "plan.json"])
def test_a_missing_file_is_found(make_dataset, name):
    directory, manifest = make_dataset()
    (directory / name).unlink()
    assert f"{name}: missing" in problems(directory, manifest)


@pytest.mark.parametrize("name", ["train-0000009-0000.bin", "rejects/notes", ".a.1-2.tmp"])
def test_an_extra_file_is_found(make_dataset, name):
    directory, manifest = make_dataset()
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"")
    assert problems(directory, manifest) == [f"{name}: not listed in the manifest"]


def test_a_changed_manifest_is_found_by_its_own_sum(make_dataset):
    directory, manifest = make_dataset()
    changed = {**manifest, "note": "added later"}
    assert problems(directory, changed) == [
        "manifest.json: its own sha256 does not match: it was changed"
    ]
    assert problems(directory, summed(changed)) == []


def test_a_manifest_without_its_own_sum_is_found(make_dataset):
    directory, manifest = make_dataset()
    del manifest["sha256"]
    assert problems(directory, manifest) == [
        "manifest.json: its own sha256 does not match: it was changed"
    ]


def without_sums(found: list[str]) -> list[str]:
    return [problem for problem in found if "own sha256" not in problem]


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            ["totals", "documents"],
            4,
            [
                "manifest.json: says 4 documents, the shards hold 5",
                "manifest.json: documents + drops + rejects = 7, but 8 records",
            ],
        ),
        (["totals", "tokens"], 18, ["manifest.json: says 18 tokens, the shards hold 17"]),
        (
            ["totals", "records"],
            9,
            ["manifest.json: documents + drops + rejects = 8, but 9 records"],
        ),
        (
            ["totals", "rejects"],
            {},
            ["manifest.json: documents + drops + rejects = 7, but 8 records"],
        ),
        (["sources", 0, "tokens"], 1, ["manifest.json: its sources sum to 1 tokens, not 17"]),
        (["sources", 0, "documents"], 6, ["manifest.json: its sources sum to 6 documents, not 5"]),
        (
            ["length_histogram", 0],
            1,
            ["manifest.json: its length histogram does not count every document"],
        ),
        (
            ["shards", 0, "documents"],
            3,
            [f"{FIRST}: 2 documents and 7 tokens, the manifest says 3 and 7"],
        ),
        (
            ["shards", 0, "tokens"],
            8,
            [f"{FIRST}: 2 documents and 7 tokens, the manifest says 2 and 8"],
        ),
        (["files", 0, "bytes"], 4, ["plan.json: 3 bytes, the manifest says 4"]),
        (
            ["tokenizer", "vocab_size"],
            13,
            ["train-0000000-0001: id 13 is outside the vocabulary of 13"],
        ),
    ],
)
def test_a_wrong_count_in_the_manifest_is_found(make_dataset, path, value, expected, recomputed):
    directory, manifest = make_dataset()
    at: Any = manifest
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    found = problems(directory, summed(manifest) if recomputed else manifest)
    assert without_sums(found) == expected
    assert len(found) == len(expected) + (not recomputed)


def test_a_document_without_eos_is_found_even_if_the_sums_fit(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", put(12, 9))
    assert problems(directory, forged) == [f"{FIRST}: document 1 does not end in eos 2 (1 such)"]


def test_a_document_without_bos_is_found_even_if_the_sums_fit(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", put(8, 9))
    assert problems(directory, forged) == [f"{FIRST}: document 1 does not begin with bos"]


def test_no_bos_is_looked_for_where_the_tokenizer_puts_none(make_dataset):
    directory, manifest = make_dataset({FIRST: [[7, 2]]})
    manifest["tokenizer"]["bos"] = None
    assert problems(directory, summed(manifest)) == []


def test_an_id_outside_the_vocabulary_is_found_even_if_the_sums_fit(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", put(2, 100))
    assert problems(directory, forged) == [f"{FIRST}: id 100 is outside the vocabulary of 100"]


@pytest.mark.parametrize(
    ("position", "value", "expected"),
    [
        (34, 5, [f"{FIRST}.idx: its lengths do not add up to the 7 tokens"]),
        (50, 6, [f"{FIRST}.idx: its byte offsets are not those of its lengths"]),
    ],
)
def test_an_index_that_does_not_fit_its_shard_is_found(
    make_dataset, position, value, expected, rewrite
):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.idx", put(position, value))
    assert problems(directory, forged) == expected


def test_lengths_that_cancel_out_are_found(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.idx", put(34, 7, 0, 0, 0, 0, 0, 0, 0))
    assert problems(directory, forged) == [
        f"{FIRST}.idx: its lengths do not add up to the 7 tokens"
    ]


def test_a_broken_index_is_found_even_if_the_sums_fit(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.idx", put(0, 0))
    assert problems(directory, forged)[0] == f"{directory / FIRST}.idx: not an MMIDIDX index"


@pytest.mark.parametrize("lost", ["files", "shards", "totals", "tokenizer", "dtype", "sources"])
def test_a_manifest_that_lacks_a_part_is_found_and_not_a_crash(make_dataset, lost):
    directory, manifest = make_dataset()
    del manifest[lost]
    assert "manifest.json: its own sha256 does not match: it was changed" in problems(
        directory, manifest
    )


def test_a_part_that_is_lost_with_a_sum_that_fits_is_no_finding_but_an_error(make_dataset):
    directory, manifest = make_dataset()
    del manifest["totals"]
    with pytest.raises(KeyError, match="totals"):
        verify(directory, summed(manifest))


@pytest.mark.parametrize("output", [{}, {"val_fraction": 0.5}, {"shard_tokens": 8}])
def test_what_a_run_makes_has_no_problem(tmp_path: Path, tokenizer_dir: Path, silent, output):
    lines = [json.dumps({"text": f"hello {i}"}) for i in range(20)]
    (tmp_path / "corpus.jsonl").write_text("\n".join([*lines[:10], "[1]", *lines[10:]]))
    config = build_config(
        {
            "input": {"paths": [str(tmp_path / "corpus.jsonl")]},
            "tokenizer": {"path": str(tokenizer_dir), "bos_token": "<bos>"},
            "output": {"dir": str(tmp_path / "out"), **output},
            "run": {"engine": "tokenizers"},
        },
        where="test",
    )
    run(config, silent)
    found = check(tmp_path / "out", read_manifest(tmp_path / "out"))
    assert found.problems == []
    assert found.n_documents == 20
    assert (found.n_shards > 1) is bool(output)
