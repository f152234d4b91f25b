from __future__ import annotations

import gzip
import io
import json
import os

import pytest

from tokmill.config import InputSettings
from tokmill.errors import StorageError, UsageError
from tokmill.sources.files import classify, discover


def found(*paths, **options):
    return discover(InputSettings(paths=tuple(map(str, paths)), **options))


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")


def short(files, folder):
    return [file.path.removeprefix(folder.as_posix() + "/") for file in files]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", ("jsonl", "")),
        ("a.NDJSON.gz", ("jsonl", "gz")),
        ("a.json.zst", ("json", "zst")),
        ("a.b.csv", ("csv", "")),
        ("a.md", ("text", "")),
        ("a.text.gz", ("text", "gz")),
        ("a.parquet", ("parquet", "")),
        ("a.arrow", ("arrow", "")),
        ("a.parquet.gz", ("", "gz")),
        ("a.gz", ("", "gz")),
        ("a", ("", "")),
    ],
)
def test_names_say_format_and_compression(name, expected):
    assert classify(name) == expected


def test_arguments_keep_their_order_and_each_expands_sorted(tmp_path):
    make(tmp_path, "d/b.jsonl", "d/a/z.txt", "d/a.csv", "d/.hidden.jsonl", "d/.git/x.jsonl")
    make(tmp_path, "d/README", "z.jsonl", "g/2.jsonl", "g/10.jsonl", "g/1.jsonl.gz")
    result = found(tmp_path / "z.jsonl", tmp_path / "d", tmp_path / "g" / "*.jsonl")
    names = ["z.jsonl", "d/a.csv", "d/a/z.txt", "d/b.jsonl", "g/10.jsonl", "g/2.jsonl"]
    assert short(result.files, tmp_path) == names
    assert result.ignored == [f"{tmp_path.as_posix()}/d/README"]


def test_a_directory_is_walked_in_the_order_of_whole_paths(tmp_path):
    names = ["a-b.jsonl", "a.jsonl", "a/x.jsonl", "a/b/c.jsonl", "a b/x.jsonl", "aa/x.jsonl"]
    make(tmp_path, *names, "a!.jsonl", "a/b.jsonl", "a0.jsonl", "é/x.jsonl", "z.jsonl", "A.jsonl")
    found_names = short(found(tmp_path).files, tmp_path)
    assert len(found_names) == 12
    assert found_names == sorted(found_names)


def test_a_path_below_here_is_written_without_a_dot(tmp_path, monkeypatch):
    make(tmp_path, "d/e/b.jsonl", "a.jsonl", "d/README")
    monkeypatch.chdir(tmp_path)
    result = found(".")
    assert [file.path for file in result.files] == ["a.jsonl", "d/e/b.jsonl"]
    assert result.ignored == ["d/README"]
    assert [file.path for file in found("./d/").files] == ["d/e/b.jsonl"]


def test_a_recursive_glob_finds_each_file_once(tmp_path):
    make(tmp_path, "d/a.jsonl", "d/e/b.jsonl")
    assert short(found(f"{tmp_path}/**/*.jsonl").files, tmp_path) == ["d/a.jsonl", "d/e/b.jsonl"]
    assert short(found(f"{tmp_path}/*").files, tmp_path) == ["d/a.jsonl", "d/e/b.jsonl"]


def test_a_file_is_described(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"xyz")
    os.utime(path, ns=(5, 7))
    (file,) = found(path).files
    assert (file.path, file.format, file.compression) == (path.as_posix(), "jsonl", "gz")
    assert (file.n_bytes, file.mtime_ns, file.stamp) == (3, 7, "")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'[{"a": 1}]', "array"),
        (b"\xef\xbb\xbf \r\n[", "array"),
        (b'{"a": 1}\n', "jsonl"),
        (b"", "jsonl"),
        (b" ", "jsonl"),
    ],
)
def test_the_first_byte_of_json_tells_arrays_from_lines(data, expected, tmp_path):
    (tmp_path / "a.json").write_bytes(data)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(data))
    assert [file.format for file in found(tmp_path).files] == [expected] * 2


def test_a_format_given_is_the_format_of_every_file(tmp_path):
    make(tmp_path, "a", "b.txt", "c.gz")
    files = found(tmp_path, tmp_path / "a", format="jsonl").files
    assert [(file.format, file.compression) for file in files] == [
        ("jsonl", ""),
        ("jsonl", ""),
        ("jsonl", "gz"),
        ("jsonl", ""),
    ]


def test_stdin_and_hub_names_are_taken_as_they_are():
    files = found("-", "hf:org/name", hub_revision="r1").files
    assert [(f.path, f.format, f.stamp) for f in files] == [
        ("-", "jsonl", ""),
        ("hf:org/name", "hub", "r1"),
    ]
    with pytest.raises(UsageError, match="-: parquet cannot be read from stdin"):
        found("-", format="parquet")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", "none.jsonl: no such file or directory$"),
        ("none", "none: no such file or directory$"),
        ("*.jsonl", "no file matches"),
        ("a.xyz", "a.xyz: expected a file ending in .jsonl, .*; name its format with --format"),
        ("empty", "empty: no file ending in .jsonl"),
    ],
)
def test_a_path_that_gives_no_file_is_a_usage_error(name, message, tmp_path):
    (tmp_path / "empty").mkdir()
    make(tmp_path, "a.xyz")
    with pytest.raises(UsageError, match=message):
        found(tmp_path / name)


def test_no_path_is_a_usage_error():
    with pytest.raises(UsageError, match="no input"):
        found()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_storage_error(tmp_path):
    make(tmp_path, "a.jsonl")
    (tmp_path / "a.jsonl").chmod(0)
    with pytest.raises(StorageError, match="permission denied"):
        found(tmp_path)


def test_a_name_with_glob_characters_is_a_file_if_it_exists(tmp_path):
    make(tmp_path, "a[1].jsonl")
    assert len(found(tmp_path / "a[1].jsonl").files) == 1


def saved(folder, *names):
    make(folder, *names)
    (folder / "dataset_info.json").write_text("{}")
    state = {"_data_files": [{"filename": name} for name in names]}
    (folder / "state.json").write_text(json.dumps(state))


def test_a_saved_dataset_gives_its_files_in_its_order(tmp_path):
    saved(tmp_path / "d" / "s", "data-1.arrow", "data-0.arrow")
    make(tmp_path / "d" / "s", "cache-9.arrow")
    make(tmp_path, "d/a.jsonl", "d/t.jsonl")
    names = ["s/data-1.arrow", "s/data-0.arrow"]
    assert short(found(tmp_path / "d" / "s").files, tmp_path / "d") == names
    all_names = ["a.jsonl", *names, "t.jsonl"]
    assert short(found(tmp_path / "d").files, tmp_path / "d") == all_names


def test_a_saved_dict_of_one_split_is_that_split(tmp_path):
    saved(tmp_path / "train", "data.arrow")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert short(found(tmp_path).files, tmp_path) == ["train/data.arrow"]
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(UsageError, match=r"several splits; give one: .*/train, .*/test"):
        found(tmp_path)


def test_a_saved_dataset_without_a_good_state_is_an_error(tmp_path):
    saved(tmp_path)
    with pytest.raises(UsageError, match=r"state\.json: names no data files"):
        found(tmp_path)
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(StorageError, match=r"state\.json: not valid JSON"):
        found(tmp_path)


def test_linked_directories_are_listed_as_ignored(tmp_path):
    make(tmp_path, "d/a.jsonl")
    (tmp_path / "d" / "loop").symlink_to(tmp_path / "d", target_is_directory=True)
    result = found(tmp_path / "d")
    assert short(result.files, tmp_path) == ["d/a.jsonl"]
    assert result.ignored == [f"{tmp_path.as_posix()}/d/loop"]


def test_standard_input_is_not_read_by_looking_for_files(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"x"))
    monkeypatch.setattr("sys.stdin", stdin)
    found("-")
    assert stdin.buffer.read() == b"x"
