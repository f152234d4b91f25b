"""nanoGPT: one `train.bin` and one `val.bin` of uint16 ids, end to end, without header.

Source of the layout: nanoGPT, data/openwebtext/prepare.py and the function get_batch of train.py.
`meta.pkl` is read by train.py (vocab_size) and by sample.py (stoi, itos).
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import VerifyError
from tokmill.trainers.trainer import Checked, Layout, Written, padded
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource

_GPT2_VOCABULARY = 50_257
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
        return Layout(files, usage, notes=_notes(source))

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
    probe = source.manifest["tokenizer"].get("probe", {})
    return source.vocab_size == _GPT2_VOCABULARY and tuple(probe.get("ids", ())) == _GPT2_PROBE


def _notes(source: ExportSource) -> list[str]:
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


TRAINER = NanoGpt()
