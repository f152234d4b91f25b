from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dataset.verifying import check, problems
from tokmill.dataset.checksum import manifest_sha256
from tokmill.dataset.reader import plain_manifest
from tokmill.dataset.verify import Verification, verify
from tokmill.errors import VerifyError
from tokmill.place import open_place
from tokmill.run.finish import run
from tokmill.settings.load import build_config

FIRST = "train-0000000-0000"


def summed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest its right own sum, as a forger would."""
    return {**manifest, "sha256": manifest_sha256(manifest)}


def put(position: int, *values: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:position] + bytes(values) + data[position + len(values) :]


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_a_sound_dataset_has_no_problem_and_is_counted(make_dataset, dtype):
    directory, manifest = make_dataset(dtype=dtype)
    found = check(directory, manifest)
    assert found == Verification(
        n_files=7,
        n_bytes=sum(path.stat().st_size for path in directory.iterdir())
        - (directory / "manifest.json").stat().st_size,
        n_shards=3,
        n_documents=5,
        n_tokens=17,
    )


@pytest.mark.parametrize("sums", [{}, {"blake3": "0" * 64, "sha256": "0" * 64}])
def test_a_file_without_one_known_sum_is_found(make_dataset, sums):
    directory, manifest = make_dataset()
    entry = next(e for e in manifest["files"] if e["name"] == "plan.json")
    del entry["blake3"]
    entry |= sums
    assert problems(directory, summed(manifest)) == [
        "manifest.json: cannot be checked further: files[0]: plan.json: expected one sum, "
        f"blake3 or sha256, found {len(sums)}"
    ]


def test_a_changed_byte_is_found(make_dataset, rewrite):
    directory, manifest = make_dataset()
    rewrite(directory, manifest, f"{FIRST}.bin", put(2, 9))
    assert problems(directory, manifest) == [f"{FIRST}.bin: its bytes have changed (blake3)"]


@pytest.mark.parametrize("name", [f"{FIRST}.bin", f"{FIRST}.idx", "plan.json"])
def test_a_missing_file_is_found(make_dataset, name):
    directory, manifest = make_dataset()
    (directory / name).unlink()
    assert problems(directory, manifest) == [f"{name}: missing"]


@pytest.mark.parametrize("name", ["train-0000009-0000.bin", "rejects/notes", "notes.txt"])
def test_an_extra_file_is_found(make_dataset, name):
    directory, manifest = make_dataset()
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"")
    assert problems(directory, manifest) == [f"{name}: not listed in the manifest"]


def test_an_extra_directory_a_link_and_a_pipe_are_found_and_not_opened(make_dataset):
    directory, manifest = make_dataset()
    (directory / "backup").mkdir()
    (directory / "backup" / "inside").touch()
    (directory / "link").symlink_to("/etc/passwd")
    os.mkfifo(directory / "pipe")
    assert problems(directory, manifest) == [
        "backup: a link or a directory, not a file of the dataset",
        "link: a link or a directory, not a file of the dataset",
        "pipe: a link or a directory, not a file of the dataset",
    ]


def test_names_that_begin_with_a_dot_are_noted_and_not_opened(make_dataset):
    directory, manifest = make_dataset()
    (directory / "parts").mkdir()
    for name in (".DS_Store", ".a.1-2.tmp", "parts/.0000000.checkpoint"):
        (directory / name).write_bytes(b"")
    (directory / ".link").symlink_to("/etc/passwd")
    (directory / ".git").mkdir()
    (directory / ".git" / "index").touch()
    found = check(directory, manifest)
    assert found.problems == ()
    assert sorted(found.notes) == [
        ".DS_Store", ".a.1-2.tmp", ".git", ".link", "parts/.0000000.checkpoint"
    ]  # fmt: skip


@pytest.mark.parametrize("name", [f"{FIRST}.bin", f"{FIRST}.idx", "plan.json"])
def test_a_link_in_place_of_a_file_is_not_followed(make_dataset, tmp_path, name):
    directory, manifest = make_dataset()
    (directory / name).rename(tmp_path / "elsewhere")
    (directory / name).symlink_to(tmp_path / "elsewhere")
    expected = f"{name}: a link or a directory, not a file of the dataset"
    assert problems(directory, manifest) == [expected]


@pytest.mark.parametrize(
    "name", ["../secret.txt", "/etc/passwd", "parts/../../secret.txt", "rejects", "", "a\x1b[2J"]
)
def test_a_name_that_no_dataset_has_is_never_opened(make_dataset, tmp_path, name):
    os.mkfifo(tmp_path / "secret.txt")  # to open it would not return
    directory, manifest = make_dataset()
    manifest["files"][0]["name"] = name
    (found,) = problems(directory, summed(manifest))
    assert found == (
        "manifest.json: cannot be checked further: files[0].name: expected a file of a dataset, "
        f"found {name!r}"
    )


def test_a_shard_whose_files_the_manifest_does_not_list_is_found(make_dataset):
    directory, manifest = make_dataset()
    manifest["files"] = [e for e in manifest["files"] if e["name"] != f"{FIRST}.idx"]
    assert problems(directory, summed(manifest)) == [
        f"{FIRST}.idx: not listed in the manifest",
        f"manifest.json: does not list {FIRST}.idx",
    ]


SPELLINGS = [
    (b'"path":"corpus', b'"path": "corpus'),
    (b"\\u4e16", b"\\u4E16"),
    (b'"format_version":1', b'"format_version":1,"format_version":1'),
    (b"\n}\n", b"\n}"),
    (b"\n}\n", b"\n}\n\n"),
    (b'"wall_s":1.5', b'"wall_s":15e-1'),
    (b"{\n", b"\xef\xbb\xbf{\n"),
]


@pytest.mark.parametrize(("before", "after"), SPELLINGS)
def test_another_spelling_of_the_same_manifest_is_found(make_dataset, before, after):
    directory, manifest = make_dataset()
    manifest["sources"][0]["path"] = "corpus-世"
    manifest["run"]["wall_s"] = 1.5
    assert problems(directory, summed(manifest)) == []
    path = directory / "manifest.json"
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after, 1) if before != b"\n}\n" else data[:-3] + after)
    try:
        found = verify(open_place(str(directory)), plain_manifest(directory)).problems
    except VerifyError as error:
        found = [str(error)]
    expected = "manifest.json: its bytes are not the ones that were written: it was changed"
    assert list(found) == [expected] or "damaged" in found[0]


def test_problems_are_raised_with_their_number(make_dataset, rewrite):
    directory, manifest = make_dataset()
    check(directory, manifest).check(directory)
    found = check(directory, rewrite(directory, manifest, f"{FIRST}.bin", put(2, 100)))
    with pytest.raises(VerifyError) as caught:
        found.check(directory)
    assert str(caught.value) == f"{directory}: verification failed, 1 problem"
    assert caught.value.problems == found.problems


def test_a_changed_manifest_is_found_by_its_own_sum(make_dataset):
    directory, manifest = make_dataset()
    changed = {**manifest, "note": "added later"}
    assert problems(directory, changed) == [
        "manifest.json: its own sha256 does not match: it was changed"
    ]
    assert problems(directory, summed(changed)) == []


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
            [f"{FIRST}.idx: 2 documents of 2 bytes a token, the manifest says 3 of 2"],
        ),
        (
            ["shards", 0, "tokens"],
            8,
            [f"{FIRST}.bin: 7 tokens, the manifest says 8"],
        ),
        (["files", 0, "bytes"], 4, ["plan.json: 3 bytes, the manifest says 4"]),
        (
            ["tokenizer", "vocab_size"],
            13,
            ["train-0000000-0001: id 13 is outside the vocabulary of 13"],
        ),
    ],
)
def test_a_wrong_count_in_the_manifest_is_found(make_dataset, path, value, expected):
    directory, manifest = make_dataset()
    at: Any = manifest
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert problems(directory, summed(manifest)) == expected


def test_a_document_without_eos_is_found_even_if_the_sums_fit(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", put(12, 9))
    assert problems(directory, forged) == [f"{FIRST}: document 1 does not end in eos 2 (1 such)"]


def test_a_document_without_bos_is_found_even_if_the_sums_fit(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", put(8, 9))
    assert problems(directory, forged) == [f"{FIRST}: document 1 does not begin with bos"]


def test_documents_of_a_tokenizer_without_bos_begin_with_any_id(make_dataset):
    directory, manifest = make_dataset({FIRST: [[7, 8, 2], [9, 2]]})
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
        (66, 2, [f"{FIRST}.idx: its document indices are not 0 to 2"]),
        (74, 3, [f"{FIRST}.idx: its document indices are not 0 to 2"]),
    ],
)
def test_an_index_that_does_not_fit_its_shard_is_found(
    make_dataset, position, value, expected, rewrite
):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.idx", put(position, value))
    assert problems(directory, forged) == expected


def test_an_empty_document_is_found_even_if_the_lengths_add_up(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.idx", put(34, 7, 0, 0, 0, 0))
    assert problems(directory, forged) == [
        f"{FIRST}.idx: its lengths do not add up to the 7 tokens"
    ]


def test_bytes_behind_the_last_token_are_found(make_dataset, rewrite):
    directory, manifest = make_dataset()
    forged = rewrite(directory, manifest, f"{FIRST}.bin", lambda data: data + b"\n")
    assert problems(directory, forged) == [
        f"{FIRST}.bin: 15 bytes, by the counts of the manifest 14"
    ]


@pytest.mark.parametrize("output", [{}, {"val_fraction": 0.5}, {"shard_tokens": 8}])
def test_a_dataset_of_a_run_has_no_problem(tmp_path: Path, tokenizer_dir: Path, silent, output):
    lines = [json.dumps({"text": f"hello {i}"}) for i in range(20)]
    (tmp_path / "corpus.jsonl").write_text("\n".join([*lines[:10], "[1]", *lines[10:]]))
    config = build_config(
        {
            "input": {"paths": [str(tmp_path / "corpus.jsonl")]},
            "tokenizer": {"path": str(tokenizer_dir), "bos_token": "<bos>"},
            "output": {"dir": str(tmp_path / "out"), **output},
            "run": {"engine": "reference"},
        },
        where="test",
    )
    run(config, silent)
    found = check(tmp_path / "out", plain_manifest(tmp_path / "out"))
    assert found.problems == ()
    assert found.n_documents == 20
    assert (found.n_shards > 1) is bool(output)


def test_a_file_that_is_listed_twice_is_found(make_dataset):
    directory, manifest = make_dataset()
    manifest["files"].append(manifest["files"][0])
    assert problems(directory, summed(manifest)) == ["manifest.json: lists plan.json twice"]
