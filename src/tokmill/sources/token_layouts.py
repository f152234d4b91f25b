"""The layouts of other trainers' files of tokens: how files are found, and their documents read.

| layout      | tokens                           | ends of documents      | masks                |
|-------------|----------------------------------|------------------------|----------------------|
| Megatron-LM | `PREFIX.bin`, any integers       | `PREFIX.idx`           | `PREFIX.mask`        |
| datatrove   | `X.ds`                           | `X.ds.index`           | `X.ds.loss`          |
| nanoGPT     | `X.bin`                          | eos                    | none                 |
| OLMo-core   | `X.npy`                          | `X.csv.gz`, or eos     | `X.npy` in a `-mask` |
| torchtitan  | `tokens*.bin`                    | `document_offsets.npy` | `mask*.bin`          |
| llm.c       | `SET_000001.bin`, with a header  | eos, in all of a set   | none                 |
| litdata     | chunks that `index.json` lists   | eos, in all chunks     | none                 |

The modules of the same names in `trainers/`, and `dataset/sidecars.py` of Megatron, have the bytes.
In Megatron's, a document of several sequences becomes one. Masks have a byte for each token. Eos
alone as a boundary divides a document with an eos inside, and joins those written without.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import DATASET_FILE
from tokmill.dataset.mapped import map_file
from tokmill.dataset.sidecars import HEADER, MAGIC
from tokmill.errors import StorageError, UsageError, VerifyError
from tokmill.opening import open_regular, read_named
from tokmill.sources.token_files import (
    Body,
    Importer,
    TokenFile,
    blocks_of,
    check_not_wide,
    files_below,
    read,
)
from tokmill.storage import read_errors, storage_errors
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from tokmill.dataset.plan_file import TokenRulesEntry
    from tokmill.sources.slices import SourceFile
    from tokmill.sources.token_files import Batch

    Numbers = npt.NDArray[np.int64]

_END = np.dtype("<u8")
_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS, _FLAGS = (6, 7), 1

_UNSIGNED = {1: "u1", 2: "<u2", 4: "<u4", 8: "<u8"}
"""By the bytes of a token."""

_NUMPY, _OFFSETS = b"\x93NUMPY", "document_offsets.npy"

_CSV_BYTES = 1 << 20
"""Bytes of a `.csv.gz` that are read at once."""

_LLM_C = {20240520: (1, "<u2"), 20240801: (7, "<u4")}
"""By the magic number of a file of llm.c: its version, and the type of its tokens."""

_LLM_C_BYTES = 1024
_NUMBERED = re.compile(r"(.*?)(\d+)")

_LITDATA_INDEX = "index.json"
_LITDATA_NUMPY = {0: "i1", 1: "<i2", 2: "<i4", 3: "<i8", 4: "u1", 5: "<u2", 6: "<u4", 7: "<u8"}
_LITDATA_TORCH = {
    11: "u1", 12: "i1", 13: "<i2", 14: "<i2", 15: "<i4", 16: "<i4", 17: "<i8", 18: "<i8", 20: "<u2",
}  # fmt: skip
_LITDATA_TYPES = {"no_header_numpy": _LITDATA_NUMPY, "no_header_tensor": _LITDATA_TORCH}
"""Types of integers by litdata's own numbers of them."""

_TWIN = "_mask"
"""End of the prefix of masks that `tokmill export` writes beside the prefix of tokens."""


def _find_megatron(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return the pairs of a prefix, a file of a pair or a directory."""
    if not path.is_dir():
        is_file = path.suffix in (".bin", ".idx")
        path = path.with_suffix(".idx") if is_file else path.with_name(f"{path.name}.idx")
    pairs = []
    for index in files_below(path, "*.idx", "PREFIX.bin and PREFIX.idx, or a directory of them"):
        is_shard = path.is_dir() and DATASET_FILE.fullmatch(index.name) is not None
        # A dataset's own packed rows are its samples a second time.
        if not (is_shard and index.name.startswith("packed-")):
            is_val = is_shard and index.name.startswith("val-")
            pairs.append(_pair(index, "val" if is_val else split))
    return pairs


def _pair(index: Path, split: str) -> TokenFile:
    code, lengths, _, _ = _megatron_index(index)
    if code == _FLAGS and index.stem.endswith(_TWIN):
        new = f"{index.stem.removesuffix(_TWIN)}.mask"
        raise UsageError(
            f"{index}: a mask: rename {index.stem}.bin to {new}, and move {index.name} away"
        )
    if code not in _DTYPES:
        kind = "floats" if code in _FLOATS else f"values of type {code}"
        raise UsageError(f"{index}: holds {kind}, expected ids of tokens")
    path, mask = index.with_suffix(".bin"), index.with_suffix(".mask")
    if not path.is_file():
        raise UsageError(f"{path}: expected beside {index.name}, found nothing")
    file = TokenFile(path, split, np.dtype(_DTYPES[code]), int(lengths.sum(dtype=np.int64)), index)
    return _with_mask(file, mask) if mask.exists() else file


def _with_mask(file: TokenFile, mask: Path) -> TokenFile:
    """Return a file with its mask; raises `VerifyError` for one of another length."""
    n_flags, n_values = mask.stat().st_size, file.path.stat().st_size // file.dtype.itemsize
    if n_flags != n_values:
        raise VerifyError(
            f"{mask}: {plural(n_flags, 'byte')}, expected one for each of the "
            f"{plural(n_values, 'token')} of {file.path.name}"
        )
    return replace(file, mask=mask)


def _megatron_index(index: Path) -> tuple[int, npt.NDArray[np.int32], Numbers, Numbers]:
    """Return the code of the type, and the arrays of an index, mapped.

    These are the lengths of sequences in tokens, their places in bytes, and the first sequence of
    each document, with the number of sequences at the end.
    """
    with read_errors(index), open_regular(index, follow_links=True) as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size or not header.startswith(MAGIC):
        raise UsageError(f"{index}: not an index of Megatron (it does not begin with MMIDIDX)")
    _, version, code, n, n_entries = HEADER.unpack(header)
    if version != 1:
        raise UsageError(f"{index}: version {version}, expected 1")
    n_bytes, expected = index.stat().st_size, HEADER.size + 12 * n + 8 * n_entries
    if n_bytes == expected + n:
        raise UsageError(f"{index}: has modes of sequences: multimodal data cannot be imported")
    if n_bytes != expected or not n_entries:
        raise VerifyError(
            f"{index}: {plural(n_bytes, 'byte')}, expected {expected:,} for "
            f"{plural(n, 'sequence')} and {n_entries:,} document indices"
        )
    with read_errors(index):
        body = map_file(index, offset=HEADER.size)
    lengths, pointers = body[: 4 * n].view("<i4"), body[4 * n : 12 * n].view("<i8")
    documents = body[12 * n :].view("<i8")
    if int(documents[0]) != 0 or int(documents[-1]) != n:
        raise VerifyError(
            f"{index}: documents begin with sequence {documents[0]} and end with {documents[-1]}, "
            f"expected 0 and {n}"
        )
    return code, lengths, pointers, documents


def _read_megatron(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    """Yield documents in the order of the index, wherever their sequences stand in the file."""
    _, lengths, pointers, documents = _megatron_index(file.index or file.path)
    item_bytes, n_bytes = file.dtype.itemsize, file.path.stat().st_size
    for some in blocks_of(len(documents) - 1):
        bounds = np.array(documents[some.start : some.stop + 1])
        if int(np.diff(bounds).min()) < 0 or int(bounds[-1]) > len(lengths):
            raise VerifyError(f"{file.index}: the sequences of documents do not rise")
        own = slice(int(bounds[0]), int(bounds[-1]))
        counts, begins = lengths[own].astype(np.int64), np.array(pointers[own])
        lowest = min(int(counts.min(initial=0)), int(begins.min(initial=0)))
        if lowest < 0 or (begins % item_bytes).any():
            raise VerifyError(f"{file.index}: negative length, or pointer to no token")
        if int(begins.max(initial=0)) > n_bytes:
            raise VerifyError(f"{file.path}: shorter than its index says")
        yield from file.documents(begins // item_bytes, counts, bounds - bounds[0])


def _find_datatrove(path: Path, split: str, dtype: str) -> list[TokenFile]:
    return [_with_index(one, split) for one in files_below(path, "*.ds", "X.ds files")]


def _with_index(path: Path, split: str) -> TokenFile:
    index, loss = path.with_name(f"{path.name}.index"), path.with_name(f"{path.name}.loss")
    if not index.is_file():
        raise UsageError(f"{index}: missing: without it, the ends of documents are unknown")
    n_ends, rest = divmod(index.stat().st_size, _END.itemsize)
    if rest:
        raise VerifyError(
            f"{index}: {plural(index.stat().st_size, 'byte')} are no whole number of 8-byte ends "
            "of documents: it is damaged"
        )
    n_tokens = int(read(index, _END, [(n_ends - 1, 1)])[0]) if n_ends else 0
    n_bytes = path.stat().st_size
    item_bytes = n_bytes // n_tokens if n_tokens else 2
    if item_bytes not in (2, 4) or item_bytes * n_tokens != n_bytes:
        raise VerifyError(
            f"{path}: {plural(n_bytes, 'byte')} for the {plural(n_tokens, 'token')} of its index, "
            "expected 2 or 4 each"
        )
    if loss.exists() and loss.stat().st_size != n_tokens:
        raise VerifyError(f"{loss}: {plural(loss.stat().st_size, 'byte')}, expected {n_tokens:,}")
    mask = loss if loss.exists() else None
    return TokenFile(path, split, np.dtype(f"<u{item_bytes}"), n_tokens, index, mask)


def _read_datatrove(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    index = file.index or file.path
    if index.stat().st_size:
        with read_errors(index):
            ends = map_file(index, _END)
        yield from file.documents_ending(ends)


def _find_nanogpt(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return a file, or `train.bin` and `val.bin` of a directory."""
    places = [(path, split)]
    if path.is_dir():
        splits = ("train", "val") if split == "train" else ("val",)
        places = [(path / f"{one}.bin", one) for one in splits]
        places = [(one, name) for one, name in places if one.is_file()]
    if not places or not places[0][0].is_file():
        raise UsageError(f"{path}: expected a .bin file, or a directory with train.bin")
    return [_without_header(one, name, dtype) for one, name in places]


def _without_header(path: Path, split: str, dtype: str) -> TokenFile:
    """Return a file of tokens alone, whose type the user names."""
    kind = np.dtype("<u4") if dtype == "uint32" else np.dtype("<u2")
    if kind.itemsize == 2:
        check_not_wide(path)
    n_bytes = path.stat().st_size
    if n_bytes % kind.itemsize:
        raise UsageError(
            f"{path}: {n_bytes:,} bytes are no whole number of {kind.itemsize}-byte tokens: "
            "choose another --dtype"
        )
    return TokenFile(path, split, kind, n_bytes // kind.itemsize)


def _read_at_eos(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    return file.documents_at_eos(eos_id)


def _find_olmo_core(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return the files of a directory but for masks, or the file itself."""
    paths = files_below(path, "*.npy", "X.npy files of OLMo-core")
    return [_olmo_core_file(one, split, dtype) for one in paths if not _is_mask(one)]


def _is_mask(path: Path) -> bool:
    folder = path.parent
    is_twin = folder.name.endswith("-mask") and folder.with_name(folder.name[:-5]).is_dir()
    return is_twin or path.name.startswith("labels_mask_")


def _olmo_core_file(path: Path, split: str, dtype: str) -> TokenFile:
    with read_errors(path), open_regular(path, follow_links=True) as file:
        if file.read(len(_NUMPY)) == _NUMPY:
            raise UsageError(
                f"{path}: begins with a header of NumPy, and OLMo-core's files are ids alone: "
                "write the array with tofile"
            )
    index = path.with_name(f"{path.stem}.csv.gz")
    if index.is_file():
        found = _with_spans(path, index, split, dtype)
    else:
        found = _without_header(path, split, dtype)
    beside = path.parent.with_name(f"{path.parent.name}-mask") / path.name
    by_name = path.with_name(path.name.replace("token_ids_", "labels_mask_", 1))
    for mask in (beside, by_name):
        if mask != path and mask.is_file():
            return _with_mask(found, mask)
    return found


def _with_spans(path: Path, index: Path, split: str, dtype: str) -> TokenFile:
    """Return a file whose `.csv.gz` has the spans of its documents."""
    n_tokens = stop = 0
    for starts, ends in _spans_of(index):
        n_tokens += int((ends - starts).sum())
        stop = max(stop, int(ends.max(initial=0)))
    n_bytes = path.stat().st_size
    item_bytes = n_bytes // stop if stop else 2
    is_whole = item_bytes * stop == n_bytes
    if dtype:
        item_bytes = np.dtype(dtype).itemsize
        is_whole = item_bytes * stop <= n_bytes
    if item_bytes not in _UNSIGNED or not is_whole:
        raise VerifyError(
            f"{path}: {plural(n_bytes, 'byte')} for the {plural(stop, 'token')} of {index.name}, "
            "expected 1, 2, 4 or 8 each: if tokens behind the last document are to be left out, "
            "name the type with --dtype"
        )
    return TokenFile(path, split, np.dtype(_UNSIGNED[item_bytes]), n_tokens, index)


def _spans_of(index: Path) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the first tokens and the ends of documents, some MiB of text at a time."""
    import pyarrow as pa
    from pyarrow import csv

    kinds = {"f0": pa.int64(), "f1": pa.int64()}
    with (
        read_errors(index),
        open_regular(index, follow_links=True) as file,
        gzip.GzipFile(fileobj=file) as text,
    ):
        if not text.peek(1):
            return
        try:
            reader = csv.open_csv(
                text,
                csv.ReadOptions(autogenerate_column_names=True, block_size=_CSV_BYTES),
                convert_options=csv.ConvertOptions(
                    include_columns=list(kinds), column_types=kinds, strings_can_be_null=False
                ),
            )
            for batch in reader:
                if batch.column(0).null_count or batch.column(1).null_count:
                    raise ValueError("a document without its first token and its end")
                yield tuple(column.to_numpy().astype(np.int64) for column in batch.columns)
        except (pa.ArrowException, EOFError) as error:
            raise ValueError(f"no start,end of documents: {str(error).splitlines()[0]}") from None


def _read_olmo_core(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    if file.index is None:
        yield from file.documents_at_eos(eos_id)
        return
    n_values = file.path.stat().st_size // file.dtype.itemsize
    for starts, ends in _spans_of(file.index):
        lengths = ends - starts
        lowest = min(int(lengths.min(initial=0)), int(starts.min(initial=0)))
        if lowest < 0 or int(ends.max(initial=0)) > n_values:
            raise VerifyError(f"{file.index}: a document ends before it begins, or behind the file")
        yield from file.documents(starts, lengths, np.arange(len(starts) + 1))


def _find_torchtitan(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return the bodies of a folder with `document_offsets.npy`, or the one that is named."""
    folder = path if path.is_dir() else path.parent
    index = folder / _OFFSETS
    paths = sorted(one for one in folder.glob("tokens*.bin") if one.is_file())
    if not index.is_file() or not paths or (path != folder and path not in paths):
        raise UsageError(f"{path}: expected a directory with tokens*.bin and {_OFFSETS}")
    n_bytes = sum(one.stat().st_size for one in paths)
    n_tokens = int(_offsets_of(index)[-1])
    item_bytes = n_bytes // n_tokens if n_tokens else 2
    if item_bytes not in _UNSIGNED or item_bytes * n_tokens != n_bytes:
        raise VerifyError(
            f"{folder}: {plural(n_bytes, 'byte')} in {plural(len(paths), 'file')} for the "
            f"{plural(n_tokens, 'token')} of {_OFFSETS}, expected 1, 2, 4 or 8 each"
        )
    files = []
    for one in paths:
        if one.stat().st_size % item_bytes:
            raise VerifyError(f"{one}: no whole number of {item_bytes}-byte tokens: it is damaged")
        n_own = one.stat().st_size // item_bytes
        file = TokenFile(one, split, np.dtype(_UNSIGNED[item_bytes]), n_own, index)
        mask = one.with_name(one.name.replace("tokens", "mask", 1))
        files.append(_with_mask(file, mask) if mask.is_file() else file)
    return files if path == folder else [files[paths.index(path)]]


def _offsets_of(index: Path) -> npt.NDArray[Any]:
    """Return the offsets of documents, mapped: (n_documents + 1,)."""
    with read_errors(index), open_regular(index, follow_links=True) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0
        shape, _, kind = (header if version == (1, 0) else np.lib.format.read_array_header_2_0)(
            file
        )
        if len(shape) != 1 or kind.kind not in "iu" or not shape[0]:
            raise ValueError(f"expected the offsets of documents, found {shape} of {kind}")
        offsets = map_file(index, kind, file.tell())
        if len(offsets) != shape[0]:
            raise ValueError(f"{len(offsets):,} offsets, expected {shape[0]:,}")
    if int(offsets[0]) != 0:
        raise VerifyError(f"{index}: the first document begins at {offsets[0]}, expected 0")
    return offsets


def _read_torchtitan(file: TokenFile, eos_id: int) -> Iterator[Batch]:
    offsets = _offsets_of(file.index or file.path)
    bodies = sorted(file.path.parent.glob("tokens*.bin"))
    before = bodies[: bodies.index(file.path)]
    begin = sum(one.stat().st_size for one in before) // file.dtype.itemsize
    first = int(np.searchsorted(offsets, begin))
    last = int(np.searchsorted(offsets, begin + file.n_tokens))
    if file.path == bodies[-1]:
        last = len(offsets) - 1
    if int(offsets[first]) != begin or int(offsets[last]) != begin + file.n_tokens:
        raise VerifyError(
            f"{file.index}: no document begins and ends where {file.path.name} does: a document "
            "must stand in one file"
        )
    yield from file.documents_ending(offsets[first + 1 : last + 1], begin)


def _find_llm_c(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return a file, or those of a directory; the files of a set are one stream."""
    streams: dict[tuple[Path, str], list[Body]] = {}
    files = []
    for one in sorted(files_below(path, "*.bin", "a .bin file of llm.c"), key=_place_in_set):
        folder, name, _ = _place_in_set(one)
        if (folder, name) not in streams:
            streams[folder, name] = _llm_c_stream(one)
        stream = streams[folder, name]
        number = [body.path for body in stream].index(one)
        files.append(
            TokenFile(
                one, "val" if re.search(r"(^|[_-])val([_-]|$)", name) else split,
                np.dtype(_LLM_C[_llm_c_header(one)[0]][1]), stream[number].n_tokens,
                first_byte=_LLM_C_BYTES, stream=stream, number=number, eos_first=True,
            )
        )  # fmt: skip
    return files


def _place_in_set(path: Path) -> tuple[Path, str, int]:
    """Return the folder of a file, the name of its set, and its number there; -1 without."""
    numbered = _NUMBERED.fullmatch(path.stem)
    if numbered is None:
        return path.parent, path.stem, -1
    return path.parent, numbered[1], int(numbered[2])


def _llm_c_stream(path: Path) -> list[Body]:
    """Return the files of the set of a file, in the order of their numbers."""
    folder, name, _ = _place_in_set(path)
    siblings = [one for one in folder.glob("*.bin") if _place_in_set(one)[:2] == (folder, name)]
    magic, _ = _llm_c_header(path)
    bodies = []
    for one in sorted(siblings, key=_place_in_set):
        own, n_tokens = _llm_c_header(one)
        if own != magic:
            raise UsageError(f"{one}: holds tokens of another type than {path.name}")
        bodies.append(Body(one, n_tokens, _LLM_C_BYTES))
    return bodies


def _llm_c_header(path: Path) -> tuple[int, int]:
    """Return the magic number of a file, and the number of its tokens."""
    with read_errors(path), open_regular(path, follow_links=True) as file:
        header = file.read(_LLM_C_BYTES)
    if len(header) < _LLM_C_BYTES:
        raise UsageError(f"{path}: expected a header of 1,024 bytes, as llm.c writes it")
    magic, version, n_tokens = struct.unpack("<3i", header[:12])
    if magic not in _LLM_C:
        raise UsageError(
            f"{path}: begins with {magic}, expected {' or '.join(map(str, _LLM_C))} as in files of "
            "llm.c: --from nanogpt reads files without a header"
        )
    expected, dtype = _LLM_C[magic]
    if version != expected:
        raise UsageError(f"{path}: version {version}, expected {expected}")
    n_bytes = _LLM_C_BYTES + n_tokens * np.dtype(dtype).itemsize
    if n_tokens < 0 or path.stat().st_size != n_bytes:
        raise VerifyError(
            f"{path}: {plural(path.stat().st_size, 'byte')}, expected {n_bytes:,} for the "
            f"{plural(n_tokens, 'token')} of its header"
        )
    return magic, n_tokens


def _find_litdata(path: Path, split: str, dtype: str) -> list[TokenFile]:
    """Return the chunks of a directory with `index.json`, or the one that is named."""
    folder = path if path.is_dir() else path.parent
    index = folder / _LITDATA_INDEX
    if not index.is_file():
        raise UsageError(f"{path}: expected a directory with {_LITDATA_INDEX} and its chunks")
    with storage_errors(index):
        content = read_named(index)
    try:
        kind, stream = _litdata_stream(json.loads(content), folder)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise VerifyError(f"{index}: no index of litdata ({error})") from None
    files = [
        TokenFile(
            body.path, split, kind, body.n_tokens, first_byte=body.first_byte, header=index,
            stream=stream, number=number,
        )
        for number, body in enumerate(stream)
        if path in (folder, index, body.path)
    ]  # fmt: skip
    if not files:
        raise UsageError(f"{path}: is no chunk of {index}")
    for file in files:
        _check_chunk(file)
    return files


def _litdata_stream(index: Mapping[str, Any], folder: Path) -> tuple[np.dtype[Any], list[Body]]:
    """Return the type of the tokens, and the chunks that an index lists.

    Raises:
        UsageError: they are compressed or encrypted, or hold anything but ids.
        ValueError: the index is damaged; or another error of wrong values.
    """
    where, config = folder / _LITDATA_INDEX, index["config"]
    for name in ("compression", "encryption"):
        if config.get(name):
            raise UsageError(
                f"{where}: chunks with {name} {str(config[name])[:40]!r} are not read: write them "
                "without (litdata.optimize)"
            )
    formats = list(config["data_format"])
    serializer, _, number = str(formats[0]).partition(":")
    of_serializer = _LITDATA_TYPES.get(serializer, {})
    kind = of_serializer.get(int(number)) if number.isdecimal() else None
    if kind is None or len(formats) != 1:
        raise UsageError(
            f"{where}: holds {', '.join(map(str, formats))[:80]}, expected one array of ids, as "
            "TokensLoader reads it"
        )
    bodies = []
    for chunk in index["chunks"]:
        name, n_items, n_tokens = chunk["filename"], chunk["chunk_size"], chunk["dim"]
        if not name or Path(name).name != name:
            raise ValueError(f"a chunk {name!r}")
        first_byte = 4 * (_count(n_items) + 2)
        if n_tokens is None:
            n_tokens = ((folder / name).stat().st_size - first_byte) // np.dtype(kind).itemsize
        bodies.append(Body(folder / name, _count(n_tokens), first_byte))
    return np.dtype(kind), bodies


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a number, found {value!r}")
    return value


def _check_chunk(file: TokenFile) -> None:
    """Check the size of a chunk and its number of items; raises `VerifyError`."""
    if not file.path.is_file():
        raise VerifyError(f"{file.path}: {_LITDATA_INDEX} lists it, and there is no such file")
    n_bytes, n_items = file.first_byte + file.n_bytes, file.first_byte // 4 - 2
    with read_errors(file.path), open_regular(file.path, follow_links=True) as opened:
        found = int.from_bytes(opened.read(4), "little")
        size = file.path.stat().st_size
    if (size, found) != (n_bytes, n_items):
        raise VerifyError(
            f"{file.path}: {plural(size, 'byte')} of {plural(found, 'item')}, expected "
            f"{n_bytes:,} of {n_items:,} by {_LITDATA_INDEX}"
        )


MEGATRON = Importer("Megatron-LM", _find_megatron, _read_megatron)
DATATROVE = Importer("datatrove", _find_datatrove, _read_datatrove)
NANOGPT = Importer("nanoGPT", _find_nanogpt, _read_at_eos, takes_dtype=True)
OLMO_CORE = Importer("OLMo-core", _find_olmo_core, _read_olmo_core, takes_dtype=True)
TORCHTITAN = Importer("torchtitan", _find_torchtitan, _read_torchtitan)
LLM_C = Importer("llm.c", _find_llm_c, _read_at_eos, runs_on=True)
LITDATA = Importer("litdata", _find_litdata, _read_at_eos, runs_on=True)

IMPORTERS: dict[str, Importer] = {
    "megatron": MEGATRON,
    "datatrove": DATATROVE,
    "nanogpt": NANOGPT,
    "olmo-core": OLMO_CORE,
    "torchtitan": TORCHTITAN,
    "llm.c": LLM_C,
    "litdata": LITDATA,
}
"""The layouts whose files can be read, by the name in `tokmill import --from`."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """How the files of an import are read.

    Attributes:
        trainer: the program that wrote them, a key of `IMPORTERS`.
        adds_eos: whether eos is added to documents that do not end with it.
        dtype: of ids, if the layout does not record it; ''.
        val: the paths of the files that are of the val split.
    """

    trainer: str
    adds_eos: bool = False
    dtype: str = ""
    val: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "trainer": self.trainer,
            "adds_eos": self.adds_eos,
            "dtype": self.dtype,
            "val": list(self.val),
        }

    @classmethod
    def of(cls, entry: TokenRulesEntry) -> TokenRules:
        """Return the rules that a plan states; raises `ValueError` for another trainer."""
        if entry.trainer not in IMPORTERS:
            raise ValueError(f"trainer {entry.trainer!r}")
        return cls(entry.trainer, entry.adds_eos, entry.dtype, entry.val)

    def open(self, file: SourceFile) -> TokenFile:
        """Return a file of the plan, with what stands beside it.

        Raises:
            TokmillError: it is damaged, or gone.
            StorageError: a file beside it is not the one of the plan.
        """
        split = "val" if file.path in self.val else "train"
        opened = IMPORTERS[self.trainer].find(Path(file.path), split, self.dtype)[0]
        if opened.stamp != file.stamp:
            raise StorageError(
                f"{file.path}: a file beside it was changed since the run was planned: plan the "
                "run again, into another output or with --overwrite"
            )
        return opened
