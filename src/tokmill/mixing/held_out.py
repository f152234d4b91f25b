"""Held-out texts, such as benchmarks: read, encoded as the datasets of a mix were, and indexed.

The ids at both ends of a text depend on what stands beside it. So each text is encoded as it is,
and with a space or a line end before it, a line end behind it: all of these are looked for.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.identity import identity_of
from tokmill.dataset.layout import MANIFEST, SPLITS
from tokmill.dataset.manifest import HeldOutFile
from tokmill.dataset.reader import open_shard, read_intact_manifest
from tokmill.errors import RecordError, TokenizerError, UsageError
from tokmill.inspect.samples import text_decoder
from tokmill.mixing.ngrams import NgramIndex, make_index
from tokmill.mixing.settings import WORDS
from tokmill.mixing.words import numbered, words_of
from tokmill.offsets import split_by_bytes
from tokmill.place import open_place
from tokmill.rendering.fields import is_text, is_used, strings_of
from tokmill.run.stream import in_order, read_records
from tokmill.run.text_encoder import TextEncoder
from tokmill.settings.schema import Config, InputSettings, LimitSettings
from tokmill.tokenizer.kept import kept_tokenizer
from tokmill.urls import is_store, local_path, shown_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.mixing.inputs import Input, Inputs
    from tokmill.mixing.settings import MixSettings
    from tokmill.mixing.temporary import Temporary
    from tokmill.tokenizer.tokenizer import Tokenizer

_SETTING = "mix.against"
_HEADS, _TAILS = ("", " ", "\n"), ("", "\n")
_PIECE_BYTES = 1 << 20

_PREFIX = "against-"
_ARRAYS: dict[str, np.dtype[Any]] = {
    "ids": np.dtype(np.uint32),
    "hashes": np.dtype(np.uint64),
    "starts": np.dtype(np.int64),
    "firsts": np.dtype(np.int64),
    "texts": np.dtype(np.int64),
    "short_filter": np.dtype(np.bool_),
    "filter": np.dtype(np.bool_),
}
"""The arrays of the index, each in a file without a header, which all workers map."""


class HeldOutText(NamedTuple):
    """A held-out text.

    Attributes:
        file: number of its file.
        row: number of its record, from 1; of a dataset, of its document in the split, from 0.
        field: path of the field in the record; of a dataset, the split.
        text: '' for a document of a dataset.
        ids: (n,) uint32, of a document of a dataset, without bos and eos; None for others.
    """

    file: int
    row: int
    field: str
    text: str = ""
    ids: npt.NDArray[np.uint32] | None = None


@dataclass(frozen=True, slots=True)
class HeldOut:
    """All held-out texts of a mix, and the files that they are from."""

    files: Sequence[HeldOutFile] = ()
    texts: Sequence[HeldOutText] = ()


def read_held_out(settings: MixSettings, inputs: Inputs) -> HeldOut:
    """Return the texts of all paths of `--against`.

    Raises:
        UsageError: a path has no text, or is a dataset of another tokenizer.
        RecordError: a record cannot be read.
        TokmillError: a file cannot be read, or a dataset is damaged.
    """
    files: list[HeldOutFile] = []
    texts: list[HeldOutText] = []
    for path in map(local_path, settings.against):
        n_before = len(texts)
        datasets, has_others = _datasets_of(path)
        for directory in datasets:
            of_dataset, entry = _documents(directory, inputs, len(files))
            texts += of_dataset
            files.append(entry)
        if has_others:
            _read_records(path, settings.against_fields, files, texts)
        if len(texts) == n_before:
            fields = ", ".join(settings.against_fields)
            what = f"no text in the fields {fields}" if fields else "no text"
            raise UsageError(f"{path}: {what} to look for", _SETTING)
    return HeldOut(files, texts)


def _datasets_of(path: str) -> tuple[list[Path], bool]:
    """Return the datasets that a path is or holds, and whether it may hold other files."""
    directory = Path(path)
    if is_store(path):
        try:
            open_place(path).read(MANIFEST)
        except FileNotFoundError:
            return [], True
        return [directory], False
    if (directory / MANIFEST).is_file():
        return [directory], False
    if not directory.is_dir():
        return [], True
    inside = sorted(one.parent for one in directory.glob(f"*/{MANIFEST}"))
    names = {one.name for one in inside}
    others = (one.name for one in directory.iterdir() if not one.name.startswith("."))
    return inside, not inside or any(name not in names for name in others)


def _documents(
    directory: Path, inputs: Inputs, number: int
) -> tuple[list[HeldOutText], HeldOutFile]:
    """Return the documents of a finished dataset; `number`: of it among all files."""
    manifest = read_intact_manifest(directory)
    where = shown_place(directory)
    here, mixed = manifest.tokenizer, inputs.manifest.tokenizer
    if here.identity != mixed.identity:
        raise UsageError(
            f"{where}: its tokenizer ({here.name}) is not that of the mixed datasets "
            f"({mixed.name}): name the texts that it was made of instead",
            _SETTING,
        )
    checked = CheckedFiles.of(directory, manifest.files)
    ends = {here.eos.id} | ({here.bos.id} if here.bos else set())
    texts: list[HeldOutText] = []
    for split in SPLITS:
        n = 0
        for entry in manifest.of_split(split):
            checked.check(directory / f"{entry.name}.{ending}" for ending in ("idx", "bin"))
            shard = open_shard(directory, manifest, entry)
            offsets = np.cumsum(np.append(0, shard.lengths[:]), dtype=np.int64)
            ids = np.asarray(shard.tokens[:]).astype(np.uint32)
            for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
                document = _without_ends(ids[start:stop], ends)
                texts.append(HeldOutText(number, n, split, ids=document))
                n += 1
    return texts, HeldOutFile(str(where), identity_of(manifest, where))


def _without_ends(ids: npt.NDArray[np.uint32], ends: set[int]) -> npt.NDArray[np.uint32]:
    """Return a document without bos and eos, which any other has, too."""
    start, stop = 0, len(ids)
    if stop and int(ids[0]) in ends:
        start = 1
    if stop > start and int(ids[-1]) in ends:
        stop -= 1
    return ids[start:stop]


def _read_records(
    path: str, fields: Sequence[str], files: list[HeldOutFile], texts: list[HeldOutText]
) -> None:
    """Add the texts of all records of a path, and its files."""
    limits = LimitSettings(on_error="fail")
    config = Config(input=InputSettings(paths=(path,)), limits=limits)
    digests: dict[str, Any] = {}
    first = len(files)
    try:
        for batch in read_records(config):
            digest = digests.setdefault(batch.path, hashlib.sha256())
            number = first + list(digests).index(batch.path)
            for row, line in zip(batch.numbers.tolist(), batch.content.to_pylist(), strict=True):
                digest.update(line.encode() + b"\n")
                for field, text in _texts_of(json.loads(line), fields):
                    texts.append(HeldOutText(number, row, field, text))
    except RecordError as error:
        told, _, _ = str(error).partition("; --")  # a mix has no such option
        raise RecordError(f"{told}: held-out texts must be read to the last one") from None
    except UsageError as error:
        told, _, _ = str(error).partition("; name its format")
        raise UsageError(told, _SETTING) from None
    files += [HeldOutFile(name, digest.hexdigest()) for name, digest in digests.items()]


def _texts_of(record: Any, fields: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a record that hold text, or those that are named, with their texts."""
    for field, text in strings_of(record, ()):
        if text.strip() and (is_used(field, fields) if fields else is_text(text)):
            yield field, text.strip()


def keep_index(
    held_out: HeldOut, settings: MixSettings, inputs: Inputs, temporary: Temporary
) -> int:
    """Write the index of held-out texts for the tasks of a mix.

    Returns:
        How many texts are too short to be looked for.
    """
    numbers: dict[str, int] = {}
    if settings.ngram_unit == WORDS:
        encoded = _numbered_words(held_out.texts, inputs, numbers)
    else:
        encoded = _encoded(held_out.texts, inputs)
    variants: list[npt.NDArray[np.uint32]] = []
    owners: list[int] = []
    lengths = []
    for number, ids_of_text in enumerate(encoded):
        lengths.append(len(ids_of_text[0]))
        if lengths[-1] >= settings.ngram:
            variants += ids_of_text
            owners += [number] * len(ids_of_text)
    index = make_index(variants, owners, settings.ngram)
    for name in _ARRAYS:
        with temporary.new(f"{_PREFIX}{name}") as file:
            file.write(np.ascontiguousarray(getattr(index, name)).data)
    about = {
        "seed": index.seed,
        "files": [file.path for file in held_out.files],
        "places": [(text.file, text.row, text.field) for text in held_out.texts],
        "lengths": lengths,
        "words": list(numbers),
    }
    with temporary.new(f"{_PREFIX}about") as file:
        file.write(json.dumps(about).encode())
    return sum(length < settings.ngram for length in lengths)


def open_index(temporary: Temporary, n: int) -> NgramIndex:
    """Map the index that `keep_index` has written."""
    arrays = {name: temporary.map(f"{_PREFIX}{name}", dtype) for name, dtype in _ARRAYS.items()}
    return NgramIndex(n, read_about(temporary)["seed"], **arrays)


def read_about(temporary: Temporary) -> dict[str, Any]:
    """Return what there is to know of held-out texts, but their ids.

    `files`: their paths. `places`: of each text its file, row and field. `lengths`: its tokens, or
    words. `words`: by their numbers, if runs are of words.
    """
    about: dict[str, Any] = json.loads(temporary.read(f"{_PREFIX}about"))
    return about


def _numbered_words(
    texts: Sequence[HeldOutText], inputs: Inputs, numbers: dict[str, int]
) -> Iterator[Sequence[npt.NDArray[np.uint32]]]:
    """Yield the numbers of the words of each text, and add new ones to `numbers`."""
    decode: Callable[[Sequence[int]], str] | None = None
    for text in texts:
        string = text.text
        if text.ids is not None:
            decode = decode or text_decoder(inputs.manifest, tokenizer_of_mix(inputs))
            string = decode(text.ids.tolist())
        yield [numbered(words_of(string), numbers)]


def _encoded(
    texts: Sequence[HeldOutText], inputs: Inputs
) -> Iterator[Sequence[npt.NDArray[np.uint32]]]:
    """Yield the ids of each text: alone, then with what may stand beside it."""
    strings = [text.text for text in texts if text.ids is None]
    of_strings = _encoded_strings(strings, inputs) if strings else iter(())
    for text in texts:
        yield next(of_strings) if text.ids is None else [text.ids]


def _encoded_strings(
    strings: list[str], inputs: Inputs
) -> Iterator[Sequence[npt.NDArray[np.uint32]]]:
    tokenizer = tokenizer_of_mix(inputs)
    n_bytes = len(_HEADS) * len(_TAILS) * sum(map(len, strings))
    encoder = TextEncoder(Config(), tokenizer, strings, n_bytes)
    (line_end,) = _ids_of(encoder, ["\n"])
    sides = [(head, tail) for head in _HEADS for tail in _TAILS]
    encoded = [
        _ids_of(encoder, [f"{head}{text}{tail}" for text in strings]) for head, tail in sides
    ]
    for of_text in zip(*encoded, strict=True):
        distinct: dict[bytes, npt.NDArray[np.uint32]] = {}
        for (head, tail), ids in zip(sides, of_text, strict=True):
            own = _without_line_ends(ids, line_end, is_first=head == "\n", is_last=tail == "\n")
            distinct.setdefault(own.tobytes(), own)
        yield list(distinct.values())


def _ids_of(encoder: TextEncoder, strings: list[str]) -> Iterator[npt.NDArray[np.uint32]]:
    """Yield the ids of texts."""
    pieces = split_by_bytes(pa.array(strings, pa.large_string()), _PIECE_BYTES)
    with closing(in_order(pieces, encoder.encode, encoder.n_threads)) as batches:
        for batch in batches:
            for start, stop in zip(
                batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True
            ):
                yield batch.ids[start:stop]


def _without_line_ends(
    ids: npt.NDArray[np.uint32], line_end: npt.NDArray[np.uint32], *, is_first: bool, is_last: bool
) -> npt.NDArray[np.uint32]:
    """Return ids without those of a line end before or behind, where these are ids of their own."""
    n = len(line_end)
    if is_first and len(ids) > n and np.array_equal(ids[:n], line_end):
        ids = ids[n:]
    if is_last and len(ids) > n and np.array_equal(ids[-n:], line_end):
        ids = ids[:-n]
    return ids


def tokenizer_of_mix(inputs: Inputs) -> Tokenizer:
    """Return the tokenizer of the first dataset that keeps it.

    Raises:
        UsageError: none does.
    """
    for dataset in inputs.datasets:
        try:
            return _kept(dataset)
        except TokenizerError:
            continue
    raise UsageError(
        f"{inputs.datasets[0].place}: keeps no tokenizer, and held-out texts need one: name a "
        "dataset that was made of them",
        _SETTING,
    )


def _kept(dataset: Input) -> Tokenizer:
    return kept_tokenizer(open_place(dataset.place), dataset.manifest)
