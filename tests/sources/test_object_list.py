"""A URL of a store stands for the objects that a path would stand for."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.stores import MemoryObjects
from tokmill.errors import StorageError, UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import discover
from tokmill.sources.slices import check_unchanged

pytest.importorskip("fsspec")

PLAN = '{\n"bos_id": null}'
FILES = {
    "a.jsonl": "{}\n", "b/c.csv": "x\n1\n", "b/d.json": '[{"x": 1}]', "b/e.json": '{"x": 1}\n',
    "b/.hidden.jsonl": "{}\n", ".git/x.jsonl": "{}\n", "b/README.md": "# x", "b/x.tar.gz": "x",
    "old/plan.json": PLAN, "old/rejects/r.jsonl": "{}\n", "plan/plan.json": "{}\n",
    "b-b/z.txt": "x", "b.txt": "x", "\u732b/\u72d7 1.jsonl": "{}\n",
}  # fmt: skip
PATTERNS = ["", "/", "/b", "/*", "/*/*.json", "/**/*.jsonl", "/b*/**", "/**/*.{md,csv}", "/b/*.md",
            "/[ab]*", "/**", "/old/*", "/*/rejects/*.jsonl", "/\u732b/*"]  # fmt: skip


@pytest.fixture
def roots(tmp_path, monkeypatch) -> tuple[str, str]:
    """A directory, and the URL of a folder of the same files."""
    url = f"memory://bucket/{tmp_path.name}"
    store = MemoryObjects(url)
    for name, text in FILES.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        store.write(name, text.encode())
    return str(tmp_path / "in"), url


def found(path: str, **options: object) -> object:
    """Return what is found without times, or the message; paths without what they begin with."""
    root = path[: path.index("|")]
    try:
        result = discover(InputSettings(paths=(path.replace("|", ""),), **options))
    except UsageError as error:
        return type(error)
    files = [(f.path.removeprefix(root), f.format, f.compression, f.n_bytes) for f in result.files]
    return files, [line.replace(root, "") for line in result.notes], result.warnings


@pytest.mark.parametrize("pattern", PATTERNS)
def test_objects_are_found_like_files(roots, pattern):
    directory, url = (f"{root}|{pattern}" for root in roots)
    assert found(url) == found(directory)


def test_one_object_is_named_by_itself_even_with_the_signs_of_a_pattern(roots):
    store = MemoryObjects(roots[1])
    store.write("odd[1]*.jsonl", b"{}\n")
    (file,) = discover(InputSettings(paths=(f"{roots[1]}/odd[1]*.jsonl",))).files
    assert (file.path, file.n_bytes, file.mtime_ns) == (f"{roots[1]}/odd[1]*.jsonl", 3, 0)
    assert file.stamp
    assert not file.is_stream


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("{}/b/x.tar.gz", "unpack with tar -xzf"),
        ("{}/old/plan.txt", "no object of that name, and none below it"),
        ("{}/nothing-*", "no object of that name"),
        ("memory://", "expected the name of a bucket"),
        ("memory://b*/x", "expected the name of a bucket"),
        ("nosuch://bucket/x.jsonl", "cannot be opened"),
        ("{}/state.arrow", "copy the file to one first, or store it as Parquet"),
    ],
)
def test_what_cannot_be_read_is_named(roots, url, message, make_config, out, listener):
    from tokmill.run.finish import run

    MemoryObjects(roots[1]).write("state.arrow", b"ARROW1\0\0")
    with pytest.raises(UsageError) as raised:
        run(make_config(url.format(roots[1])), listener)
    assert message in str(raised.value)
    assert not (out / "manifest.json").exists()


def test_a_change_is_seen_by_its_stamp_alone(roots):
    url = f"{roots[1]}/a.jsonl"
    (file,) = discover(InputSettings(paths=(url,))).files
    check_unchanged(file)
    MemoryObjects(roots[1]).write("a.jsonl", json.dumps([]).encode() + b"\n")
    assert file.n_bytes == 3
    with pytest.raises(
        StorageError, match="changed while it was read: modified, with as many bytes"
    ):
        check_unchanged(file)
