"""nanoGPT, llm.c and modded-nanogpt: ids end to end, for the last two behind a header.

nanoGPT reads one `train.bin` and one `val.bin` of uint16 ids; `meta.pkl` is read by train.py
(vocab_size) and by sample.py (stoi, itos). The others read files of 1,024 bytes and tokens:

| bytes        | value                                                               |
|--------------|---------------------------------------------------------------------|
| 0 to 3       | int32: 20240520 for uint16 tokens, 20240801 (Llama 3) for uint32    |
| 4 to 7       | int32: version, 1 for uint16, 7 for uint32                          |
| 8 to 11      | int32: N, the number of tokens                                      |
| 12 to 1,023  | 0                                                                   |
| 1,024 on     | N tokens                                                            |

Little-endian. They expect eos before every document: a file begins with eos, and the eos behind its
last document is left out, so N is unchanged. Sources of the layouts: nanoGPT,
data/openwebtext/prepare.py and get_batch of train.py; llm.c, dev/data/data_common.py and
llmc/dataloader.h; modded-nanogpt, train_gpt.py.
"""

from __future__ import annotations

import glob
import pickle
import re
import shlex
import struct
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.trainer import Checked, Layout, Written, padded
from tokmill.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource


HEADER_BYTES = 1024
VARIANTS = {2: (20240520, 1), 4: (20240801, 7)}
"""Bytes per token to the magic number and the version of the header."""

_MOST_BYTES = (1 << 31) - 1
"""llm.c seeks with an int: a longer file fails in the middle of training."""

_GPT2_EOS = 50_256
_GPT2_VOCABULARY = 50_257
_VAL_BATCH, _VAL_TOKENS = 2_097_152, 10_485_760
"""modded-nanogpt's val_batch_size and val_tokens where they are not changed."""

_GPT2_PROBE = (15496, 11, 220, 10310, 244, 45911, 234, 0, 17031, 198, 197, 87, 796, 23884)
"""What GPT-2's tokenizer makes of the probe text of a manifest."""

PADDED_TO = 64
"""Matrices of such a size are faster on GPUs."""

_BLOCK = 1024
"""nanoGPT's block_size where it is not set."""


class NanoGpt:
    """nanoGPT and the many trainers that read its files."""

    title = "nanoGPT"
    kinds = frozenset({"pretrain"})
    options: frozenset[str] = frozenset()
    reader: tuple[str, ...] = ()

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return one file for each split, and `meta.pkl`; see `Trainer.layout`."""
        source.check_uint16(self.title)
        files = [source.body(f"{split}.bin", source.entries(split)) for split in source.splits]
        if not _is_gpt2(source):
            meta = pickle.dumps({"vocab_size": padded(source.vocab_size, PADDED_TO)}, protocol=2)
            files.append(Written.of("meta.pkl", meta))
        usage = (
            "# config/train_tokmill.py, then: python train.py config/train_tokmill.py\n"
            f"dataset = {str(output.absolute())!r}"
        )
        return Layout(files, usage, notes=_nanogpt_notes(source))

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every token, read as nanoGPT's get_batch reads; see `Trainer.check`."""
        n_tokens = 0
        for split in source.splits:
            path = output / f"{split}.bin"
            found = np.memmap(path, dtype=np.uint16, mode="r")
            if len(found) != source.n_tokens(split):
                raise VerifyError(
                    f"{path}: {plural(len(found), 'token')}, expected {source.n_tokens(split):,}"
                )
            source.check_tokens(split, 0, found, path)
            n_tokens += len(found)
        return Checked(f"numpy {np.__version__}", plural(n_tokens, "token"))


def _is_gpt2(source: ExportSource) -> bool:
    """Return whether the tokenizer is GPT-2's, for which nanoGPT needs no `meta.pkl`."""
    probe_ids = source.manifest.tokenizer.probe_ids
    return source.vocab_size == _GPT2_VOCABULARY and probe_ids == _GPT2_PROBE


def _nanogpt_notes(source: ExportSource) -> list[str]:
    notes = []
    if "val" not in source.splits:
        notes.append(
            "no val split, and train.py opens val.bin before the first step: make the dataset "
            "with --val-fraction, or link train.bin to val.bin (its loss is then a training loss)"
        )
    notes.extend(
        f"{split}.bin has {plural(source.n_tokens(split), 'token')}: block_size "
        f"(default {_BLOCK:,}) must be smaller"
        for split in source.splits
        if source.n_tokens(split) <= _BLOCK
    )
    if not _is_gpt2(source):
        rows = padded(source.vocab_size, PADDED_TO)
        notes.append(
            f"meta.pkl sets vocab_size to {rows:,} (the tokenizer's {source.vocab_size:,}, as a "
            f"multiple of {PADDED_TO}); sample.py knows GPT-2 or single characters, and stops with "
            "KeyError 'stoi': give it this tokenizer's encode and decode"
        )
    return notes


@dataclass(frozen=True, slots=True)
class HeadedFile:
    """One file: the span `start, stop` of the split's stream; `rotated`: eos stands first."""

    name: str
    split: str
    start: int
    stop: int
    rotated: bool

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens."""
        return self.stop - self.start


class LlmC:
    """llm.c: GPT-2 in C from uint16, Llama 3 in Python from uint32."""

    title = "llm.c"
    kinds = frozenset({"pretrain"})
    options = frozenset({"eos", "file_tokens"})
    reader: tuple[str, ...] = ()

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of each split; see `Trainer.layout`."""
        files = _plan(source, options, output)
        script, train, val = "./train_gpt2cu", "-i", "-j"
        if source.dtype.itemsize == 4:
            script, train, val = "python train_llama3.py", "--input_bin", "--input_val_bin"
        usage = f"{script} {train} {shlex.quote(_pattern(output, 'train'))}"
        if "val" in source.splits:
            usage += f" {val} {shlex.quote(_pattern(output, 'val'))}"
        return Layout(_written(source, files), usage, notes=_llmc_notes(source, options, files))

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every token, by the rules of llm.c's loader; see `Trainer.check`."""
        return _check(source, _plan(source, options, output), output, self.title)


class ModdedNanoGpt:
    """modded-nanogpt: uint16 only; it finds documents by the id of GPT-2's eos before them."""

    title = "modded-nanogpt"
    kinds = frozenset({"pretrain"})
    options = frozenset({"eos", "file_tokens"})
    reader: tuple[str, ...] = ()

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of each split, at least two of train; see `Trainer.layout`."""
        files = _modded_files(source, options, output)
        usage = ["# train_gpt.py, class Hyperparameters"]
        usage += [f"{one}_files: str = {_pattern(output, one)!r}" for one in source.splits]
        if n_val := _val_tokens(files):
            usage.append(f"val_tokens: int = {n_val}")
        notes = _modded_notes(source, options, files)
        return Layout(_written(source, files), "\n".join(usage), notes=notes)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every token, by the rules of modded-nanogpt's loader; see `Trainer.check`."""
        return _check(source, _modded_files(source, options, output), output, self.title)


def _plan(
    source: ExportSource, options: ExportOptions, output: Path, fewest: int = 1
) -> list[HeadedFile]:
    """Return the files of an export, of which train has at least `fewest`.

    Raises:
        UsageError: there are too few documents for that, or one is too long for a file.
    """
    if "train" not in source.splits:
        raise UsageError(f"{source.where}: no train documents")
    item_bytes = source.dtype.itemsize
    limit = (_MOST_BYTES - HEADER_BYTES) // item_bytes
    rotated = options.eos == "first" and not _has_bos(source)
    files = []
    for split in source.splits:
        n_least = fewest if split == "train" else 1
        ends = _cut_at_documents(source, split, min(options.file_tokens, limit), n_least)
        if len(ends) < n_least:
            raise UsageError(
                f"{source.where}: the trainer needs {plural(fewest, 'train file')}, and "
                f"there is {plural(len(ends), 'train document')}"
            )
        first = 1 if split == "train" else 0
        for number, (start, stop) in enumerate(zip([0, *ends], ends, strict=False), first):
            if stop - start > limit:
                raise UsageError(
                    f"{source.where}: a document of {stop - start:,} tokens is longer than a "
                    f"file of llm.c can be ({limit:,}): make the dataset with a smaller "
                    "--max-tokens"
                )
            name = f"{_set_name(output)}_{split}_{number:06d}.bin"
            files.append(HeadedFile(name, split, start, stop, rotated))
    return files


def _cut_at_documents(
    source: ExportSource, split: str, most_tokens: int, fewest: int = 1
) -> list[int]:
    """Return where files that hold whole documents end, in tokens; the last one ends the stream.

    A file has at most `most_tokens`; a longer document has a file of its own. The files are about
    equally long, so that none is too short for a trainer's batch. There are at least `fewest`,
    unless there are fewer documents. Time and memory grow with the number of files, not of
    documents.
    """
    total = source.n_tokens(split)
    n_files = max(fewest, -(-total // most_tokens))
    ends: list[int] = []
    start = begin = 0
    for shard in source.shards(split):
        item_bytes = shard.tokens.itemsize
        while (wanted := _file_end(start, total, n_files - len(ends), most_tokens)) < min(
            total, begin + len(shard.tokens)
        ):
            place = wanted - begin
            i = int(np.searchsorted(shard.offsets, place * item_bytes, side="right")) - 1
            found = shard.span(i)
            nearest = found.stop if found.stop - place < place - found.start else found.start
            if begin + nearest <= start or begin + nearest > start + most_tokens:
                nearest = found.start if begin + found.start > start else found.stop
            start = begin + nearest
            ends.append(start)
        begin += len(shard.tokens)
    if total > start:
        ends.append(total)
    return ends


def _file_end(start: int, total: int, n_left: int, most_tokens: int) -> int:
    """Return where the file that begins at `start` ends if all that are left are equally long."""
    n_needed = max(n_left, -(-(total - start) // most_tokens), 1)
    return start + -(-(total - start) // n_needed)


def _written(source: ExportSource, files: list[HeadedFile]) -> list[Written]:
    """Return the files with the functions that write them."""
    item_bytes = source.dtype.itemsize
    return [
        Written(file.name, HEADER_BYTES + file.n_tokens * item_bytes, partial(_write, source, file))
        for file in files
    ]


def _check(source: ExportSource, files: list[HeadedFile], output: Path, reader: str) -> Checked:
    """Compare every header and every token with the dataset.

    Raises:
        VerifyError: something differs.
    """
    for file in files:
        path = output / file.name
        with path.open("rb") as opened:
            header = np.frombuffer(opened.read(HEADER_BYTES), "<i4")
        expected = [*VARIANTS[source.dtype.itemsize], file.n_tokens]
        if header.tolist() != expected + [0] * 253:
            raise VerifyError(f"{path}: header {header[:3].tolist()}, expected {expected}")
        n_bytes = HEADER_BYTES + file.n_tokens * source.dtype.itemsize
        if path.stat().st_size != n_bytes:
            found = plural(path.stat().st_size, "byte")
            raise VerifyError(f"{path}: {found}, expected {n_bytes:,}")
        tokens: npt.NDArray[np.unsignedinteger] = np.memmap(
            path, source.dtype, "r", offset=HEADER_BYTES
        )
        if file.rotated:
            if tokens[0] != source.eos_id:
                raise VerifyError(f"{path}: begins with {tokens[0]}, expected {source.eos_id}")
            tokens = tokens[1:]
        source.check_tokens(file.split, file.start, tokens, path)
    n_documents = sum(len(source.documents(split)) for split in source.splits)
    return Checked(
        f"header rules of {reader}, numpy {np.__version__}",
        f"{plural(sum(file.n_tokens for file in files), 'token')} of "
        f"{plural(n_documents, 'document')} in {plural(len(files), 'file')}",
    )


def _set_name(output: Path) -> str:
    """Return the name of the output in characters that no pattern of a shell gives a meaning."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", output.absolute().name) or "tokens"


def _has_bos(source: ExportSource) -> bool:
    """Return whether every document begins with bos already."""
    return source.manifest.tokenizer.bos is not None


def _write(source: ExportSource, file: HeadedFile, out: BinaryIO) -> None:
    header = *VARIANTS[source.dtype.itemsize], file.n_tokens
    out.write(struct.pack("<3i", *header).ljust(HEADER_BYTES, b"\0"))
    if not file.rotated:
        source.copy_tokens(file.split, file.start, file.stop, out)
        return
    eos, last = source.dtype.type(source.eos_id).tobytes(), BytesIO()
    out.write(eos)
    source.copy_tokens(file.split, file.start, file.stop - 1, out)
    source.copy_tokens(file.split, file.stop - 1, file.stop, last)
    if last.getvalue() != eos:
        raise VerifyError(f"{source.where}: {file.split} token {file.stop - 1:,} is not eos")


def _modded_files(source: ExportSource, options: ExportOptions, output: Path) -> list[HeadedFile]:
    """Return the files; two of train, since the loader opens the second one before the first ends.

    Raises:
        UsageError: modded-nanogpt cannot read such a dataset.
    """
    source.check_uint16("modded-nanogpt")
    if _has_bos(source):
        raise UsageError(
            f"{source.where}: modded-nanogpt expects one token before each document, and these "
            "documents have bos and eos: make the dataset without --bos-token"
        )
    return _plan(source, options, output, fewest=2)


def _pattern(output: Path, split: str) -> str:
    return f"{glob.escape(str(output.absolute()))}/{_set_name(output)}_{split}_*.bin"


def _llmc_notes(source: ExportSource, options: ExportOptions, files: list[HeadedFile]) -> list[str]:
    notes = _order_notes(source, options)
    shortest = min(files, key=lambda file: file.n_tokens)
    notes.append(
        "every file needs processes x B x T + 1 tokens, and the loader leaves out a remainder of "
        f"less than that at its end; the shortest, {shortest.name}, has {shortest.n_tokens:,}"
    )
    if source.dtype.itemsize == 2 and source.vocab_size > _GPT2_VOCABULARY:
        notes.append(
            f"train_gpt2.cu has a vocabulary of 50,257, and this tokenizer {source.vocab_size:,}: "
            "start from a checkpoint (-e) with at least as many"
        )
    if source.dtype.itemsize == 4:
        notes.append("uint32 is read by train_llama3.py only, not by the loader in C")
    if "val" not in source.splits:
        notes.append("no val split: llm.c opens its own tinyshakespeare where none is named")
    return notes


def _modded_notes(
    source: ExportSource, options: ExportOptions, files: list[HeadedFile]
) -> list[str]:
    notes = _order_notes(source, options)
    if source.eos_id != _GPT2_EOS:
        notes.append(
            f"modded-nanogpt finds documents by id {_GPT2_EOS}, and eos is {source.eos_id} here: "
            f"set BOS_ID = {source.eos_id} in train_gpt.py"
        )
    if source.vocab_size > _GPT2_VOCABULARY:
        notes.append(
            f"train_gpt.py has a vocabulary of 50,257, and this tokenizer {source.vocab_size:,}: "
            "set vocab_size where the model is made"
        )
    if "val" not in source.splits:
        notes.append(
            "no val split, and train_gpt.py needs one: make the dataset with --val-fraction"
        )
    elif not _val_tokens(files):
        notes.append(
            f"the val split is shorter than val_batch_size ({_VAL_BATCH:,}): lower it, and set "
            "val_tokens to a multiple of it"
        )
    return notes


def _order_notes(source: ExportSource, options: ExportOptions) -> list[str]:
    if _has_bos(source):
        return ["documents begin with bos already, so eos stays where it is"]
    if options.eos == "last":
        return ["eos stands last: trainers that expect it before a document cut it one token late"]
    return []


def _val_tokens(files: list[HeadedFile]) -> int:
    """Return the tokens of val that modded-nanogpt can read in whole batches, at most its own."""
    batches = sum(max(file.n_tokens - 2, 0) // _VAL_BATCH for file in files if file.split == "val")
    return min(batches * _VAL_BATCH, _VAL_TOKENS)


NANOGPT = NanoGpt()
LLM_C = LlmC()
MODDED_NANOGPT = ModdedNanoGpt()
