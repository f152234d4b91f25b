"""llm.c and modded-nanogpt: headed files of tokens; eos stands before every document."""

from __future__ import annotations

import glob
import shlex
from typing import TYPE_CHECKING

from tokmill.errors import UsageError
from tokmill.trainers.layouts.headed_files import (
    HeadedFile,
    check_files,
    has_bos,
    plan_files,
    set_name,
    written,
)
from tokmill.trainers.trainer import Checked, Layout

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

_GPT2_EOS = 50_256
_GPT2_VOCABULARY = 50_257
_VAL_BATCH, _VAL_TOKENS = 2_097_152, 10_485_760
"""modded-nanogpt's val_batch_size and val_tokens where they are not changed."""


class LlmC:
    """llm.c: GPT-2 in C from uint16, Llama 3 in Python from uint32."""

    title = "llm.c"
    kinds = frozenset({"pretrain"})
    options = frozenset({"eos", "file_tokens"})
    reader: tuple[str, ...] = ()

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of each split; see `Trainer.layout`."""
        files = plan_files(source, options, output)
        script, train, val = "./train_gpt2cu", "-i", "-j"
        if source.dtype.itemsize == 4:
            script, train, val = "python train_llama3.py", "--input_bin", "--input_val_bin"
        usage = f"{script} {train} {shlex.quote(_pattern(output, 'train'))}"
        if "val" in source.splits:
            usage += f" {val} {shlex.quote(_pattern(output, 'val'))}"
        return Layout(written(source, files), usage, notes=_llmc_notes(source, options, files))

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every token, by the rules of llm.c's loader; see `Trainer.check`."""
        return check_files(source, plan_files(source, options, output), output, self.title)


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
        return Layout(written(source, files), "\n".join(usage), notes=notes)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every token, by the rules of modded-nanogpt's loader; see `Trainer.check`."""
        return check_files(source, _modded_files(source, options, output), output, self.title)


def _modded_files(source: ExportSource, options: ExportOptions, output: Path) -> list[HeadedFile]:
    """Return the files; two of train, since the loader opens the second one before the first ends.

    Raises:
        UsageError: modded-nanogpt cannot read such a dataset.
    """
    if source.dtype.itemsize != 2:
        way = (
            "make it with --dtype=uint16"
            if source.vocab_size <= 1 << 16
            else f"choose a tokenizer with at most 65,536 ids (this one has {source.vocab_size:,})"
        )
        raise UsageError(
            f"{source.directory}: modded-nanogpt reads uint16, and this dataset is uint32: {way}"
        )
    if has_bos(source):
        raise UsageError(
            f"{source.directory}: modded-nanogpt expects one token before each document, and these "
            "documents have bos and eos: make the dataset without --bos-token"
        )
    return plan_files(source, options, output, fewest=2)


def _pattern(output: Path, split: str) -> str:
    return f"{glob.escape(str(output.absolute()))}/{set_name(output)}_{split}_*.bin"


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
    if has_bos(source):
        return ["documents begin with bos already, so eos stays where it is"]
    if options.eos == "last":
        return ["eos stands last: trainers that expect it before a document cut it one token late"]
    return []


def _val_tokens(files: list[HeadedFile]) -> int:
    """Return the tokens of val that modded-nanogpt can read in whole batches, at most its own."""
    batches = sum(max(file.n_tokens - 2, 0) // _VAL_BATCH for file in files if file.split == "val")
    return min(batches * _VAL_BATCH, _VAL_TOKENS)


LLM_C = LlmC()
MODDED_NANOGPT = ModdedNanoGpt()
