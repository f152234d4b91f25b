"""A finished dataset, open for reading: documents by number, read when they are asked for."""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, Unpack, overload

import numpy as np

from tokmill.api import jobs
from tokmill.api.rows import ShardInfo, Token
from tokmill.api.shown import ShownPage, ShownSamples, ShownStatistics
from tokmill.dataset.documents import Documents
from tokmill.dataset.identity import identity_of
from tokmill.dataset.layout import SPLITS
from tokmill.dataset.origins import Origin, OriginFinder
from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import open_packs
from tokmill.errors import UsageError
from tokmill.settings.names import by_keyword, keyword_errors, settings_of
from tokmill.settings.schema import BILL_SECTIONS
from tokmill.settings.signature import with_settings
from tokmill.trainers.options import ExportOptions
from tokmill.urls import shown_place
from tokmill.words import plural, rows_html, rows_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.bill.full_bill import FullBill
    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.verify import Verification
    from tokmill.inspect.samples import Choice, SampleReader
    from tokmill.inspect.statistics import Statistics
    from tokmill.settings.arguments import BillArguments, ExportArguments
    from tokmill.tokenizer.decode import TokenDecoder
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.trainers.export import Export

    Ids = npt.NDArray[np.unsignedinteger]


class Dataset:
    """A finished dataset: a sequence of documents, each an array of token ids.

    Made by `tokmill.open`, `tokmill.pretrain` and `tokmill.sft`. Documents are numbered from 0 in
    the order of the dataset, as `tokmill inspect` shows them; of a split, within the split. Opening
    reads only the manifest. A shard is opened when one of its documents is read; 32 stay open.
    Safe to use from several threads. A pickled copy opens the directory again.

    Attributes:
        directory: the directory.
        manifest: what `manifest.json` says; not to be changed.
        kind: `pretrain` or `sft`.

    Example:
        >>> with tokmill.open("out") as dataset:
        ...     print(len(dataset), dataset.n_tokens, dataset.text(5))
    """

    def __init__(self, directory: Path, manifest: Manifest, *, split: str, tokenizer: str) -> None:
        self._manifest, self.manifest = manifest, manifest.plain
        self.kind = manifest.kind
        self._split, self._tokenizer = split, tokenizer
        self._documents = Documents(directory, manifest, split)
        self.directory = self._documents.directory
        self._origins = OriginFinder(self.directory, manifest)

    def __repr__(self) -> str:
        split = f", split={self._split!r}" if self._split else ""
        counts = f"{plural(len(self), 'document')}, {plural(self.n_tokens, 'token')}"
        return f"<Dataset {shown_place(self.directory)!r}{split}: {counts}>"

    def __str__(self) -> str:
        """Return the rows that `tokmill pretrain` and `tokmill sft` print at their end."""
        return rows_text(self._summary())

    def _repr_html_(self) -> str:
        return rows_html(self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        from tokmill.inspect.summary import summary_rows

        if self._split:
            return [("split", self._split), ("holds", repr(self).rpartition(": ")[2].rstrip(">"))]
        return summary_rows(self._manifest, shown_place(self.directory), self.n_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Dataset], tuple[str]]:
        """Pickle as the path of the directory; it is opened again when unpickled."""
        split: Any = self._split or None
        reopen = partial(open, split=split, tokenizer=self._tokenizer or None)
        return reopen, (str(self.directory),)

    def close(self) -> None:
        """Close all shards; later reads open them again."""
        self._documents.close()

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    @cached_property
    def n_tokens(self) -> int:
        """Return the number of tokens, eos included."""
        return self._documents.n_tokens

    @cached_property
    def n_bytes(self) -> int:
        """Return the size of all files of the dataset, its manifest included."""
        return self._manifest.n_bytes

    @cached_property
    def identity(self) -> str:
        """Return what tells the tokens of this dataset from those of others, as a sha256.

        Datasets whose files of tokens are equal have one identity, whatever made them, whether they
        are packed or not. Before the `:` stands the algorithm of the sums of the files: datasets
        with sums of two algorithms cannot be compared.

        Raises:
            VerifyError: the manifest lists no sum of a file.
        """
        return identity_of(self._manifest, self.directory)

    @cached_property
    def shards(self) -> tuple[ShardInfo, ...]:
        """Return the shards, in the order of the dataset."""
        entries = self._documents.entries
        return tuple(ShardInfo(one.name, one.split, one.documents, one.tokens) for one in entries)

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the splits that hold documents: `train`, `val` or both."""
        held = {entry.split for entry in self._documents.entries}
        return tuple(split for split in SPLITS if split in held)

    def split(self, name: str) -> Dataset:
        """Return the documents of one split, numbered from 0.

        Args:
            name: `train` or `val`.

        Raises:
            UsageError: there is no such split; one without documents is empty.
        """
        if name not in SPLITS:
            raise UsageError(f"split: expected one of {', '.join(SPLITS)}; found {name!r}")
        return Dataset(self.directory, self._manifest, split=name, tokenizer=self._tokenizer)

    @overload
    def __getitem__(self, number: SupportsIndex) -> Ids: ...

    @overload
    def __getitem__(self, number: slice) -> list[Ids]: ...

    def __getitem__(self, number: SupportsIndex | slice) -> Ids | list[Ids]:
        """Return the ids of a document, eos included: (n,) uint16 or uint32; of a slice, a list.

        They are read into memory, and are read-only: `torch.from_numpy` warns of that, and
        `torch.tensor(dataset[5])` copies. A negative number counts from the end.

        Raises:
            IndexError: there is no such document.
            VerifyError: its shard is missing or damaged.
            StorageError: its shard cannot be read, or too many files are open.
        """
        if isinstance(number, slice):
            return [self[own] for own in range(*number.indices(len(self)))]
        shard, place = self._documents.find(number)
        return shard.document(place)

    def __iter__(self) -> Iterator[Ids]:
        """Yield the ids of every document, in order."""
        return iter(self._documents)

    def mask(self, number: SupportsIndex) -> npt.NDArray[np.uint8]:
        """Return the loss mask of a sample: (n,) uint8, read-only, 1 for a token that is trained.

        Raises:
            UsageError: the dataset has no masks; one for pretraining trains all tokens.
            IndexError: there is no such sample.
        """
        shard, place = self._documents.find(number)
        mask = shard.sample_mask(place)
        if mask is None:
            raise UsageError(
                f"{shown_place(self.directory)}: no masks: a {self.kind} dataset trains all tokens"
            )
        return mask

    def weight(self, number: SupportsIndex) -> npt.NDArray[np.float32]:
        """Return the weights in the loss of a sample's tokens: (n,) float32, read-only.

        Raises:
            UsageError: the dataset has no weights; `weights="file"` of `tokmill.sft` writes them.
            IndexError: there is no such sample.
        """
        shard, place = self._documents.find(number)
        if shard.weights is None:
            raise UsageError(
                f"{shown_place(self.directory)}: no weights: make the dataset with weights='file'"
            )
        weights: npt.NDArray[np.float32] = shard.weights[shard.span(place)]
        return weights

    @overload
    def text(self, number: SupportsIndex) -> str: ...

    @overload
    def text(self, number: slice) -> list[str]: ...

    @keyword_errors()
    def text(self, number: SupportsIndex | slice) -> str | list[str]:
        r"""Return the text of a document, decoded with its tokenizer; of a slice, a list.

        Control tokens are part of it. Bytes that are no complete character are written as `\x..`.

        Raises:
            TokmillError: the tokenizer cannot be loaded, or is another one.
            IndexError: there is no such document.
        """
        if isinstance(number, slice):
            return [self._decoded(ids.tolist()) for ids in self[number]]
        return self._decoded(self[number].tolist())

    @keyword_errors()
    def decode(self, ids: Sequence[int] | npt.NDArray[np.integer]) -> str:
        """Return the text of ids, as `text` does of those of a document.

        Raises:
            TokmillError: see `text`.
        """
        return self._decoded(np.asarray(ids).tolist())

    @keyword_errors()
    def tokens(self, number: SupportsIndex) -> list[Token]:
        """Return the tokens of a document, each with its text and whether it is trained.

        Raises:
            TokmillError: see `text`.
            IndexError: there is no such document.
        """
        from tokmill.tokenizer.decode import escaped

        ids = self[number].tolist()
        weights: list[float] = [1.0] * len(ids)
        if self.has_weights:
            weights = self.weight(number).tolist()
        elif self.kind == "sft":
            weights = self.mask(number).astype(float).tolist()
        runs = self._decoder.runs(ids, weights, by_token=True)
        texts = [escaped(text) for run in runs for text in run.texts]
        return [Token(*row) for row in zip(ids, texts, weights, strict=True)]

    @cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Return the tokens of every document, eos included: (n,) int32.

        Raises:
            TokmillError: an index is missing or damaged.
        """
        own = [shard.lengths[:] for shard in self._documents.shards()]
        return np.concatenate(own) if own else np.empty(0, np.int32)

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Return the dtype of ids: uint16 or uint32."""
        dtype: np.dtype[np.unsignedinteger] = np.dtype(self._manifest.dtype)
        return dtype

    @property
    def vocab_size(self) -> int:
        """Return the largest id of the tokenizer + 1."""
        return self._manifest.tokenizer.vocab_size

    @property
    def has_weights(self) -> bool:
        """Return whether every token has a weight in the loss, see `weight`."""
        return "weight" in self._manifest.sidecars

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer that the dataset keeps; `.library()` is one of `tokenizers`.

        Raises:
            TokmillError: it cannot be loaded, or `tokmill.open` was given another one.
        """
        from tokmill.tokenizer.kept import tokenizer_of

        return tokenizer_of(self.directory, self._manifest, self._tokenizer)

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Return what the manifest says of each input file, or named source: its counts."""
        return [dict(source) for source in self.manifest["sources"]]

    def sample(self, n: int, *, seed: int = 0) -> list[int]:
        """Return the numbers of `n` documents, at random but always the same for a seed, sorted.

        Of a dataset with fewer documents, all.

        Example:
            >>> for number in dataset.sample(3):
            ...     print(dataset.text(number))
        """
        numbers = Random(seed).sample(range(len(self)), min(n, len(self)))  # noqa: S311  no secret
        return sorted(numbers)

    def to_arrow(self) -> pa.Table:
        """Return a row for each document: split, length, origin, and the fields that were kept.

        Columns are `split`, `shard`, `tokens`, `path`, `record` (both null without origins), and
        those of the kept fields. Every document takes some 20 bytes of memory; texts and ids are
        not read.

        Raises:
            TokmillError: an index, the origins or the kept fields are missing or damaged.
        """
        from tokmill.dataset.table import documents_table

        return documents_table(self._documents, self._origins)

    def to_pandas(self) -> Any:
        """Return `to_arrow()` as a DataFrame; needs pandas."""
        return self.to_arrow().to_pandas()

    def origin(self, number: SupportsIndex) -> Origin:
        """Return where a document stands, and the record of the input that it was made from.

        Raises:
            IndexError: there is no such document.
            TokmillError: it has no origins (of imported tokens), or their file is damaged.
        """
        index, place = self._documents.place(number)
        return self._origins.find(self._documents.entries[index].name, place)

    def meta(self, number: SupportsIndex) -> dict[str, str | None]:
        """Return the fields of a document's record that the run kept; None where there is none.

        Raises:
            UsageError: the run kept none; `keep=["url"]` of `tokmill.pretrain` does.
            IndexError: there is no such document.
            VerifyError: their file is missing or damaged.
        """
        if not self._manifest.keep:
            raise UsageError(
                f"{shown_place(self.directory)}: no metadata: make the dataset with keep=['url']"
            )
        return dict(self._documents.metadata(number).to_pylist()[0])

    @cached_property
    def packs(self) -> dict[str, Packs]:
        """Return the pack index by split, mapped; empty if the dataset is not packed.

        `packs["train"].row(0)` are numbers of samples of `dataset.split("train")`. Where documents
        were cut, `row_pieces(0)` are the spans of their tokens that the row has.

        Raises:
            VerifyError: a file of the index is missing or damaged.
        """
        packed = self._manifest.packs
        splits = [name for name in self.splits if name in packed]
        return {name: open_packs(self.directory, name, packed[name]) for name in splits}

    def verify(self) -> Verification:
        """Check every file of the dataset against its manifest; see `tokmill.verify`."""
        import tokmill

        return tokmill.verify(self.directory, tokenizer=self._tokenizer or None)

    @keyword_errors()
    def stats(self, *, by: str | None = None) -> Statistics:
        """Return what the whole dataset holds, from all of its tokens; see `tokmill.stats`."""
        from tokmill.inspect.samples import statistics_of

        self._manifest.check_complete()
        field = jobs.given_text(by, "by")
        statistics = statistics_of(self.directory, self._manifest, self._tokenizer, field)
        return ShownStatistics.of(statistics)

    @keyword_errors()
    @with_settings(settings_of("export", ExportOptions).values())
    def export(
        self,
        to: str,
        output: str | Path,
        *,
        check: bool = False,
        overwrite: bool = False,
        **options: Unpack[ExportArguments],
    ) -> Export:
        """Export the dataset to the files that another trainer reads, and return their list.

        Files with the bytes of a file of the dataset are hard links to it, and read-only.

        Args:
            to: the trainer: one of `tokmill export --help`, such as `megatron` or `nanogpt`.
            output: the directory to write; it appears with all files or not at all.
            check: also open the result with the trainer's own reader, and compare all of it.
            overwrite: replace the dataset or export at `output`.
            **options: the settings listed below, such as `copy=True`.

        Raises:
            TokmillError: the trainer cannot read such a dataset, or files cannot be written.

        Example:
            >>> print(dataset.export("nanogpt", "nanogpt-data").usage)
        """
        from tokmill.trainers.export import export
        from tokmill.trainers.options import export_options

        path = jobs.checked_path(output, "output")
        chosen = export_options(options)
        return export(self.directory, to, path, chosen, check=check, overwrite=overwrite)

    @keyword_errors()
    @with_settings(by_keyword(BILL_SECTIONS).values())
    def bill(
        self,
        model: str | Path | Mapping[str, Any] | None = None,
        *,
        config: str | Path | None = None,
        deepspeed: str | Path | None = None,
        **settings: Unpack[BillArguments],
    ) -> FullBill:
        """Return what training a model on this dataset takes; see `tokmill.bill.of`.

        Settings that are not given are those of the run that made the dataset.

        Args:
            model: a built-in name, a config.json or its contents; None: that of the settings.
            config: a TOML file with [model], [training] and [inference].
            deepspeed: a DeepSpeed configuration (JSON).
            **settings: the settings listed below, such as `gpu="H100"`.

        Raises:
            TokmillError: a setting is wrong, or a file of the dataset is missing.
        """
        from tokmill import bill

        self._manifest.check_complete()
        return bill.of(model, self, config=config, deepspeed=deepspeed, **settings)

    @overload
    def report(
        self, path: None = None, bill: FullBill | None = None, *, by: str | None = None,
        **choice: Unpack[Choice],
    ) -> ShownPage: ...  # fmt: skip

    @overload
    def report(
        self, path: str | Path, bill: FullBill | None = None, *, by: str | None = None,
        **choice: Unpack[Choice],
    ) -> None: ...  # fmt: skip

    @keyword_errors()
    def report(
        self,
        path: str | Path | None = None,
        bill: FullBill | None = None,
        *,
        by: str | None = None,
        **choice: Unpack[Choice],
    ) -> ShownPage | None:
        """Write the dataset and a bill, by default `bill()`, as a web page.

        A file at `path` is replaced; without a path the page is returned, and a notebook shows it.
        The page loads nothing, and has less than 2 MB. `split`, `source` and `seed` choose the
        documents that it shows, as in `tokmill inspect`. `by`: a field that was kept, by which
        documents and tokens are counted.

        Raises:
            TokmillError: a file cannot be read or written.
        """
        from tokmill.api.rank_balance import balance_rows
        from tokmill.page.report import chosen_report, write_report

        bill, about = bill or self.bill(), (self.directory, self._manifest)
        field, of_ranks = jobs.given_text(by, "by"), balance_rows(*about, bill)
        if path is None:
            page = chosen_report(*about, bill, self._tokenizer, choice, field, of_ranks)
            return ShownPage(page)
        target = jobs.checked_path(path, "path")
        write_report(target, *about, bill, self._tokenizer, "path", choice, field, of_ranks)
        return None

    @keyword_errors()
    def show(self, documents: int | Sequence[int] = 5, *, max_tokens: int = 2000) -> ShownSamples:
        """Return documents with their tokens in colour, which a notebook shows.

        Tokens have alternating colours, ids are seen on hover, and of chats what is trained is
        green. `print` shows them as text, with what is trained between marks.

        Args:
            documents: how many, drawn as by `sample`; or their numbers.
            max_tokens: of each document; the rest is left out, and said.

        Raises:
            UsageError: there is no such document.
            TokmillError: see `text`.
        """
        numbers = self.sample(documents) if isinstance(documents, int) else documents
        first = 0 if not self._split else self._first_of_split()
        own = [first + number for number in numbers]
        return ShownSamples([self._reader.read(n, most_tokens=max_tokens) for n in own])

    @keyword_errors()
    def show_row(self, number: int, *, split: str = "train") -> ShownSamples:
        """Return the samples of one packed row, as `show` does, each with its place in the row.

        Raises:
            UsageError: the dataset is not packed, or has no such row.
            TokmillError: see `text`.
        """
        return ShownSamples(self._reader.read_row(number, split))

    def plot(self) -> Any:
        """Return a figure of lengths and of tokens by source; needs matplotlib.

        The figures behind it are those of `to_arrow()`.

        Raises:
            UsageError: matplotlib is not installed.
        """
        from tokmill.api.plot import plot_lengths_and_sources

        return plot_lengths_and_sources(self.lengths, self._manifest.sources)

    @cached_property
    def _reader(self) -> SampleReader:
        from tokmill.inspect.samples import SampleReader

        return SampleReader(self.directory, self._manifest, self.tokenizer, by_token=True)

    def _first_of_split(self) -> int:
        """Return the number, in the whole dataset, of the first document of this split."""
        before = 0
        for entry in self._manifest.shards:
            if entry.split == self._split:
                return before
            before += entry.documents
        return before

    @cached_property
    def _decoded(self) -> Callable[[list[int]], str]:
        from tokmill.inspect.samples import text_decoder

        return text_decoder(self._manifest, self.tokenizer)

    @cached_property
    def _decoder(self) -> TokenDecoder:
        from tokmill.inspect.samples import token_decoder

        return token_decoder(self._manifest, self.tokenizer)


@keyword_errors()
def open(  # noqa: A001  its name in the package
    directory: str | Path,
    *,
    split: Literal["train", "val"] | None = None,
    tokenizer: str | Path | None = None,
) -> Dataset:
    """Open a finished dataset for reading.

    Args:
        directory: the directory of the dataset.
        split: the documents of one split; None: of all.
        tokenizer: the tokenizer for `Dataset.text`, if not the one that the dataset keeps.

    Returns:
        The dataset; nothing but its manifest has been read.

    Raises:
        StateError: a run is writing in the directory, or one was stopped and must be continued.
        UsageError: there is no dataset.
        VerifyError: its manifest is damaged.

    Example:
        >>> dataset = tokmill.open("out", split="val")
    """
    path = jobs.checked_path(directory, "directory")
    moved = "" if tokenizer is None else str(jobs.checked_path(tokenizer, "tokenizer"))
    dataset = Dataset(path, jobs.finished_manifest(path), split="", tokenizer=moved)
    return dataset if split is None else dataset.split(split)
