"""A finished dataset, open for reading: documents by number, read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, Unpack

import numpy as np

from tokmill.api import jobs
from tokmill.api.shown import ShownStatistics
from tokmill.dataset.documents import Documents
from tokmill.dataset.identity import identity_of
from tokmill.dataset.layout import SPLITS
from tokmill.dataset.origins import Origin, OriginFinder
from tokmill.dataset.packing import Packs
from tokmill.dataset.packs import open_packs
from tokmill.dataset.reader import check_complete
from tokmill.errors import UsageError
from tokmill.settings.names import by_keyword, keyword_errors, settings_of
from tokmill.settings.schema import BILL_SECTIONS
from tokmill.settings.signature import with_settings
from tokmill.trainers.options import ExportOptions
from tokmill.words import plural, rows_html, rows_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from tokmill.bill.full_bill import FullBill
    from tokmill.dataset.statistics import Statistics
    from tokmill.dataset.verify import Verification
    from tokmill.page.samples import Choice
    from tokmill.settings.arguments import BillArguments, ExportArguments
    from tokmill.trainers.export import Export


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard as the manifest lists it.

    Attributes:
        name: its files are `NAME.bin`, `NAME.idx` and, where the dataset has them, `NAME.mask`,
            `NAME.weight`, `NAME.origin` and `NAME.meta`.
        split: `train` or `val`.
        documents: number of documents or samples.
        tokens: number of tokens, eos included.
    """

    name: str
    split: str
    documents: int
    tokens: int


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

    def __init__(
        self, directory: Path, manifest: Mapping[str, Any], *, split: str, tokenizer: str
    ) -> None:
        self.manifest: dict[str, Any] = dict(manifest)
        self.kind = str(manifest.get("kind", "pretrain"))
        self._split, self._tokenizer = split, tokenizer
        self._documents = Documents(directory, manifest, split)
        self.directory = self._documents.directory
        self._origins = OriginFinder(self.directory, manifest)

    def __repr__(self) -> str:
        split = f", split={self._split!r}" if self._split else ""
        counts = f"{plural(len(self), 'document')}, {plural(self.n_tokens, 'token')}"
        return f"<Dataset {str(self.directory)!r}{split}: {counts}>"

    def __str__(self) -> str:
        """Return the rows that `tokmill pretrain` and `tokmill sft` print at their end."""
        return rows_text(self._summary())

    def _repr_html_(self) -> str:
        return rows_html(self._summary())

    def _summary(self) -> list[tuple[str, str]]:
        from tokmill.page.summary import summary_rows

        if self._split:
            return [("split", self._split), ("holds", repr(self).rpartition(": ")[2].rstrip(">"))]
        return summary_rows(self.manifest, str(self.directory), self.n_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., Dataset], tuple[str]]:
        """Pickle as the path of the directory; it is opened again when unpickled."""
        reopen = partial(open, split=self._split, tokenizer=self._tokenizer)
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
        from tokmill.dataset.checksum import json_chunks

        of_files = sum(file["bytes"] for file in self.manifest["files"])
        return int(of_files + sum(map(len, json_chunks(self.manifest))))

    @cached_property
    def identity(self) -> str:
        """Return what tells the tokens of this dataset from those of others, as a sha256.

        Datasets whose files of tokens are equal have one identity, whatever made them, whether they
        are packed or not. Before the `:` stands the algorithm of the sums of the files: datasets
        with sums of two algorithms cannot be compared.

        Raises:
            VerifyError: the manifest lists no sum of a file.
        """
        return identity_of(self.manifest, self.directory)

    @cached_property
    def shards(self) -> tuple[ShardInfo, ...]:
        """Return the shards, in the order of the dataset."""
        keys = ("name", "split", "documents", "tokens")
        return tuple(ShardInfo(*(entry[key] for key in keys)) for entry in self._documents.entries)

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the splits that hold documents: `train`, `val` or both."""
        held = {entry["split"] for entry in self._documents.entries}
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
        return Dataset(self.directory, self.manifest, split=name, tokenizer=self._tokenizer)

    def __getitem__(self, number: SupportsIndex) -> npt.NDArray[np.unsignedinteger]:
        """Return the ids of a document, eos included: (n,) uint16 or uint32, read-only.

        They are read into memory. A negative number counts from the end.

        Raises:
            IndexError: there is no such document.
            VerifyError: its shard is missing or damaged.
            StorageError: its shard cannot be read, or too many files are open.
        """
        shard, place = self._documents.find(number)
        return shard.document(place)

    def __iter__(self) -> Iterator[npt.NDArray[np.unsignedinteger]]:
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
            raise UsageError(f"{self.directory}: no masks: a {self.kind} dataset trains all tokens")
        return mask

    def weight(self, number: SupportsIndex) -> npt.NDArray[np.float32]:
        """Return the weights in the loss of a sample's tokens: (n,) float32, read-only.

        Raises:
            UsageError: the dataset has no weights; `weights="file"` of `tokmill.sft` writes them.
            IndexError: there is no such sample.
        """
        shard, place = self._documents.find(number)
        if shard.weights is None:
            raise UsageError(f"{self.directory}: no weights: make the dataset with weights='file'")
        weights: npt.NDArray[np.float32] = shard.weights[shard.span(place)]
        return weights

    @keyword_errors()
    def text(self, number: SupportsIndex) -> str:
        r"""Return the text of a document, decoded with the tokenizer of the dataset.

        Control tokens are part of it. Bytes that are no complete character are written as `\x..`.
        The tokenizer is loaded with the first text, from where the run found it or from the
        `tokenizer` that `tokmill.open` was given.

        Raises:
            TokmillError: the tokenizer cannot be loaded, or is another one.
            IndexError: there is no such document.
        """
        return self._decoded(self[number].tolist())

    def origin(self, number: SupportsIndex) -> Origin:
        """Return where a document stands, and the record of the input that it was made from.

        Raises:
            IndexError: there is no such document.
            TokmillError: it has no origins (of imported tokens), or their file is damaged.
        """
        index, place = self._documents.place(number)
        return self._origins.find(self._documents.entries[index]["name"], place)

    def meta(self, number: SupportsIndex) -> dict[str, str | None]:
        """Return the fields of a document's record that the run kept; None where there is none.

        Raises:
            UsageError: the run kept none; `keep=["url"]` of `tokmill.pretrain` does.
            IndexError: there is no such document.
            VerifyError: their file is missing or damaged.
        """
        if "keep" not in self.manifest:
            raise UsageError(f"{self.directory}: no metadata: make the dataset with keep=['url']")
        return dict(self._documents.metadata(number).to_pylist()[0])

    @cached_property
    def packs(self) -> dict[str, Packs]:
        """Return the pack index by split, mapped; empty if the dataset is not packed.

        `packs["train"].row(0)` are numbers of samples of `dataset.split("train")`. Where documents
        were cut, `row_pieces(0)` are the spans of their tokens that the row has.

        Raises:
            VerifyError: a file of the index is missing or damaged.
        """
        packed = self.manifest.get("packs", {})
        splits = [name for name in self.splits if name in packed]
        return {name: open_packs(self.directory, name, packed[name]) for name in splits}

    def verify(self) -> Verification:
        """Check every file of the dataset against its manifest; see `tokmill.verify`."""
        import tokmill

        return tokmill.verify(self.directory, tokenizer=self._tokenizer)

    @keyword_errors()
    def stats(self, *, by: str = "") -> Statistics:
        """Return what the whole dataset holds, from all of its tokens; see `tokmill.stats`."""
        from tokmill.page.samples import statistics_of

        check_complete(self.manifest, self.directory)
        statistics = statistics_of(self.directory, self.manifest, self._tokenizer, by)
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

        check_complete(self.manifest, self.directory)
        return bill.of(model, self, config=config, deepspeed=deepspeed, **settings)

    @keyword_errors()
    def report(
        self,
        path: str | Path,
        bill: FullBill | None = None,
        *,
        by: str = "",
        **choice: Unpack[Choice],
    ) -> None:
        """Write the dataset and a bill, by default `bill()`, as a web page.

        A file at `path` is replaced. The page loads nothing, and has less than 2 MB. `split`,
        `source` and `seed` choose the documents that it shows, as in `tokmill inspect`. `by`: a
        field that was kept, by which documents and tokens are counted.

        Raises:
            TokmillError: a file cannot be read or written.
        """
        from tokmill.page.report import write_report

        target, bill = jobs.checked_path(path, "path"), bill or self.bill()
        write_report(
            target, self.directory, self.manifest, bill, self._tokenizer, "path", choice, by
        )

    @cached_property
    def _decoded(self) -> Callable[[list[int]], str]:
        from tokmill.page.samples import text_decoder
        from tokmill.tokenizer.kept import tokenizer_of

        tokenizer = tokenizer_of(self.directory, self.manifest, self._tokenizer)
        return text_decoder(self.manifest, tokenizer)


@keyword_errors()
def open(  # noqa: A001  its name in the package
    directory: str | Path, *, split: str = "", tokenizer: str | Path = ""
) -> Dataset:
    """Open a finished dataset for reading.

    Args:
        directory: the directory of the dataset.
        split: `train` or `val` for the documents of one split; "" for all.
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
    dataset = Dataset(path, jobs.finished_manifest(path), split="", tokenizer=str(tokenizer or ""))
    return dataset.split(split) if split else dataset
