"""Samples of a dataset: which are shown, read and decoded, and their text prepared for display."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from random import Random
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tokmill.dataset.checksum import sha256_hex
from tokmill.dataset.documents import Documents
from tokmill.dataset.origins import OriginFinder
from tokmill.dataset.packs import open_packs
from tokmill.errors import TokmillError, UsageError, VerifyError
from tokmill.inspect.by_field import counts_by_field
from tokmill.inspect.statistics import read_statistics
from tokmill.inspect.summary import noticed, share_of
from tokmill.settings.load import build_config
from tokmill.settings.names import plain
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.control_tokens import added_tokens, kept_as_text
from tokmill.tokenizer.decode import TokenDecoder, TokenRun, escaped
from tokmill.tokenizer.kept import tokenizer_of
from tokmill.urls import shown_place
from tokmill.words import plural, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.manifest import InputFile, Manifest
    from tokmill.dataset.origins import Origin
    from tokmill.inspect.statistics import Statistics
    from tokmill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, or a sample of SFT.

    `number`: position in the dataset, from 0. `mask`, `weights`: per token, None if the dataset has
    none. `runs`: its text, in order. `row_start`: position of its first token in its packed row, if
    it was read as part of one. `piece`: its tokens in the document, if documents are cut.
    `n_unread`: tokens at its end that were not read. `origin`: None of imported tokens. `meta`: the
    fields of its record that were kept.
    """

    number: int
    shard: str
    ids: tuple[int, ...]
    mask: tuple[int, ...] | None
    weights: tuple[float, ...] | None
    runs: tuple[TokenRun, ...]
    row_start: int | None = None
    n_unread: int = 0
    origin: Origin | None = None
    piece: slice | None = None
    meta: Mapping[str, str | None] = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return `document` or `sample`."""
        return "document" if self.mask is None else "sample"

    @property
    def n_trained(self) -> int:
        """Return the number of trained tokens."""
        return sum(1 for value in self.mask or () if value)

    @property
    def trained_text(self) -> str:
        """Return the text of the trained tokens."""
        return "".join(run.text for run in self.runs if run.is_trained)

    def facts(self) -> list[str]:
        """Return its shard, place and counts as texts."""
        facts = [self.shard, plural(len(self.ids) + self.n_unread, "token")]
        facts += [f"of the first {len(self.ids):,}:"] if self.n_unread and self.mask else []
        if self.mask is not None:
            facts += [f"{self.n_trained:,} trained", share_of(self.n_trained, len(self.ids))]
        if self.row_start is not None:
            facts.append(f"from token {self.row_start:,} of the row")
        if self.piece is not None:
            facts.append(f"tokens {self.piece.start:,} to {self.piece.stop - 1:,} of the document")
        facts += [f"from {printable(str(self.origin))}"] if self.origin else []
        kept = [(key, value) for key, value in self.meta.items() if value is not None]
        return facts + [printable(f"{key}: {value}"[:200]) for key, value in kept]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values; bytes of incomplete characters are written as escapes."""
        values: dict[str, Any] = {
            "document": self.number,
            "shard": self.shard,
            "origin": self.origin and dataclasses.asdict(self.origin),
            **({"meta": self.meta} if self.meta else {}),
            "tokens": len(self.ids),
            "trained_tokens": self.n_trained,
            "ids": self.ids,
            "mask": self.mask,
        }
        if self.weights is not None:
            values["weights"] = self.weights
        values["text"] = escaped("".join(run.text for run in self.runs))
        values["trained_text"] = escaped(self.trained_text)
        return values


class SampleReader:
    """Reads the samples of a dataset by number."""

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        tokenizer: Tokenizer,
        *,
        by_token: bool = False,
    ) -> None:
        self._directory = directory
        self._manifest = manifest
        self.decoder = token_decoder(manifest, tokenizer)
        self._by_token = by_token
        self._origins = OriginFinder(directory, manifest)
        self._documents = Documents(directory, manifest)

    def read(
        self,
        number: int,
        row_start: int | None = None,
        piece: slice | None = None,
        *,
        most_tokens: int = 0,
    ) -> Sample:
        """Read a sample by its number in the dataset, or a piece of one that stands in a row.

        `most_tokens`: of a longer one, read so many, if it is not 0.

        Raises:
            UsageError: there is no such sample.
            VerifyError: its shard is broken.
        """
        if not 0 <= number < len(self._documents):
            held = f"it holds 0 to {len(self._documents) - 1}"
            raise UsageError(f"{shown_place(self._directory)}: no document {number}; {held}")
        shard, i = self._documents.find(number)
        span = whole = shard.span(i)
        if piece is not None:
            span = whole = slice(whole.start + piece.start, whole.start + piece.stop)
        if most_tokens:
            span = slice(whole.start, min(whole.stop, whole.start + most_tokens))
        ids = tuple(shard.tokens[span].tolist())
        mask = None if shard.mask is None else tuple(shard.mask[span].tolist())
        weights = None if shard.weights is None else tuple(shard.weights[span].tolist())
        in_loss = weights or mask or (0,) * len(ids)
        runs = tuple(self.decoder.runs(ids, in_loss, by_token=self._by_token))
        origin, n_unread = None, whole.stop - span.stop
        with suppress(UsageError):  # of imported tokens
            origin = self._origins.find(shard.name, i)
        meta = self._documents.metadata(number).to_pylist()[0] if self._manifest.keep else {}
        return Sample(
            number, shard.name, ids, mask, weights, runs, row_start, n_unread, origin, piece, meta
        )

    def read_row(self, number: int, split: str = "train") -> list[Sample]:
        """Read the samples of a row of the pack index, in their order.

        Raises:
            UsageError: the dataset is not packed, or has no such row.
            VerifyError: its files are broken.
        """
        if split not in self._manifest.packs:
            raise UsageError(
                f"{shown_place(self._directory)}: not packed, so it has no rows of {split}"
            )
        packs = open_packs(self._directory, split, self._manifest.packs[split])
        if not 0 <= number < packs.n_rows:
            raise UsageError(
                f"{shown_place(self._directory)}: "
                f"no row {number} of {split}; it holds 0 to {packs.n_rows - 1}"
            )
        of_split = Documents(self._directory, self._manifest, split)
        is_here = [entry.split == split for entry in self._documents.entries]
        firsts, samples, start = self._documents.firsts[is_here].tolist(), [], 0
        for found, span in zip(packs.row(number).tolist(), packs.row_pieces(number), strict=True):
            if not 0 <= found < len(of_split):
                raise VerifyError(f"packs of {split}: no sample {found}; it has {len(of_split):,}")
            shard, place = of_split.place(found)
            piece = None if packs.pieces is None else span
            samples.append(self.read(firsts[shard] + place, start, piece))
            start += len(samples[-1].ids)
        return samples


def text_decoder(manifest: Manifest, tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    """Return a function that decodes the ids of a document, as `inspect --json` shows its text."""
    decoder = token_decoder(manifest, tokenizer)

    def decoded(ids: Sequence[int]) -> str:
        return escaped("".join(run.text for run in decoder.runs(ids, (0,) * len(ids))))

    return decoded if manifest.is_sft else decoder.decode


def token_decoder(manifest: Manifest, tokenizer: Tokenizer) -> TokenDecoder:
    """Return what decodes the ids of a dataset run by run, see `TokenDecoder.runs`."""
    is_sft = manifest.is_sft
    return TokenDecoder(tokenizer, control_ids(manifest, tokenizer), is_sft=is_sft)


def control_ids(manifest: Manifest, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of added tokens except ordinary text, eos, bos, and those of the template."""
    added, strings = added_tokens(tokenizer), set(kept_as_text(tokenizer))
    if manifest.is_sft and (source := _template(manifest, tokenizer)):
        from tokmill.chat.render_pool import emitted_strings

        strings |= emitted_strings(source, frozenset(added))
    named = (manifest.tokenizer.eos, manifest.tokenizer.bos)
    return frozenset(
        [*(added[string].id for string in strings), *(token.id for token in named if token)]
    )


def _template(manifest: Manifest, tokenizer: Tokenizer) -> str:
    """Return the template of an SFT run, or '' if it cannot be found unchanged.

    A dataset keeps it with its tokenizer; a tokenizer that a user names has its own.
    """
    from tokmill.chat.limits import checked_source  # documents need nothing of chats
    from tokmill.chat.mask_rule import mask_rule
    from tokmill.chat.template_source import template_source

    expected = None if manifest.mask is None else manifest.mask.template_sha256
    kept = tokenizer.chat_template or ""
    if sha256_hex(kept.encode("utf-8", "surrogatepass")) == expected:
        return checked_source(kept, tokenizer.name) if kept else ""
    try:
        sft = plain(manifest.config)["sft"]
        settings = build_config({"sft": sft}, where="the manifest").sft or SftSettings()
        source = template_source(settings, mask_rule(settings).template, tokenizer.chat_template)
    except (UsageError, KeyError):
        return ""
    return source if sha256_hex(source.encode()) == expected else ""


def statistics_of(directory: Path, manifest: Manifest, moved: str, by: str = "") -> Statistics:
    """Return the statistics of a dataset; without its tokenizer, they say why ids have no texts.

    `by`: a kept field, by whose values documents and tokens are counted, too.

    Raises:
        UsageError: `moved` is not the tokenizer of the dataset, or the field was not kept.
        TokmillError: a file is missing, damaged, or cannot be read.
    """
    by_field = {by: counts_by_field(directory, manifest, by)} if by else {}
    try:
        tokenizer = tokenizer_of(directory, manifest, moved)
    except TokmillError as error:
        if moved:
            raise
        statistics = read_statistics(directory, manifest)
        return replace(statistics, no_texts=str(error), by=by_field)
    decoder = token_decoder(manifest, tokenizer)

    def text_of(id_: int) -> str:
        # The second of two: SentencePiece drops the space before the first.
        texts = decoder.runs((id_, id_), (0, 0), by_token=True)[0].texts
        return escaped(texts[-1])

    return replace(read_statistics(directory, manifest, text_of), by=by_field)


def evenly_spread(total: int, wanted: int) -> Sequence[int]:
    """Return `wanted` numbers below `total`, or all, evenly spread."""
    wanted = min(wanted, total)
    return [i * total // wanted for i in range(wanted)]


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run of a sample; `opens`, `closes`: a trained span begins or ends with it."""

    run: TokenRun
    opens: bool
    closes: bool

    def parts(self) -> list[list[tuple[str, bool]]]:
        """Return the parts of each text of the run: (text, whether it is edge white space)."""
        text = "".join(self.run.texts)
        lead = len(text) - len(text.lstrip()) if self.opens else 0
        trail = max(lead, len(text.rstrip())) if self.closes else len(text)
        found, start = [], 0
        for piece in self.run.texts:
            cuts = (max(0, lead - start), max(0, trail - start))
            cut = (piece[: cuts[0]], piece[cuts[0] : cuts[1]], piece[cuts[1] :])
            found.append([(part, i != 1) for i, part in enumerate(cut) if part])
            start += len(piece)
        return found


def cut_mark(n_chars: int, n_tokens: int = 0) -> str:
    """Return the mark in place of the characters, and of the unread tokens, that are cut, or ''."""
    counts = [(n_chars, "more character"), (n_tokens, "more token")]
    texts = [plural(n, words) for n, words in counts if n]
    return f"… {' and '.join(texts)}" if texts else ""


def shown_runs(runs: Sequence[TokenRun], max_chars: int) -> tuple[list[ShownRun], int]:
    """Return the runs within `max_chars` characters (0: all), and the number of other characters.

    A control token is never cut.
    """
    found: list[ShownRun] = []
    left, total = max_chars, sum(len(run.text) for run in runs)
    for i, run in enumerate(runs):
        before = runs[i - 1].weight if i else 0
        after = runs[i + 1].weight if i + 1 < len(runs) else 0
        opens, closes = (run.is_trained and run.weight != other for other in (before, after))
        n_chars = sum(map(len, run.texts))
        if max_chars and n_chars > left:
            cut = _cut(run, left)
            found += [ShownRun(cut, opens, False)] if cut.texts else []
            return found, total - sum(len(stretch.run.text) for stretch in found)
        left -= n_chars
        found.append(ShownRun(run, opens, closes))
    return found, 0


def _cut(run: TokenRun, n_chars: int) -> TokenRun:
    texts: list[str] = []
    for text in run.texts:
        if len(text) > n_chars:
            texts += [text[:n_chars]] if n_chars and not run.is_control else []
            break
        texts.append(text)
        n_chars -= len(text)
    return dataclasses.replace(run, texts=tuple(texts))


LEAST, MOST_SOURCES = 4, 8
_MOST_LISTED = 12


class Choice(TypedDict, total=False):
    """Which documents are shown.

    Those of a `split`, and of a `source`: its name, an input file, or a directory of them. `seed`
    draws others.
    """

    split: str
    source: str
    seed: int


def chosen_documents(
    directory: Path,
    manifest: Manifest,
    wanted: int | None = None,
    *,
    split: str = "",
    source: str = "",
    seed: int = 0,
) -> list[int]:
    """Return the numbers of documents of a split: one of each source in order, then random ones.

    If all are wanted, in the order of the dataset. `wanted`: how many; None: `LEAST`, or one of
    each source up to `MOST_SOURCES`. For the others see `Choice`.

    Raises:
        UsageError: there is no such split or source, or no origins to find a source by.
        VerifyError: a file of origins is damaged.
    """
    shards, files, splits = manifest.shards, manifest.input_files, manifest.splits
    if split and split not in splits:
        raise UsageError(f"split: expected {' or '.join(splits)}; found {split!r}")
    counts = np.array([shard.documents for shard in shards], np.int64)
    firsts = np.cumsum(counts) - counts
    places = [i for i, one in enumerate(shards) if split in ("", one.split)]
    finder, random = OriginFinder(directory, manifest), Random(seed)  # noqa: S311  no secret

    def of_sources(members: npt.NDArray[np.bool_], n: int) -> list[int]:
        """Return `n` documents of some sources, or all, from as few shards as have enough."""
        found: list[int] = []
        held = finder.may_hold(members)
        for i in random.sample(places, len(places)):
            if held[i] and len(found) < n:
                of_shard = np.flatnonzero(members[finder.sources(shards[i])])
                most = range(min(len(of_shard), n - len(found)))
                found += (firsts[i] + random.sample(of_shard.tolist(), len(most))).tolist()
        return found

    names = np.array([file.name or file.path for file in files])
    has_origins = all(entry.first_slice is not None for entry in shards)
    groups = list(dict.fromkeys(names.tolist())) if has_origins else []
    n = max(LEAST, min(len(groups), MOST_SOURCES)) if wanted is None else wanted
    if source:
        found = of_sources(_members(files, source), n)
        if not found and n:
            raise UsageError(f"source: {source} has no documents {split}".rstrip())
        return found
    total = int(counts[places].sum())
    if n >= total:
        return [int(firsts[i]) + k for i in places for k in range(shards[i].documents)]
    found = []
    for i in evenly_spread(len(groups), n):
        found += of_sources(names == groups[i], 1)
    stops = np.cumsum(counts[places])
    drawn = np.array(random.sample(range(total), min(total, n + len(found))), np.int64)
    at = np.searchsorted(stops, drawn, "right")
    others = drawn - stops[at] + (firsts + counts)[places][at]
    return [*found, *(one for one in others.tolist() if one not in found)][:n]


def noticed_documents(
    directory: Path, manifest: Manifest, name: str, wanted: int | None = None
) -> list[int]:
    """Return documents of the first records behind the counters whose name contains `name`.

    Raises:
        UsageError: there is no such counter, or no origins to find records by.
        VerifyError: a file of origins is damaged.
    """
    kept = manifest.noticed
    chosen = [one for one in kept if name in f"{one} {noticed(2, one)}"]
    if not chosen:
        expected = f"expected one of {', '.join(kept)}" if kept else "the run noticed nothing"
        raise UsageError(f"noticed: {expected}; found {name!r}")
    records = [(piece, number) for one in chosen for piece, number in kept[one]]
    shards, finder, found, first = manifest.shards, OriginFinder(directory, manifest), [], 0
    firsts = np.unique([entry.first_slice or 0 for entry in shards])
    at = np.searchsorted(firsts, [piece for piece, _ in records], "right") - 1
    for entry in shards:
        if (entry.first_slice or 0) in firsts[at]:
            found += (first + finder.made_of(entry, records)).tolist()
        first += entry.documents
    return found[: LEAST if wanted is None else wanted]


def _members(files: Sequence[InputFile], source: str) -> npt.NDArray[np.bool_]:
    """Return which input files a name, a file or a directory stands for."""
    found = [
        source == file.name or PurePosixPath(file.path).is_relative_to(source) for file in files
    ]
    if not any(found):
        names = list(dict.fromkeys(file.name or file.path for file in files))
        n_more = len(names) - _MOST_LISTED
        more = f" and {plural(n_more, 'other')}" if n_more > 0 else ""
        listed = ", ".join(names[:_MOST_LISTED])
        raise UsageError(f"source: expected one of {listed}{more}; found {source!r}")
    return np.array(found)
