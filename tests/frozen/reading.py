"""What is read from a dataset through every door: what must not change for frozen ones."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.dataset.packing import Packs
from tokmill.errors import VerifyError

EXPORTS = {
    ("pretrain", "uint16"): ("nanogpt", "megatron", "llm.c"),
    ("pretrain", "uint32"): ("megatron", "datatrove"),
    ("sft", "uint16"): ("datatrove", "olmo-core"),
    ("sft", "uint32"): ("olmo-core",),
}
"""Trainers by kind and dtype of the dataset: those whose bytes depend on no other library."""

RECORD = "tokmill-export.json"
"""Names the directory, the version and the sums of an export."""

DAMAGES = (
    "documents: train-0000000-0000.bin cut",
    "documents: train-0000000-0000.bin changed",
    "documents: train-0000001-0000.idx changed",
    "documents: train-0000001-0000.origin removed",
    "documents: plan.json removed",
    "documents: manifest.json cut",
    "documents: manifest.json changed",
    "sha256: train-0000000-0000.bin changed",
    "kept: train-0000000-0000.meta changed",
    "chats: train-0000000-0000.mask changed",
    "chats-weights: train-0000000-0000.weight cut",
    "chats-packed: packs-train-samples.bin changed",
    "chats-rows: packed-train-0000.mask removed",
    "packed: packs-train-16-fragment-pieces.bin changed",
    "rejects: rejects/0000000.jsonl changed",
    "mix: tokenizer.zst changed",
    "mix-chats: duplicates-train.bin removed",
    "imported: parts/0000000.json changed",
)


def reading_of(directory: Path) -> dict[str, Any]:
    """Return everything that readers, verify, loader, mixes and exports make of a dataset."""
    with tokmill.open(directory) as dataset:
        found = {**described(dataset), **contents(dataset)}
    found["verify"] = verified(directory)
    found["windows"] = windows(directory)
    found["packs"] = packs(directory)
    found["mixed"] = mixed(directory)
    found["exports"] = exports(directory, found["kind"], found["dtype"])
    return found


def interrupted_reading(directory: Path) -> dict[str, Any]:
    """Return what is expected of a run that was stopped, once it is continued."""
    shutil.copytree(directory, "continued")
    return reading_of(continued("continued"))


def continued(output: str) -> Path:
    """Continue the run of several parts that was stopped."""
    from tests.frozen.make import pretrain

    pretrain(part_bytes=120)(output)
    return Path(output)


def described(dataset: Dataset) -> dict[str, Any]:
    """Return kind, counts and shards of a dataset."""
    totals = dataset.manifest["totals"]
    return {
        "kind": dataset.kind,
        "dtype": dataset.manifest["dtype"],
        "totals": {key: value for key, value in totals.items() if key != "checks"},
        "shards": [f"{s.name}: {s.documents} documents, {s.tokens} tokens" for s in dataset.shards],
    }


def contents(dataset: Dataset) -> dict[str, Any]:
    """Return texts, ids, masks, weights, origins and kept fields of all documents."""
    numbers = range(len(dataset))
    found: dict[str, Any] = {"texts": [dataset.text(i) for i in numbers]}
    found["ids"] = sum_of(*dataset)
    if dataset.kind == "sft":
        found["masks"] = ["".join(map(str, dataset.mask(i).tolist())) for i in numbers]
    if dataset.manifest.get("config", {}).get("sft", {}).get("weights") == "file":
        found["weights"] = [" ".join(f"{w:g}" for w in dataset.weight(i)) for i in numbers]
    if "first_slice" in dataset.manifest["shards"][0]:
        places = [dataset.origin(i) for i in numbers]
        found["origins"] = [f"{one.path}: record {one.record}, byte {one.byte}" for one in places]
    if "keep" in dataset.manifest:
        found["kept"] = [json.dumps(dataset.meta(i)) for i in numbers]
    return found


def verified(directory: Path) -> list[str]:
    """Return the counts of a verification, and its problems."""
    seen = tokmill.verify(directory)
    counts = f"{seen.n_shards} shards, {seen.n_documents} documents, {seen.n_tokens} tokens"
    return [counts, f"{seen.n_decoded} decoded", *seen.problems]


def windows(directory: Path) -> dict[str, str]:
    """Return the sums of all rows of eight tokens that the loader reads of train."""
    source = tokmill.loader.windows(directory, 8, shift=True, document_ids=True, position_ids=True)
    rows = source.batch(range(len(source)))
    return {name: sum_of(values) for name, values in rows.items()}


def packs(directory: Path) -> dict[str, Any]:
    """Return the rows of each split that is packed, and the sums of what the loader reads."""
    found: dict[str, Any] = {}
    with tokmill.open(directory) as dataset:
        for split, index in dataset.packs.items():
            rows = range(len(index.row_offsets) - 1)
            source = tokmill.loader.packs(directory, split, shift=False)
            batch = source.batch(rows)
            found[split] = {
                "rows": [_row(index, row) for row in rows],
                **{name: sum_of(values) for name, values in batch.items()},
            }
    return found


def _row(index: Packs, row: int) -> str:
    """Return the samples of a packed row, each with its first and last token."""
    pairs = zip(index.row(row).tolist(), index.row_pieces(row), strict=True)
    return ", ".join(f"{sample}[{piece.start}:{piece.stop}]" for sample, piece in pairs)


def mixed(directory: Path) -> dict[str, Any]:
    """Return the texts and sums of a shuffled mix of a dataset."""
    output = Path("mixed")
    shutil.rmtree(output, ignore_errors=True)
    tokmill.mix({str(directory): "2x"}, output=output, shuffle=3, progress=False)
    with tokmill.open(output) as dataset:
        found = contents(dataset)
        every = json.dumps(found, sort_keys=True)
        return {
            "shards": described(dataset)["shards"],
            "texts": found["texts"],
            "contents": hashlib.sha256(every.encode()).hexdigest()[:16],
        }


def exports(directory: Path, kind: str, dtype: str) -> dict[str, str]:
    """Return the sum over names and bytes of the files of each export of a dataset."""
    found = {}
    for trainer in EXPORTS[kind, dtype]:
        output = Path("exported")
        shutil.rmtree(output, ignore_errors=True)
        with tokmill.open(directory) as dataset:
            options = {"drop_weights": True} if dataset.kind == "sft" else {}
            dataset.export(trainer, output, **options)
        digest = hashlib.sha256()
        for path in sorted(output.rglob("*")):
            if path.is_file() and path.name != RECORD:
                data = path.read_bytes().replace(bytes(output.absolute()), b"exported")
                content = hashlib.sha256(data).hexdigest()
                digest.update(f"{path.relative_to(output)} {content}\n".encode())
        found[trainer] = digest.hexdigest()[:16]
    return found


def damaged_reading(damage: str) -> list[str]:
    """Damage a file of a frozen dataset, and return what a verification says."""
    name, change = damage.split(": ")
    file, how = change.split(" ")
    path = Path("datasets", name, file)
    data = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(data[:-2])
    elif how == "changed":
        path.write_bytes(data[:6] + bytes([data[6] ^ 1]) + data[7:])
    try:
        seen = tokmill.verify(f"datasets/{name}")
        seen.check(Path(f"datasets/{name}"))
    except VerifyError as error:
        return [str(error), *error.problems]
    return []


def sum_of(*arrays: Any) -> str:
    """Return the sum of numbers, end to end, whatever their type."""
    flat = [np.asarray(values).reshape(-1).astype("<f8") for values in arrays]
    return hashlib.sha256(np.concatenate(flat).tobytes()).hexdigest()[:16]
