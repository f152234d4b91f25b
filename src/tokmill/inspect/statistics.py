"""Statistics of a finished dataset: lengths, ids, shares of sources, duplicates.

Lengths come from the indices, ids and duplicates from all tokens, everything else from the
manifest. Shards are mapped one after the other, and memory does not grow with the dataset.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.counts import documents_by_length
from tokmill.dataset.reader import open_shard
from tokmill.dataset.sidecars import open_index
from tokmill.errors import VerifyError
from tokmill.inspect.document_hashes import DocumentHashes, Duplicates, hashes_of
from tokmill.offsets import before_first, offsets_of
from tokmill.urls import shown_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.reader import Shard

    Counts = npt.NDArray[np.int64]

CONTEXTS = (512, 2048, 4096, 8192, 32768)
PERCENTILES = (1, 10, 25, 50, 75, 90, 99)
MOST_IDS = 20
"""Ids that are named: the most frequent ones, and examples of those that never occur."""

_CHUNK_DOCUMENTS = 1 << 20
_CHUNK_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many documents have each length.

    Attributes:
        values: (m,) int64, the lengths that occur, in tokens, increasing. Documents of m lengths
            have at least m^2 / 2 tokens: so 10^12 tokens have at most 1.4 million lengths.
        counts: (m,) int64, the documents of each length.
    """

    values: Counts
    counts: Counts

    @classmethod
    def of(cls, chunks: Iterable[npt.NDArray[np.integer[Any]]]) -> Lengths:
        """Return the counts of the lengths of all documents, which come in chunks."""
        documents: Counter[int] = Counter()
        for chunk in chunks:
            values, counts = np.unique(chunk, return_counts=True)
            documents.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        values = np.array(sorted(documents), np.int64)
        return cls(values, np.array([documents[n] for n in values.tolist()], np.int64))

    @property
    def documents(self) -> Counts:
        """Return documents by length: (32,), entry i of 2^i to 2^(i + 1) - 1 tokens."""
        return self._by_length(self.counts)

    @property
    def tokens(self) -> Counts:
        """Return the tokens of these documents: (32,)."""
        return self._by_length(self.counts * self.values)

    def _by_length(self, amounts: Counts) -> Counts:
        return documents_by_length(np.maximum(self.values, 1), amounts)

    @property
    def longest(self) -> int:
        """Return the tokens of the longest document."""
        return int(self.values.max(initial=0))

    @property
    def mean(self) -> float:
        """Return the tokens of a document on average."""
        return float(self.counts @ self.values / max(1, self.counts.sum()))

    def percentile(self, percent: int) -> int:
        """Return the least length that at least `percent` of the documents do not exceed."""
        upto = np.cumsum(self.counts)
        return int(self.values[np.searchsorted(100 * upto, percent * upto[-1])])

    def summary(self) -> dict[str, Any]:
        """Return mean, longest and percentiles as plain values."""
        return {
            "mean": self.mean,
            "longest": self.longest,
            "percentiles": {str(p): self.percentile(p) for p in PERCENTILES},
        }

    def longer(self, context: int) -> int:
        """Return the documents with more tokens than a context."""
        return int(self.counts[self.values > context].sum())

    def beyond(self, context: int) -> int:
        """Return the tokens of documents after those that a context holds."""
        return int(self.counts @ np.maximum(self.values - context, 0))


def read_lengths(directory: Path, manifest: Manifest) -> Lengths:
    """Return the lengths of all documents; memory does not grow with their number.

    Raises:
        VerifyError: an index is missing or damaged.
        StorageError: it cannot be read.
    """

    def chunks() -> Iterator[npt.NDArray[np.int32]]:
        for entry in manifest.shards:
            lengths, _ = open_index(directory / f"{entry.name}.idx", entry.documents)
            for start in range(0, len(lengths), _CHUNK_DOCUMENTS):
                yield lengths[start : start + _CHUNK_DOCUMENTS]

    return Lengths.of(chunks())


@dataclass(frozen=True, slots=True)
class NamedId:
    """An id, its text ('' without a tokenizer), and how often it occurs."""

    id: int
    text: str
    count: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a dataset holds; see `tokmill.stats`.

    Attributes:
        totals: those of the manifest: `records`, `documents`, `tokens`, `text_bytes` (0: unknown),
            `trained_tokens` (SFT), and `drops` and `rejects` by reason.
        splits: `documents` and `tokens` of each split.
        sources: of each input file its `path` and the same counts as in `totals`.
        lengths: documents by length.
        prompts: documents by the tokens before their first trained one; None for pretraining.
        id_counts: (vocabulary,) int64, how often each id occurs.
        frequent: the ids that occur most, the most frequent first.
        unused: examples of ids that never occur, evenly spread.
        n_unused: how many never occur.
        duplicates: equal documents.
        no_texts: why ids have no texts, or ''.
        by: of the field that was named, `value`, `documents` and `tokens` of each value, most
            tokens first.
    """

    totals: dict[str, Any]
    splits: dict[str, dict[str, int]]
    sources: tuple[dict[str, Any], ...]
    lengths: Lengths
    id_counts: Counts
    frequent: tuple[NamedId, ...]
    unused: tuple[NamedId, ...]
    n_unused: int
    duplicates: Duplicates
    no_texts: str = ""
    prompts: Lengths | None = None
    by: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as plain values, without `id_counts`."""
        lengths = self.lengths
        prompts = {} if self.prompts is None else {"prompts": self.prompts.summary()}
        return {
            "totals": _counts(self.totals),
            "splits": self.splits,
            "sources": [{"path": row["path"], **_counts(row)} for row in self.sources],
            **prompts,
            "lengths": {
                **lengths.summary(),
                "documents_by_length": np.trim_zeros(lengths.documents, "b").tolist(),
                "tokens_by_length": np.trim_zeros(lengths.tokens, "b").tolist(),
            },
            "ids": {
                "vocabulary": len(self.id_counts),
                "unused": self.n_unused,
                "unused_examples": [asdict(named) for named in self.unused],
                "frequent": [asdict(named) for named in self.frequent],
                "no_texts": self.no_texts,
            },
            "duplicates": asdict(self.duplicates),
            **({"by": self.by} if self.by else {}),
        }


def _counts(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("records", "documents", "tokens", "text_bytes", "trained_tokens", "drops", "rejects")
    return {name: row[name] for name in names if name in row}


def read_statistics(
    directory: Path, manifest: Manifest, text_of: Callable[[int], str] | None = None
) -> Statistics:
    """Return the statistics of a dataset, of whose shards all tokens are read.

    `text_of` returns the text of an id. Hashes of documents, 32 bytes for each, are in the
    temporary directory meanwhile.

    Raises:
        VerifyError: a file is missing or damaged.
        StorageError: one cannot be read, or the temporary directory cannot be written to.
    """
    name = text_of or (lambda _: "")
    checked = CheckedFiles.of(directory, manifest.files)
    counts = np.zeros(manifest.tokenizer.vocab_size, np.int64)
    splits: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="tokmill-stats-") as folder:
        hashes = DocumentHashes(Path(folder), sum(entry.documents for entry in manifest.shards))
        for entry in manifest.shards:
            endings = ("idx", "bin", *manifest.sidecars)
            checked.check(directory / f"{entry.name}.{ending}" for ending in endings)
            shard = open_shard(directory, manifest, entry)
            shard.check_index()
            _count_ids(directory, shard, counts)
            _add_hashes(hashes, shard)
            split = splits.setdefault(shard.split, {"documents": 0, "tokens": 0})
            split["documents"] += len(shard.lengths)
            split["tokens"] += len(shard.tokens)
        duplicates = hashes.duplicates()
    lengths = read_lengths(directory, manifest)
    prompts = None
    if manifest.mask is not None:
        prompts = Lengths.of(_prompt_lengths(directory, manifest))
    checked.finish()
    never = np.flatnonzero(counts == 0)
    n_examples = min(MOST_IDS, len(never))
    spread = never[np.arange(n_examples) * len(never) // max(1, n_examples)]
    often = np.argsort(-counts, kind="stable")[:MOST_IDS]
    frequent, unused = (
        tuple(NamedId(i, name(i), int(counts[i])) for i in ids.tolist())
        for ids in (often[counts[often] > 0], spread)
    )
    return Statistics(
        manifest.plain["totals"], splits, tuple(manifest.plain["sources"]), lengths, counts,
        frequent, unused, len(never), duplicates,
        prompts=prompts,
    )  # fmt: skip


def _count_ids(directory: Path, shard: Shard, counts: Counts) -> None:
    """Add how often each id occurs in a shard."""
    for start in range(0, len(shard.tokens), _CHUNK_TOKENS):
        ids = shard.tokens[start : start + _CHUNK_TOKENS]
        if (largest := int(ids.max())) >= len(counts):
            raise VerifyError(
                f"{shown_place(directory)}/{shard.name}.bin: "
                f"id {largest:,} is outside the vocabulary of "
                f"{len(counts):,}; see tokmill verify"
            )
        counts += np.bincount(ids, minlength=len(counts))


def _prompt_lengths(directory: Path, manifest: Manifest) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the tokens before the first trained one of each document."""
    for entry in manifest.shards:
        shard = open_shard(directory, manifest, entry)
        start = 0
        if shard.mask is None:
            return
        for run in shard.runs(_CHUNK_TOKENS):
            offsets = offsets_of(shard.lengths[run])
            mask = shard.mask[start : start + int(offsets[-1])]
            yield before_first(np.flatnonzero(mask), offsets)
            start += int(offsets[-1])


def _add_hashes(hashes: DocumentHashes, shard: Shard) -> None:
    """Add the documents of a shard, whose index was checked, in order."""
    start = 0
    for run in shard.runs(_CHUNK_TOKENS):
        lengths = shard.lengths[run].astype(np.int64)
        span = slice(start, start + int(lengths.sum()))
        mask = None if shard.mask is None else shard.mask[span]
        hashes.add(hashes_of(shard.tokens[span], mask, lengths), lengths, shard.split)
        start = span.stop
