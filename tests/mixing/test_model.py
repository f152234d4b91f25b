"""A mix of any datasets and settings is what a plain model of the whole command says."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import blake3
import numpy as np
import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.dataset.manifest import Manifest
from tokmill.dataset.reader import open_shard
from tokmill.loader.order import shuffled
from tokmill.mixing import inputs, make, selection
from tokmill.mixing.survey import Origins

RANKS = 1 << 32


@dataclass(frozen=True)
class Document:
    """A document of an input, and what is known of it."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    weights: tuple[float, ...]
    path: str
    source: str
    record: int
    number: int = 0
    is_marked: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        return self.ids, self.mask, self.weights, self.path, self.record


def documents_of(dataset: Dataset, split: str) -> list[Document]:
    """Return what a reader finds in a split."""
    own = dataset.split(split)
    names = {row["path"]: row.get("name", "") for row in dataset.manifest["sources"]}
    manifest = Manifest.of(dataset.manifest, own.directory)
    entries = {entry.name: entry for entry in manifest.shards}
    documents: list[Document] = []
    for entry in own.shards:
        shard = open_shard(own.directory, manifest, entries[entry.name])
        for k in range(len(shard.lengths)):
            span, origin = shard.span(k), own.origin(len(documents))
            ids, mask, weights = (
                () if body is None else tuple(body[span].tolist())
                for body in (shard.tokens, shard.mask, shard.weights)
            )
            name, number = names[origin.path], len(documents)
            documents.append(Document(ids, mask, weights, origin.path, name, origin.record, number))
    return documents


def third(ids: np.ndarray, lengths: np.ndarray, origins: Origins) -> np.ndarray:
    """Refuse every third record, and documents with an odd first id."""
    first = ids[np.cumsum(lengths) - lengths]
    return (origins.records % 3 != 0) & (first % 2 == 0)


def is_refused(document: Document, asked: dict[str, Any], itemsize: int) -> bool:
    """Return whether a filter leaves a document out."""
    n = len(document.ids)
    kind = {2: np.uint16, 4: np.uint32}[itemsize]
    digest = blake3.blake3(np.array(document.ids, kind).tobytes())
    digest.update(bytes(document.mask))
    listed = asked.get("listed", [])
    return (
        n < asked.get("min_tokens", 0)
        or n > (asked.get("max_tokens") or n)
        or (bool(asked.get("where")) and (document.record % 3 == 0 or document.ids[0] % 2 == 1))
        or {"source": document.path, "record": document.record} in listed
        or {"hash": digest.digest(16).hex()} in listed
    )


def expected(
    datasets: list[Dataset], requests: list[tuple[int, str, str]], asked: dict[str, Any]
) -> dict[str, list[Document]]:
    """Return the documents of a mix by split, in order; `requests`: input, source and amount."""
    is_wide = asked["dtype"] or any(d.manifest["dtype"] == "uint32" for d in datasets)
    itemsize = 4 if is_wide else 2
    n_all = [len(dataset.split("train")) for dataset in datasets]
    request_of = {
        (i, path_or_name): r
        for r, (i, source, _) in enumerate(requests)
        for path_or_name in ([source] if source else [None])
    }

    def request(i: int, document: Document) -> int | None:
        for name in (None, document.path, document.source, Path(document.path).name):
            if (i, name) in request_of:
                return request_of[i, name]
        return None

    seen: set[Any] = set()
    kept: dict[str, list[list[Document]]] = {}
    for split in ("val", "train"):
        kept[split] = []
        for i, dataset in enumerate(datasets):
            own = []
            for document in documents_of(dataset, split):
                if is_refused(document, asked, itemsize) or request(i, document) is None:
                    continue
                key = document.ids, document.mask
                if asked.get("dedup") == "drop" and key in seen:
                    continue
                seen.add(key)
                own.append(document)
            kept[split].append(own)

    def size(document: Document) -> int:
        return sum(document.mask) if asked.get("count") == "trained" else len(document.ids)

    available = [0] * len(requests)
    for i, own in enumerate(kept["train"]):
        for document in own:
            if (r := request(i, document)) is not None:
                available[r] += size(document)
    amounts = [amount for _, _, amount in requests]
    if not all(available) and not amounts[0].endswith("x"):
        return {}
    if amounts[0].endswith("x"):
        wanted = [int(Fraction(a[:-1]) * n) for a, n in zip(amounts, available, strict=True)]
    else:
        shares = [Fraction(a) / sum(map(Fraction, amounts)) for a in amounts]
        budget = asked.get("tokens") or min(n / s for n, s in zip(available, shares, strict=True))
        wanted = [int(s * budget) for s in shares]
    times: dict[tuple[int, int], int] = {}
    for r, (i, _, _) in enumerate(requests):
        own = [d for d in kept["train"][i] if request(i, d) == r]
        epochs, rest = divmod(wanted[r], max(1, available[r]))
        ranks = {
            d.number: int(shuffled([d.number], n_all[i], seed=asked.get("shuffle", 0) or 0,
                                   stream=RANKS + r)[0])
            for d in own
        }  # fmt: skip
        in_rank = sorted(own, key=lambda d: ranks[d.number])
        sums = list(itertools.accumulate(map(size, in_rank)))
        more = {d.number for d, n in zip(in_rank, sums, strict=True) if n <= rest}
        if not rest:
            more = set()
        for d in own:
            times[i, d.number] = epochs + (d.number in more)
    order: dict[str, list[Document]] = {
        "val": [d for i, own in enumerate(kept["val"]) for d in own if request(i, d) is not None],
        "train": [],
    }
    for i, own in enumerate(kept["train"]):
        for repeat in range(max((times.get((i, d.number), 0) for d in own), default=0)):
            order["train"] += [d for d in own if times.get((i, d.number), 0) > repeat]
    if asked.get("shuffle") is not None:
        for split, own in order.items():
            places = shuffled(range(len(own)), len(own), seed=asked["shuffle"]) if own else []
            at = dict(zip(map(int, places), own, strict=True))
            order[split] = [at[i] for i in range(len(own))]
    seen = set()
    for split in ("val", "train"):
        for i, document in enumerate(order[split]):
            key = document.ids, document.mask
            order[split][i] = replace(document, is_marked=key in seen)
            seen.add(key)
    return order


def make_pool(kind: str, root: Path) -> list[Dataset]:
    """Make datasets of a kind: several sources, shards, fractions of val, equal texts."""
    rng = random.Random(0)

    def text_file(name: str, n: int, longest: int) -> Path:
        rows = []
        for _ in range(n):
            words = " ".join(rng.choice("ab") for _ in range(1 + rng.randrange(longest) ** 2 // 9))
            rows.append({"text": words if rng.random() < 0.95 else ""})
        path = root / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{bad\n")
        return path

    def chat_file(name: str, n: int) -> Path:
        rows = []
        for _ in range(n):
            chat = [
                {"role": "user", "content": f"q {rng.randrange(9)}"},
                {"role": "assistant", "content": f"a {rng.randrange(4)} " * rng.randrange(1, 9)},
            ]
            rows.append({"messages": chat, "weight": rng.choice([0.5, 2.0])})
        path = root / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    made = itertools.count()

    def pretrain(*inputs: Any, **more: Any) -> Dataset:
        return tokmill.pretrain(
            *inputs, tokenizer=TOKENIZER, output=root / f"p{next(made)}", progress=False,
            max_reject_fraction=1.0, **more,
        )  # fmt: skip

    if kind == "text":
        files = [text_file(f"t{i}.jsonl", n, 12) for i, n in enumerate((90, 40, 150, 1))]
        return [
            pretrain(files[0], val_fraction=0.2, part_bytes=600, shard_tokens=90),
            pretrain(files[:3], val_fraction=0.1, part_bytes=900),
            pretrain(
                [tokmill.Source("one", [files[1], files[3]]), tokmill.Source("two", files[2])],
                part_bytes=2000, checksum="sha256",
            ),
            pretrain(files[3], val_fraction=0.9),
        ]  # fmt: skip
    chat_files = [chat_file(f"c{i}.jsonl", n) for i, n in enumerate((60, 25))]
    return [
        tokmill.sft(
            chat_files[k:], tokenizer=TOKENIZER, output=root / f"s{k}", progress=False,
            val_fraction=0.2 * k, part_bytes=1500, weights="file", packing=256, max_tokens=256,
            packed_rows=True,
        )
        for k in (0, 1)
    ]  # fmt: skip


def asked_of(rng: random.Random, n: int, *, is_chat: bool) -> dict[str, Any]:
    """Return random settings; numbers choose inputs out of `n`."""
    chosen = rng.sample(range(n), rng.randint(1, 3))
    is_share = rng.random() < 0.5
    amounts = SHARES if is_share else EPOCHS
    asked: dict[str, Any] = {
        "inputs": [(i, rng.choice(amounts)) for i in chosen],
        "are_sources": [rng.random() < 0.5 for _ in chosen],
        **{name: rng.choice(values) for name, values in CHOICES.items()},
    }
    if is_share:
        asked["tokens"] = rng.choice([0, 1, 100, 1000, 3000])
    if is_chat:
        asked["count"] = rng.choice(["all", "trained"])
    return asked


@pytest.mark.slow(reason="six mixes, each compared document by document with a model")
@pytest.mark.parametrize("kind", ["text", "chat"])
def test_a_mix_is_what_a_model_says(kind, tmp_path) -> None:
    datasets = make_pool(kind, tmp_path)
    for seed in range(MOST):
        asked = asked_of(random.Random(seed), len(datasets), is_chat=kind == "chat")
        mixed = check_mix(datasets, asked, tmp_path / f"m{seed}")
        if mixed and len(datasets) < 7 and 0 < len(mixed) < 400:
            datasets.append(mixed)


def check_mix(pool: list[Dataset], asked: dict[str, Any], output: Path) -> Dataset | None:
    """Make a mix and compare it with the model; None if nothing is left."""
    own: list[Dataset] = []
    requests: list[tuple[int, str, str]] = []
    names: list[str] = []
    for (i, amount), is_source in zip(asked["inputs"], asked["are_sources"], strict=True):
        dataset = pool[i]
        paths = list(dict.fromkeys(row["path"] for row in dataset.manifest["sources"]))
        for path in paths if is_source else [""]:
            requests.append((len(own), path, amount))
            name = f"{dataset.directory}#{path}" if path else str(dataset.directory)
            names.append(f"{name}={amount}")
        own.append(dataset)
    keywords = {k: v for k, v in asked.items() if k not in INTERNAL}
    if len({dataset.manifest["dtype"] for dataset in own}) > 1:
        keywords["dtype"] = "uint32"
    if asked["n_listed"]:
        of_first = documents_of(own[0], "train")[: asked["n_listed"]]
        asked["listed"] = [{"source": d.path, "record": d.record} for d in of_first]
        path = output.with_suffix(".jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in asked["listed"]))
        keywords["drop"] = [path]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "CHUNK_TOKENS", asked["chunk_tokens"])
        patch.setattr(selection, "_RANGES", 1 << 3)
        patch.setattr(make, "BUCKET_DOCUMENTS", 50)
        wanted = expected(own, requests, asked)
        if not any(wanted.values()):
            with pytest.raises(tokmill.TokmillError, match="no document"):
                tokmill.mix(names, output=output, progress=False, workers=1, **keywords)
            return None
        mixed = tokmill.mix(names, output=output, progress=False, workers=1, **keywords)
    mixed.verify()
    for split in ("val", "train"):
        assert [d.key for d in documents_of(mixed, split)] == [d.key for d in wanted[split]]
        if asked["dedup"] == "mark" and wanted[split]:
            marks = np.fromfile(output / f"duplicates-{split}.bin", np.uint8)
            assert marks.tolist() == [int(d.is_marked) for d in wanted[split]]
    if asked["dedup"] == "mark":
        n_marked = sum(d.is_marked for split in wanted.values() for d in split)
        assert mixed.manifest["mix"]["duplicates"] == n_marked
    check_counts(mixed, own)
    return mixed


SHARES = ["1", "0.25", "3", "0.001", "1e12", "1e-9", "2.5", "0.3"]
EPOCHS = ["1x", "1x", "2x", "0.5x", "2.5x", "0.01x", "3.99x"]
CHOICES: dict[str, list[Any]] = {
    "shuffle": [None, None, 0, 7],
    "dedup": [None, None, "drop", "mark"],
    "shard_tokens": [0, 0, 60, 700],
    "dtype": [None, None, "uint32"],
    "min_tokens": [0, 0, 3],
    "max_tokens": [0, 0, 0, 20],
    "where": [None, None, f"{__name__}:third"],
    "n_listed": [0, 0, 5],
    "chunk_tokens": [50, 400, 1 << 20],
}
INTERNAL = ("inputs", "are_sources", "n_listed", "chunk_tokens", "listed")
MOST = 6


def check_counts(mixed: Dataset, own: list[Dataset]) -> None:
    """Check that the manifest counts what stands in the files."""
    told = mixed.manifest
    read = [d for split in ("val", "train") for d in documents_of(mixed, split)]
    n_documents, n_tokens = Counter[str](), Counter[str]()
    for document in read:
        n_documents[document.path] += 1
        n_tokens[document.path] += len(document.ids)
    by_path = {"documents": Counter[str](), "tokens": Counter[str]()}
    for row in [*told["sources"], told["totals"]]:
        drops, rejects = sum(row["drops"].values()), sum(row["rejects"].values())
        assert row["records"] + row.get("extra", 0) == row["documents"] + drops + rejects
        if "path" in row:
            for key, counter in by_path.items():
                counter[row["path"]] += row[key]
    assert +by_path["documents"] == n_documents
    assert +by_path["tokens"] == n_tokens
    assert told["totals"]["tokens"] == sum(n_tokens.values())
    assert told["totals"].get("trained_tokens", 0) == sum(sum(d.mask) for d in read)
    assert told["totals"]["records"] == sum(d.manifest["totals"]["records"] for d in own)
    histogram = Counter(len(d.ids).bit_length() - 1 for d in read)
    assert {i: n for i, n in enumerate(told["length_histogram"]) if n} == histogram
