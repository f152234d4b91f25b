"""A dataset on disk: its size by kind of file, split and source, free space, optional files.

The formulas of the kinds are the layout of docs/format.md, so a finished dataset is equal to them
to the byte; a planned one by its predicted tokens and documents.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tokmill.bill.formula import Bill, Formula, Line
from tokmill.errors import StorageError, UsageError, VerifyError
from tokmill.opening import open_regular
from tokmill.settings.training import TrainingSettings
from tokmill.urls import shown_place, store_url

ITEM_BYTES = {"uint16": 2, "uint32": 4}
"""Bytes per token, by dtype in the manifest."""
SHARD_BYTES = 1 << 30
"""Maximum size of a shard if `shard_tokens` is not set."""


@dataclass(frozen=True, slots=True)
class DatasetSize:
    """The size of a dataset.

    Attributes:
        kind: "pretrain" or "sft".
        tokens: all tokens, those for validation too.
        documents: all documents, those for validation too.
        item_bytes: bytes per token id, 2 or 4.
        mask: whether there is a loss mask, 1 byte per token.
        weights: whether there are loss weights, 4 bytes per token.
        shards: number of shards.
        largest_shard_tokens: tokens of the largest shard.
        vocabulary: largest id + 1.
        length_histogram: element i counts documents of 2^i to 2^(i+1) - 1 tokens.
        capacity: tokens of a packed row; 0: not packed.
        packed_rows: whether the packed rows are written as shards too.
        small_ids: share of ids below 257, whose Python integers exist only once; not in a manifest.
        val_tokens: tokens for validation.
        val_documents: documents for validation.
        train_rows: rows of packing for training; 0: not packed, or not known yet.
    """

    kind: str
    tokens: int
    documents: int
    item_bytes: int
    mask: bool = False
    weights: bool = False
    shards: int = 1
    largest_shard_tokens: int = 0
    vocabulary: int = 0
    length_histogram: tuple[int, ...] = ()
    capacity: int = 0
    packed_rows: bool = False
    small_ids: float = 0.0
    val_tokens: int = 0
    val_documents: int = 0
    train_rows: int = 0

    @property
    def train_tokens(self) -> int:
        """Tokens of an epoch of training."""
        return self.tokens - self.val_tokens

    @property
    def bytes_per_token(self) -> int:
        """Bytes per token with its loss mask and weight."""
        return self.item_bytes + self.mask + 4 * self.weights


def dataset_size(manifest: Mapping[str, Any]) -> DatasetSize:
    """Return the size of a finished dataset from its manifest."""
    shards = [shard["tokens"] for shard in manifest["shards"]]
    sft = manifest["config"].get("sft") or {}
    packs = manifest.get("packs", {})
    own: Mapping[str, Any] = packs.get("train") or next(iter(packs.values()), {})
    val = [shard for shard in manifest["shards"] if shard["split"] == "val"]
    return DatasetSize(
        kind=manifest.get("kind", "pretrain"),
        tokens=manifest["totals"]["tokens"],
        documents=manifest["totals"]["documents"],
        item_bytes=ITEM_BYTES[manifest["dtype"]],
        mask="mask" in manifest,
        weights=sft.get("weights") == "file",
        shards=len(shards),
        largest_shard_tokens=max(shards, default=0),
        vocabulary=manifest["tokenizer"]["vocab_size"],
        length_histogram=tuple(map(int, manifest["length_histogram"])),
        capacity=sft.get("packing", 0) or own.get("capacity", 0),
        packed_rows=sft.get("packed_rows", False),
        val_tokens=sum(shard["tokens"] for shard in val),
        val_documents=sum(shard["documents"] for shard in val),
        train_rows=packs.get("train", {}).get("rows", 0),
    )


def assumed_size(training: TrainingSettings, vocabulary: int) -> DatasetSize | None:
    """Return the size of a pretraining dataset that settings describe; None if they do not.

    The setting `dataset_bytes` is its size, else `tokens` divided by `epochs`. A token has 2 bytes,
    or 4 if the vocabulary needs them, and one more with `with_masks`; a shard has at most 1 GiB.
    The number of documents is 0.
    """
    item_bytes = 2 if vocabulary <= 1 << 16 else 4
    tokens = round(training.tokens / training.epochs) if training.epochs else 0
    if training.dataset_bytes:
        tokens = training.dataset_bytes // item_bytes
    if not tokens:
        return None
    shards = -(-tokens * item_bytes // SHARD_BYTES)
    return DatasetSize(
        "pretrain", tokens, 0, item_bytes,
        mask=training.with_masks, shards=shards, largest_shard_tokens=-(-tokens // shards),
        vocabulary=vocabulary,
    )  # fmt: skip


_LAYOUT, _EXACT, _LISTED = "docs/format.md", "none", "sizes of the files"
_ROWS = "the fewest rows that hold the tokens; best fit needs 0 to 5% more"

TOKENS = Formula("tokens (.bin)", "q * T", _LAYOUT, _EXACT)
INDEX = Formula("document index (.idx)", "42 * files + 20 * D", _LAYOUT, _EXACT)
MASKS = Formula("loss masks (.mask)", "T", _LAYOUT, _EXACT)
LOSS_WEIGHTS = Formula("loss weights (.weight)", "4 * T", _LAYOUT, _EXACT)
ORIGINS = Formula("origins (.origin)", "found", _LISTED, _EXACT)
EXPECTED_ORIGINS = Formula(
    "origins (.origin)", "4 * D", "measured: 2 to 4 B a document", "lower for short records, tables"
)
METADATA = Formula("metadata columns (.meta)", "found", _LISTED, _EXACT)
MARKS = Formula("marks of documents", "found", _LISTED, _EXACT)
PACK_INDEX = Formula("pack index", "8 * (D + rows + splits)", _LAYOUT, _EXACT)
PIECE_INDEX = Formula("pack index of pieces", "16 * pieces + 8 * (rows + splits)", _LAYOUT, _EXACT)
PACKED_ROWS = Formula(
    "packed rows", "(q + beside) * rows * row_tokens + 42 * files + 20 * rows", _LAYOUT, _EXACT
)
REJECTS = Formula("rejects", "found", _LISTED, _EXACT)
RECORDS = Formula("records of parts", "found", _LISTED, _EXACT)
LISTS = Formula("manifest and plan", "found", _LISTED, _EXACT)
UNLISTED = Formula("not in the manifest", "found", _LISTED, _EXACT)
KEPT_TOKENIZER = Formula("tokenizer", "tokenizer", _LAYOUT, _EXACT)
BOOKKEEPING = Formula(
    "manifest, plan and records of parts",
    "settings + 2000 * files + 350 * slices",
    "measured: 3,600 B, of chats 8,600 B; 2,000 B a shard, 350 B an input file by a path of 40 "
    "characters",
    "a factor of two; negligible for a large dataset",
)

ADD_MASKS = Formula("loss masks", "T", _LAYOUT, _EXACT)
ADD_UINT32 = Formula("uint32 instead of uint16", "2 * T", _LAYOUT, _EXACT)
ADD_PACKS = Formula("packing: the index", "8 * (D + rows + 1)", _LAYOUT, _ROWS)
ADD_ROWS = Formula(
    "packing: the padded rows", "(q + beside) * rows * row_tokens + 20 * rows + 42", _LAYOUT, _ROWS
)
EXPORT_LINKED = Formula(
    "nanoGPT, Megatron, OLMo-core, nanotron: the same .bin, linked",
    "0",
    "they read a raw body of ids; Megatron the .idx too, OLMo-core and datatrove the .mask",
    "without the small lists beside it",
)
EXPORT_INDEX = Formula(
    "datatrove, nanotron: .ds.index", "8 * D", "datatrove 0.10.1, its reader", _EXACT
)
EXPORT_HEADED = Formula(
    "llm.c, modded-nanogpt, litdata: a second .bin, with a header",
    "q * T + 1024 * files",
    "llm.c f1e2ace, its dataloader.h: a header of 256 int32",
    "files of at most 2^31 B may need more headers",
)
MEGATRON_CACHE = Formula(
    "Megatron's indices, cached at load",
    "4 * ceil(epochs) * D + 12 * epochs * T / s",
    "Megatron-LM d98e8a64: document index int32, sample index 2 int32, shuffle index uint32",
    "npy headers and its second split left out",
)

_SETTINGS_BYTES, _SETTINGS_OF_CHATS_BYTES = 3600, 8600
"""Of manifest, plan and record without shards and files: of chats they have masks and counters."""

_LISTS = ("manifest.json", "plan.json", "tokenizer.zst")
_FOLDERS = {"rejects": REJECTS, "parts": RECORDS}
_BODIES = {"bin": TOKENS, "idx": INDEX, "mask": MASKS, "weight": LOSS_WEIGHTS, "origin": ORIGINS}
_BODIES["meta"] = METADATA


class OpenDataset(Protocol):
    """A dataset that is open, such as `tokmill.Dataset`."""

    directory: Path
    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """Size and contents of a split or a source; all shares add up to the total."""

    name: str
    documents: int
    tokens: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class DatasetDisk:
    """A finished dataset on disk: `bill` by kind of file, shares by split and by source.

    `unlisted` names files in its directory that the manifest does not list. `text_bytes` is the
    size of the rendered text, `input_bytes` that of the input files (compressed, if they are); 0:
    not counted.
    """

    bill: Bill
    splits: tuple[Share, ...]
    sources: tuple[Share, ...]
    unlisted: tuple[str, ...]
    dtype: str
    tokens: int
    text_bytes: int
    input_bytes: int


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A dataset on the disk.

    Attributes:
        directory: its directory; "" if settings describe the dataset.
        size: its tokens and documents.
        bill: bytes by kind of file.
        free_bytes: free space of the file system; None in a store, and if settings describe the
            dataset.
        found: splits, sources and files; None if settings describe the dataset.
    """

    directory: str
    size: DatasetSize
    bill: Bill
    free_bytes: int | None
    found: DatasetDisk | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as under `disk` of `tokmill report --json`."""
        files = None if self.found is None else asdict(self.found)
        if files:
            del files["bill"]
            files["bytes_per_token"] = self.bill.n_bytes / max(1, files["tokens"])
        return {
            "directory": self.directory,
            "free_bytes": self.free_bytes,
            "dataset": self.bill.as_json(),
            "found": files,
        }


def read_dataset(dataset: str | Path | OpenDataset) -> tuple[Path, dict[str, Any]]:
    """Return the directory and the manifest of a finished dataset.

    Raises:
        UsageError: there is no dataset.
        VerifyError: its manifest is damaged.
    """
    if not isinstance(dataset, str | os.PathLike):
        if not hasattr(dataset, "manifest"):
            kind = type(dataset).__name__
            raise UsageError(f"dataset: expected a directory or an open Dataset, found {kind}")
        return dataset.directory, dataset.manifest
    directory = Path(dataset)
    try:
        with open_regular(directory / "manifest.json", follow_links=True) as file:
            manifest = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{directory}: not a tokmill dataset: no manifest.json") from None
    except OSError as error:
        raise StorageError(f"{directory}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise VerifyError(f"{directory / 'manifest.json'}: damaged manifest: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config", {}), dict):
        raise VerifyError(f"{directory / 'manifest.json'}: damaged manifest: expected an object")
    return directory, manifest


def on_disk(directory: Path, manifest: Mapping[str, Any]) -> OnDisk:
    """Return the size of a finished dataset; of one in a store, by its manifest alone.

    Raises:
        VerifyError: a file is missing, or its size differs from the manifest.
        StorageError: the directory cannot be read.
    """
    where, is_stored = shown_place(directory), bool(store_url(directory))
    try:
        sizes = _listed_sizes(manifest) if is_stored else _file_sizes(directory)
        files = dataset_disk(manifest, sizes)
        free = None if is_stored else shutil.disk_usage(directory).free
        return OnDisk(where, dataset_size(manifest), files.bill, free, files)
    except OSError as error:
        raise StorageError(f"{where}: {(error.strerror or str(error)).lower()}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerifyError(f"{where}/manifest.json: damaged manifest: {error!r}") from None


def assumed_disk(training: TrainingSettings, vocabulary: int) -> OnDisk | None:
    """Return the dataset that settings describe by its size; None if they do not."""
    size = assumed_size(training, vocabulary)
    return None if size is None else OnDisk("", size, predicted_disk(size, slices=0), None)


def predicted_disk(
    size: DatasetSize,
    *,
    slices: int,
    rows: int = 0,
    splits: int = 1,
    tokenizer_bytes: int = 0,
    error: float = 0.0,
) -> Bill:
    """Return the disk space of a dataset that does not exist yet.

    Args:
        size: the predicted size.
        slices: number of pieces into which the input is divided.
        rows: number of packed rows; 0: the fewest that are possible.
        splits: number of splits with documents.
        tokenizer_bytes: of the file of the tokenizer.
        error: relative error of the prediction: the bounds are the amounts divided and multiplied
            by 1 + error. Manifest and plan are known within a factor of two at best.
    """
    symbols = {**_symbols(size), "slices": slices, "splits": splits, "tokenizer": tokenizer_bytes}
    kinds = [TOKENS, INDEX, EXPECTED_ORIGINS] + [MASKS] * size.mask + [LOSS_WEIGHTS] * size.weights
    if size.capacity:
        symbols |= {"rows": rows or -(-size.tokens // size.capacity), "row_tokens": size.capacity}
        symbols["pieces"] = size.documents + size.tokens // size.capacity  # at most
        kinds += [PACK_INDEX if size.mask else PIECE_INDEX] + [PACKED_ROWS] * size.packed_rows

    symbols["settings"] = _SETTINGS_OF_CHATS_BYTES if size.mask else _SETTINGS_BYTES
    if tokenizer_bytes:
        kinds.append(KEPT_TOKENIZER)

    def line(kind: Formula) -> Line:
        n_bytes = kind.evaluate(symbols)
        factor = 1 + error
        if kind is BOOKKEEPING:
            factor = max(factor, 2.0)
        elif kind is KEPT_TOKENIZER:  # it is compressed before the bill
            factor = 1.0
        low, high = round(n_bytes / factor), round(n_bytes * factor)
        return kind.line(symbols, low_bytes=low, high_bytes=high)

    left_out = ("rejects", "a second split's packing")
    return Bill("disk: the dataset", tuple(map(line, [*kinds, BOOKKEEPING])), left_out)


def additions(size: DatasetSize, *, sequence: int, epochs: float) -> tuple[Line, ...]:
    """Return the disk space that each choice would add; alternatives, so there is no total.

    Args:
        size: of the dataset.
        sequence: tokens of a training sequence, more than 0, and of a packed row.
        epochs: passes over the dataset.
    """
    capacity = size.capacity or sequence
    rows = -(-size.tokens // capacity)
    symbols = _symbols(size) | {"row_tokens": capacity, "rows": rows, "s": sequence}
    symbols["epochs"] = epochs
    choices = {
        ADD_MASKS: not size.mask,
        LOSS_WEIGHTS: size.mask and not size.weights,
        ADD_UINT32: size.item_bytes == 2,
        ADD_PACKS: size.mask and not size.capacity,
        ADD_ROWS: size.mask and not size.packed_rows,
    }
    own = [formula for formula, is_possible in choices.items() if is_possible]
    exports = (EXPORT_LINKED, EXPORT_INDEX, EXPORT_HEADED, MEGATRON_CACHE)
    return tuple(formula.line(symbols) for formula in (*own, *exports))


def dataset_disk(manifest: Mapping[str, Any], sizes: Mapping[str, int]) -> DatasetDisk:
    """Return the disk space of a finished dataset; the total is the sum of `sizes`, to the byte.

    Args:
        manifest: of the dataset.
        sizes: bytes of every file in its directory, by path relative to it.

    Raises:
        VerifyError: a file is missing, or its size differs from the manifest.
    """
    listed = {entry["name"]: entry["bytes"] for entry in manifest["files"]}
    for name, n_bytes in listed.items():
        if sizes.get(name) != n_bytes:
            actual = f"{sizes[name]:,} B" if name in sizes else "nothing"
            raise VerifyError(
                f"{name}: expected {n_bytes:,} B as in the manifest, found {actual}: "
                "the dataset is damaged, see tokmill verify"
            )
    unlisted = tuple(sorted(set(sizes) - set(listed) - {_LISTS[0]}))
    by_kind: dict[Formula, int] = {}
    for name, n_bytes in sizes.items():
        kind = UNLISTED if name in unlisted else _kind(name)
        by_kind[kind] = by_kind.get(kind, 0) + n_bytes
    totals = manifest["totals"]
    return DatasetDisk(
        Bill("disk: the dataset", tuple(_lines(manifest, by_kind))),
        tuple(_by_split(manifest, sizes)),
        tuple(_by_source(manifest, sum(sizes.values()))),
        unlisted,
        manifest["dtype"],
        totals["tokens"],
        totals.get("text_bytes", 0),
        totals.get("input_bytes", 0),
    )


def _file_sizes(directory: Path) -> dict[str, int]:
    """Return the bytes of every file in a directory and its folders, by relative path."""

    def refuse(error: OSError) -> None:
        raise error

    return {
        path.relative_to(directory).as_posix(): path.lstat().st_size
        for folder, _, names in os.walk(directory, onerror=refuse)
        for path in (Path(folder, name) for name in sorted(names))
    }


def _listed_sizes(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of every file that a manifest lists, and its own, by relative path.

    It is written as JSON without blanks, with a line for each key, and for each row of a list of
    lists or objects.
    """
    n_bytes = len(json.dumps(manifest, sort_keys=True, separators=(",", ":")))
    n_bytes += 2 + len(manifest)
    for value in manifest.values():
        if isinstance(value, list) and value and isinstance(value[0], list | dict):
            n_bytes += 1 + len(value)
    sizes = {entry["name"]: int(entry["bytes"]) for entry in manifest["files"]}
    return {**sizes, "manifest.json": n_bytes}


def _symbols(size: DatasetSize) -> dict[str, float]:
    return {
        "T": size.tokens,
        "D": size.documents,
        "files": size.shards,
        "q": size.item_bytes,
        "beside": size.bytes_per_token - size.item_bytes,
    }


def _kind(name: str) -> Formula:
    """Return the formula of a file that the manifest lists."""
    folder, _, rest = name.partition("/")
    if rest:
        return _FOLDERS[folder]
    if name in _LISTS:
        return LISTS
    if name.startswith("packs-"):
        return PIECE_INDEX if name.count("-") > 2 else PACK_INDEX  # packs-train-4096-drop-rows.bin
    if name.startswith(("duplicates-", "contaminated-")):
        return MARKS
    if name.startswith("packed-"):
        return PACKED_ROWS
    return _BODIES[name.rpartition(".")[2]]


def _lines(manifest: Mapping[str, Any], by_kind: Mapping[Formula, int]) -> Iterator[Line]:
    """Yield a line for each kind of file that exists; check that its formula gives its size."""
    packs = manifest.get("packs", {})
    symbols = {**_symbols(dataset_size(manifest)), "splits": len(packs)}
    symbols["rows"] = sum(pack["rows"] for pack in packs.values())
    symbols["pieces"] = sum(pack.get("pieces", 0) for pack in packs.values())
    symbols["row_tokens"] = max((pack["capacity"] for pack in packs.values()), default=0)
    packed = {"files": sum(len(pack.get("shards", ())) for pack in packs.values())}
    packing = PACK_INDEX, PIECE_INDEX, PACKED_ROWS, MARKS
    for kind in (*_BODIES.values(), *packing, REJECTS, RECORDS, LISTS, UNLISTED):
        n_bytes = by_kind.get(kind, 0)
        if not n_bytes:
            continue
        line = kind.line({**symbols, **(packed if kind is PACKED_ROWS else {"found": n_bytes})})
        if line.n_bytes != n_bytes:
            raise VerifyError(
                f"{kind.name}: the counts of the manifest give {line.n_bytes:,} B, found are "
                f"{n_bytes:,} B: the dataset is damaged, see tokmill verify"
            )
        yield line


def _by_split(manifest: Mapping[str, Any], sizes: Mapping[str, int]) -> Iterator[Share]:
    """Yield the splits, then all other files as a share without tokens."""
    others = sum(sizes.values())
    listed = {entry["name"] for entry in manifest["files"]}
    for split in dict.fromkeys(shard["split"] for shard in manifest["shards"]):
        shards = [shard for shard in manifest["shards"] if shard["split"] == split]
        starts = (f"{split}-", f"packs-{split}-", f"packed-{split}-")
        n_bytes = sum(n for name, n in sizes.items() if name in listed and name.startswith(starts))
        others -= n_bytes
        documents, tokens = (sum(shard[key] for shard in shards) for key in ("documents", "tokens"))
        yield Share(split, documents, tokens, n_bytes)
    yield Share("other files", 0, 0, others)


def _by_source(manifest: Mapping[str, Any], n_bytes: int) -> Iterator[Share]:
    """Yield the sources: their tokens and index entries, and the rest in proportion to tokens."""
    size = dataset_size(manifest)
    rest = n_bytes - size.bytes_per_token * size.tokens - 20 * size.documents
    tokens_before = rest_before = 0
    for source in manifest["sources"]:
        tokens_before += source["tokens"]
        rest_until = rest * tokens_before // max(1, size.tokens)
        taken = size.bytes_per_token * source["tokens"] + 20 * source["documents"]
        taken += rest_until - rest_before
        yield Share(source["path"], source["documents"], source["tokens"], taken)
        rest_before = rest_until
