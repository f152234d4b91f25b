"""Headers of safetensors files: exact counts, sharded files, and files that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.models.headers import Entry, read_entries
from tokmill.errors import UsageError

Tensors = dict[str, tuple[str, list[int]]]
BITS = {"F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "I32": 32, "I64": 64, "U8": 8}


def header_of(tensors: Tensors) -> tuple[dict[str, Any], int]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return header, at


def write(path: Path, tensors: Tensors) -> Path:
    """Write a safetensors file by hand."""
    header, size = header_of(tensors)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path


def write_raw(path: Path, header: object, *, data: int = 0, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    n = len(text) if length is None else length
    path.write_bytes(n.to_bytes(8, "little") + text + bytes(data))
    return path


def test_a_file_of_the_safetensors_library_is_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    save_file({"w": numpy.zeros((2, 3), "float32")}, tmp_path / "model.safetensors")
    assert read_entries(tmp_path) == [Entry("w", "F32", (2, 3), 24)]


def test_types_smaller_than_a_byte_and_without_a_number_are_read(tmp_path: Path) -> None:
    packed = {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}
    mask = {"dtype": "BOOL", "shape": [3], "data_offsets": [2, 5]}
    found = read_entries(write_raw(tmp_path / "x.safetensors", {"w": packed, "m": mask}, data=5))
    assert [entry.n_bytes for entry in found] == [2, 3]


def test_the_tensors_themselves_are_not_read(tmp_path: Path) -> None:
    header, _ = header_of({"w": ("BF16", [1 << 20, 1 << 20])})
    path = write_raw(tmp_path / "x.safetensors", header)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + (1 << 41))  # sparse: 2 TiB
    assert read_entries(path)[0].n_bytes == 1 << 41


def test_a_directory_is_the_files_of_its_index(tmp_path: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    write(tmp_path / first, {"a.weight": ("BF16", [2])})
    write(tmp_path / second, {"b.weight": ("F32", [3])})
    write(tmp_path / "adapter_model.safetensors", {"other": ("F32", [9])})
    weight_map = {"a.weight": first, "b.weight": second}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": weight_map}))
    assert [entry.name for entry in read_entries(tmp_path)] == ["a.weight", "b.weight"]

    (tmp_path / second).unlink()
    with pytest.raises(UsageError, match=rf"{second}: no such file, but model.safetensors.index"):
        read_entries(tmp_path)


def test_one_file_wins_over_others_and_without_it_all_are_read(tmp_path: Path) -> None:
    write(tmp_path / "consolidated.safetensors", {"a": ("BF16", [2])})
    write(tmp_path / "b.safetensors", {"b": ("BF16", [2])})
    assert [entry.name for entry in read_entries(tmp_path)] == ["b", "a"]
    write(tmp_path / "model.safetensors", {"c": ("BF16", [2])})
    assert [entry.name for entry in read_entries(tmp_path)] == ["c"]
    assert read_entries(tmp_path / "b.safetensors")[0].name == "b"


@pytest.mark.parametrize(
    "index", [b"{", b"[]", b'{"weight_map": 3}', b"[" * 100_000, b"\xff" * 1000]
)
def test_a_damaged_index_is_one_line(tmp_path: Path, index: bytes) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(index)
    with pytest.raises(UsageError, match="expected an object with a weight_map") as error:
        read_entries(tmp_path)
    assert len(str(error.value)) < len(str(tmp_path)) + 200


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "length"),
    [
        (b"", 0, None),
        (b"{}", 0, 3),
        (b"{}", 0, 1 << 40),
        (b"{", 0, None),
        (b"[]", 0, None),
        (b"\xff\xfe", 0, None),
        (b"[" * 100_000, 0, None),
        ({"w": 3}, 0, None),
        ({"w": {**GOOD, "shape": [-1]}}, 8, None),
        ({"w": {**GOOD, "shape": ["2"]}}, 8, None),
        ({"w": {**GOOD, "shape": 2}}, 8, None),
        ({"w": {**GOOD, "data_offsets": [8, 0]}}, 8, None),
        ({"w": {**GOOD, "data_offsets": [0]}}, 8, None),
        ({"w": {**GOOD, "data_offsets": [0, 9]}}, 8, None),
        ({"w": {"dtype": "F32", "shape": [2]}}, 8, None),
        ({"w": {**GOOD, "dtype": "F64"}}, 8, None),
        ({"w": {**GOOD, "shape": [10**30]}}, 8, None),
    ],
)
def test_a_damaged_file_is_one_line(
    tmp_path: Path, header: object, data: int, length: int | None
) -> None:
    path = write_raw(tmp_path / "x.safetensors", header, data=data, length=length)
    with pytest.raises(UsageError, match=r"x.safetensors: damaged, or no safetensors") as error:
        read_entries(path)
    assert "\n" not in str(error.value)
