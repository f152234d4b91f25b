from __future__ import annotations

import gzip
import json
import os
from glob import glob
from pathlib import Path

import pytest

from tokmill.errors import StorageError, UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import discover
from tokmill.sources.streams import first_bytes, zstd


def found(*paths, **options):
    return discover(InputSettings(paths=tuple(map(str, paths)), **options))


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("words\n" if name.endswith(".txt") else "{}\n")


def short(files, folder):
    return [file.path.removeprefix(folder.as_posix() + "/") for file in files]


def test_arguments_keep_their_order_and_each_expands_sorted(tmp_path):
    make(tmp_path, "d/b.jsonl", "d/a/z.txt", "d/a.csv", "d/.hidden.jsonl", "d/.git/x.jsonl")
    make(tmp_path, "d/README", "z.jsonl", "g/2.jsonl", "g/10.jsonl", "g/1.jsonl.gz")
    result = found(tmp_path / "z.jsonl", tmp_path / "d", tmp_path / "g" / "*.jsonl")
    names = ["z.jsonl", "d/a.csv", "d/a/z.txt", "d/b.jsonl", "g/10.jsonl", "g/2.jsonl"]
    assert short(result.files, tmp_path) == names
    assert result.notes == [f"ignored: 1 file of unknown ending ({tmp_path.as_posix()}/d/README)"]


def test_a_directory_is_walked_in_the_order_of_whole_paths(tmp_path):
    names = ["a-b.jsonl", "a.jsonl", "a/x.jsonl", "a/b/c.jsonl", "a b/x.jsonl", "aa/x.jsonl"]
    make(tmp_path, *names, "a!.jsonl", "a/b.jsonl", "a0.jsonl", "é/x.jsonl", "z.jsonl", "A.jsonl")
    found_names = short(found(tmp_path).files, tmp_path)
    assert len(found_names) == 12
    assert found_names == sorted(found_names)


def test_a_format_given_is_the_format_of_every_file(tmp_path):
    make(tmp_path, "a", "b.txt", "c.gz")
    files = found(tmp_path, format="jsonl").files
    assert [(file.format, file.compression) for file in files] == [
        ("jsonl", ""),
        ("jsonl", ""),
        ("jsonl", "gz"),
    ]
    assert [file.format for file in found(tmp_path / "a", format="jsonl").files] == ["jsonl"]


def test_stdin_and_hub_names_are_taken_as_they_are():
    files = found("-", f"hf:org/name@{'1' * 40}").files
    assert [(f.path, f.format, f.stamp) for f in files] == [
        ("-", "jsonl", ""),
        (f"hf:org/name@{'1' * 40}", "hub", "1" * 40),
    ]
    with pytest.raises(UsageError, match="-: parquet cannot be read from stdin"):
        found("-", format="parquet")


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


def lines(result, folder):
    """Return what is said of ignored names, without the directory they are in."""
    return [line.replace(f"{folder.as_posix()}/", "") for line in result.notes]


def test_links_to_files_and_directories_are_followed(tmp_path):
    make(tmp_path, "d/b.jsonl", "elsewhere/sub/x.jsonl", "one.jsonl")
    (tmp_path / "d" / "a.jsonl").symlink_to(tmp_path / "one.jsonl")
    (tmp_path / "d" / "linked").symlink_to(tmp_path / "elsewhere")
    result = found(tmp_path / "d")
    assert short(result.files, tmp_path) == ["d/a.jsonl", "d/b.jsonl", "d/linked/sub/x.jsonl"]
    assert result.notes == []


def test_a_recursive_glob_ends_where_links_lead_back(tmp_path):
    make(tmp_path, "d/e/a.jsonl", "d/e/b.csv", "x/c.jsonl")
    for name in ("one", "two", "three"):  # followed to every depth, there would be 3^40 paths
        (tmp_path / "d" / "e" / name).symlink_to(tmp_path / "d")
    (tmp_path / "d" / "x").symlink_to(tmp_path / "x")
    result = found(f"{tmp_path}/d/**/*.jsonl")
    assert short(result.files, tmp_path) == ["d/e/a.jsonl", "d/x/c.jsonl"]
    assert lines(result, tmp_path) == [
        "ignored: 3 links to directories read already (d/e/one, d/e/three, d/e/two)"
    ]


PATTERNS = [
    "**", "**/*", "**/*.jsonl", "d/**", "d/**/*.jsonl", "d/**/e/*", "d/**/e/**/*.csv",
    "d/*.jsonl", "**/d/**/*.csv", "d/**/[ab]*", "d/**/?.csv", "**/.h/*.csv", "d/**/.h/**",
    "./d/**/*.csv", "d/**/*e*/*", "d/**/**/*.csv", "d/**/[(.*)]*", "d//**/*.csv", "d/**/[!a].csv",
]  # fmt: skip


@pytest.mark.parametrize("absolute", [True, False])
def test_a_glob_matches_the_files_that_the_standard_library_s_does(tmp_path, monkeypatch, absolute):
    make(tmp_path, "d/a.jsonl", "d/e/b.csv", "d/e/f/a.csv", "d/x.e/c.csv", "d/.h/d.csv", "e/g.csv")
    make(tmp_path, "d/.hidden.csv", "d/e/e/h.jsonl", "z.csv", "d/e/(a).csv", "d/e/d/e/q.csv")
    monkeypatch.chdir(tmp_path)
    for pattern in PATTERNS:
        full = f"{tmp_path}/{pattern}" if absolute else pattern
        matched = glob(full, recursive=True)  # noqa: PTH207  what is compared
        expected = {Path(path).as_posix() for path in matched if Path(path).is_file()}
        result = [file.path for file in found(full).files] if expected else []
        assert result == sorted(expected), pattern
        assert expected or "h/" in pattern


def test_a_file_that_links_reach_again_is_read_once_under_its_own_name(tmp_path):
    make(tmp_path, "d/m.jsonl", "d/sub/x.jsonl")
    (tmp_path / "d" / "a.jsonl").symlink_to("m.jsonl")
    (tmp_path / "d" / "z.jsonl").symlink_to("m.jsonl")
    (tmp_path / "d" / "also").symlink_to("sub")
    result = found(tmp_path / "d")
    assert short(result.files, tmp_path) == ["d/m.jsonl", "d/sub/x.jsonl"]
    assert lines(result, tmp_path) == [
        "ignored: 3 files reached a second time (d/a.jsonl, d/also/x.jsonl, d/z.jsonl)"
    ]
    assert result.warnings == []


def test_links_that_lead_nowhere_and_pipes_are_named_and_counted(tmp_path):
    make(tmp_path, "d/a.jsonl")
    (tmp_path / "d" / "self.jsonl").symlink_to("self.jsonl")
    (tmp_path / "d" / "gone.jsonl").symlink_to("nothing")
    os.mkfifo(tmp_path / "d" / "pipe.jsonl")
    expected = [
        "ignored: 2 links that lead nowhere (d/gone.jsonl, d/self.jsonl)",
        "ignored: 1 pipe, socket or device (d/pipe.jsonl)",
    ]
    for path in (tmp_path / "d", f"{tmp_path}/d/*", f"{tmp_path}/**/*.jsonl"):
        result = found(path)
        assert short(result.files, tmp_path) == ["d/a.jsonl"]
        assert lines(result, tmp_path) == expected


def test_a_file_that_is_named_twice_is_read_twice_and_said_so(tmp_path, monkeypatch):
    make(tmp_path, "a.jsonl", "b.jsonl")
    (tmp_path / "c.jsonl").symlink_to("b.jsonl")
    monkeypatch.chdir(tmp_path)
    once = found("a.jsonl", "b.jsonl")
    assert once.warnings == []
    twice = found("a.jsonl", "./a.jsonl")
    assert [file.path for file in twice.files] == ["a.jsonl", "a.jsonl"]
    assert twice.warnings == ["a file is named more than once, and read each time (a.jsonl)"]
    linked = found("a.jsonl", "b.jsonl", "c.jsonl", tmp_path / "a.jsonl")
    assert len(linked.files) == 4
    assert linked.warnings == [
        "2 files are named more than once, and read each time (a.jsonl, b.jsonl)"
    ]


def made_by_tokmill(folder):
    make(folder, "rejects/0000000-0000.jsonl", "parts/0000000.json", "manifest.json")
    (folder / "plan.json").write_bytes(b'{\n"bos_id":null,\n')


def test_globs_do_not_take_what_tokmill_wrote(tmp_path):
    make(tmp_path, "corpus/a.jsonl", "corpus/sub/b.jsonl")
    made_by_tokmill(tmp_path / "corpus" / "out")
    made_by_tokmill(tmp_path / "corpus" / "sub" / "out")
    for pattern in ("corpus/**/*.jsonl", "corpus/**", "corpus/*", "corpus"):
        result = found(f"{tmp_path}/{pattern}")
        assert short(result.files, tmp_path) == ["corpus/a.jsonl", "corpus/sub/b.jsonl"], pattern
        assert lines(result, tmp_path) == [
            "ignored: 2 datasets that tokmill made (corpus/out, corpus/sub/out)"
        ]


def test_a_pattern_of_nothing_but_what_tokmill_wrote_says_so(tmp_path):
    made_by_tokmill(tmp_path / "corpus" / "out")
    with pytest.raises(UsageError, match="no file matches; ignored: 1 dataset that tokmill made"):
        found(f"{tmp_path}/corpus/*/rejects/*.jsonl")


def test_rejects_that_are_asked_for_are_read(tmp_path):
    made_by_tokmill(tmp_path / "out")
    name = "out/rejects/0000000-0000.jsonl"
    for path in (name, "out/rejects", "out/rejects/*.jsonl"):
        assert short(found(tmp_path / path).files, tmp_path) == [name]
    with pytest.raises(UsageError, match="out: a dataset that tokmill made, expected a corpus"):
        found(tmp_path / "out")


def test_what_is_ignored_is_named_by_its_ending_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    names = ("a.jsonl.xz", "b.tar.gz", "README.md", "notes.MD", "e.html.gz", "g.xyz", "f.jsonl")
    for name in names:
        (tmp_path / "d" / name).write_text('{"text": "one"}\n')
    assert discover(InputSettings(paths=("d",))).notes == [
        "ignored: 2 Markdown files (d/README.md, d/notes.MD): to read Markdown, name the files or "
        "a glob such as 'DIR/*.md'",
        "ignored: 1 .xz file (d/a.jsonl.xz): unpack with xz -dk",
        "ignored: 1 .tar.gz file (d/b.tar.gz): unpack with tar -xzf",
        "ignored: 1 .html file (d/e.html.gz): extract its text first",
        "ignored: 1 file of unknown ending (d/g.xyz)",
    ]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("a.npy", "read them in Python"),
        ("train.bin", "tokmill import"),
        ("a.orc", "read them in Python and write their text as JSON Lines or Parquet"),
        ("a.tfrecord.gz", "read them in Python and write their text as JSON Lines or Parquet"),
        ("CC-MAIN.warc.wet.gz", "extract the text first"),
        ("a.xlsx", "save it as CSV"),
        ("a.pkl", "tokmill loads no pickle"),
        ("a.sqlite3", "export the table as CSV or Parquet"),
        ("a.xyz", "name its format with --format"),
    ],
)
def test_a_file_of_a_kind_that_is_not_read_says_what_to_do(name, advice, tmp_path):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsageError, match=advice):
        found(tmp_path / name)


LINES = b'{"text": "one"}\n{"text": "two"}\n'


@pytest.mark.parametrize(
    ("name", "data", "format_"),
    [
        ("part-00000.txt", LINES, "jsonl"),
        ("a.md", LINES, "jsonl"),
        ("a.text", b"\xef\xbb\xbf" + LINES, "jsonl"),
        ("a.txt.gz", gzip.compress(LINES, mtime=0), "jsonl"),
        ("a.txt.zst", zstd.compress(LINES), "jsonl"),
        ("one.txt", b'{"text": "one"}', "jsonl"),
        ("long.txt", b'{"text": "' + b"a" * 9000 + b'"}\n' + LINES * 9000, "jsonl"),
        ("array.txt", b'[{"text": "one"},\n {"text": "two"}]', "array"),
        ("prose.txt", b"one\n" + LINES, "text"),
        ("mixed.txt", LINES + b"one\n", "text"),
        ("list.txt", b"[1] a list of things", "text"),
        ("set.txt", b"{a, b} is a set", "text"),
        ("indented.txt", b'{\n "text": "one"\n}', "text"),
        ("empty.txt", b"", "text"),
    ],
)
def test_a_file_named_as_text_that_holds_json_records_is_read_as_records(
    name, data, format_, tmp_path
):
    path = tmp_path / name
    path.write_bytes(data)
    discovery = found(path)
    assert [file.format for file in discovery.files] == [format_]
    said = f"read as records: 1 file named as text, of JSON objects ({path.as_posix()}): "
    notes = [] if format_ == "text" else [said + "--format=text reads the lines as text"]
    assert discovery.notes == notes
    assert [file.format for file in found(path, format="text").files] == ["text"]


@pytest.mark.parametrize(
    "name",
    [
        *("LICENSE.txt", "LICENCE-CODE.txt", "README.txt", "readme_en.txt", "NOTICE.txt"),
        *("urls.txt", "url_list.txt", "file-list.txt", "files.txt", "md5sums.txt"),
        *("SHA256SUMS.txt", "checksums.txt", "a.parquet.sha256.txt", "MANIFEST.txt"),
        *("requirements.txt", "CITATION.txt", "AUTHORS.text"),
    ],
)
def test_a_text_that_describes_the_records_beside_it_is_no_document(name, tmp_path):
    make(tmp_path, "d/data/a.jsonl")
    (tmp_path / "d" / name).write_text("Some words.\n")
    path = (tmp_path / "d" / name).as_posix()
    discovery = found(tmp_path / "d")
    assert short(discovery.files, tmp_path) == ["d/data/a.jsonl"]
    assert discovery.notes == [f"ignored: 1 file that describes the records beside it ({path})"]
    assert len(found(tmp_path / "d", path).files) == 2  # it is named
    make(tmp_path, "e/x")
    (tmp_path / "e" / name).write_text("Some words.\n")
    assert len(found(tmp_path / "e").files) == 1  # no records are beside it


def test_another_text_beside_records_is_a_document_and_is_noted(tmp_path):
    make(tmp_path, "d/a.jsonl", "d/chapter.txt", "d/licensed_text_1.txt")
    make(tmp_path, "books/b.jsonl", "texts/c.txt")
    discovery = found(tmp_path / "d", tmp_path / "texts", tmp_path / "books")
    assert len(discovery.files) == 5
    assert [note.replace(f"{tmp_path.as_posix()}/", "") for note in discovery.notes] == [
        "read as documents: 2 text files beside records (d/chapter.txt, d/licensed_text_1.txt): "
        "to leave text out, name a glob of the records alone"
    ]


@pytest.mark.parametrize("ending", ["gz", "gzip", "zst", "zstd"])
def test_both_endings_of_a_compression_are_read(ending, tmp_path):
    data = b'{"text": "one"}\n'
    packed = gzip.compress(data) if ending.startswith("g") else zstd.compress(data)
    (tmp_path / f"a.jsonl.{ending}").write_bytes(packed)
    (file,) = found(tmp_path).files
    assert (file.format, first_bytes(file.path, file.compression)) == ("jsonl", (data, True))


def test_a_directory_or_file_of_packed_files_says_how_to_unpack_them(tmp_path):
    (tmp_path / "a.jsonl.bz2").write_text("x")
    for path in (tmp_path, tmp_path / "a.jsonl.bz2"):
        with pytest.raises(UsageError, match=r"unpack with bunzip2 -k$"):
            discover(InputSettings(paths=(str(path),)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"text": "one"}', "jsonl"),
        ('{"text": "one"}\n{"text": "two"}\n', "jsonl"),
        ('{"text": "one"\n{"text": "two"}\n', "jsonl"),
        ('{\n  "text": "one"\n}\n', "object"),
        ('{ "text": "one",\n\n "n": 1 }', "object"),
        ("{\n}", "object"),
        ('[{"text": "one"}]', "array"),
        ("\ufeff \r\n[", "array"),
        ("", "jsonl"),
        (" ", "jsonl"),
    ],
)
def test_the_first_bytes_of_json_tell_lines_an_array_and_an_object(text, expected, tmp_path):
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(text.encode()))
    assert [file.format for file in found(tmp_path).files] == [expected] * 2


# Which files are one, also where a file system does not number each file


@pytest.fixture
def number_files(monkeypatch):
    """Let every file have one number, as some network and overlay mounts report it."""
    of_system = os.stat

    def number(inode: int) -> None:
        def stat(path, *arguments, **options):
            real = of_system(path, *arguments, **options)
            more = {"st_mtime": real.st_mtime, "st_mtime_ns": real.st_mtime_ns}
            return os.stat_result((real.st_mode, inode, *real[2:]), more)

        monkeypatch.setattr(os, "stat", stat)

    return number


def settled(folder):
    """Return the names of the files of a folder, each once."""
    found = discover(InputSettings(paths=(str(folder),)))
    return [Path(file.path).name for file in found.files]


def write(folder, *names):
    paths = [folder / name for name in names]
    for path in paths:
        path.write_bytes(b"{}\n")
        os.utime(path, ns=(0, 0))
    return paths


def test_files_of_inode_0_are_never_taken_for_one(tmp_path, number_files):
    write(tmp_path, "a.jsonl", "b.jsonl")
    number_files(0)
    assert settled(tmp_path) == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize("differs", ["size", "time"])
def test_files_of_one_inode_that_differ_are_two(tmp_path, number_files, differs):
    _, other = write(tmp_path, "a.jsonl", "b.jsonl")
    number_files(7)
    assert settled(tmp_path) == ["a.jsonl"]
    if differs == "size":
        other.write_bytes(b"{}\n{}\n")
        os.utime(other, ns=(0, 0))
    else:
        os.utime(other, ns=(0, 1))
    assert settled(tmp_path) == ["a.jsonl", "b.jsonl"]
