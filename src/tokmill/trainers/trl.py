"""TRL's SFTTrainer: a directory for `load_from_disk`, tokenized and with labels.

Columns: `input_ids`; for chats `labels` (-100 where the mask is 0, at the token's own place); for
packs `seq_lengths`, the tokens of each sample, or piece of a document, of a row. There is no
`attention_mask`: one of all ones hides the ends of samples from FlashAttention.

Source of the layout: TRL, trainer/sft_trainer.py (`SFTTrainer.__init__`,
`DataCollatorForLanguageModeling`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.trainers.checks.compare_rows import (
    check_count,
    check_equal,
    compared,
    expected_rows,
)
from tokmill.trainers.hf_datasets import loaded
from tokmill.trainers.layouts.arrow_directory import (
    INPUT_IDS,
    LABELS,
    SEQ_LENGTHS,
    Column,
    arrow_files,
)
from tokmill.trainers.layouts.rows import rows_of
from tokmill.trainers.trainer import Checked, Layout

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.checks.compare_rows import Sample
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource


class Trl:
    """SFTTrainer of TRL, with a row for each sample or for each pack."""

    title = "TRL"
    kinds = frozenset({"pretrain", "sft"})
    options = frozenset({"packing", "unpacked"})
    reader: tuple[str, ...] = ("trl", "datasets")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of the directory; see `Trainer.layout`."""
        splits = [rows_of(source, split, options) for split in source.splits]
        is_packed = any(rows.packs is not None for rows in splits)
        return Layout(
            arrow_files(source, splits, _columns(source, is_packed=is_packed)),
            _usage(source, output, is_packed=is_packed),
            "target" if source.kind == "sft" else "",
            _notes(source, is_packed=is_packed),
        )

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every row as TRL's collator returns it; see `Trainer.check`."""
        import trl
        from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

        collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
        splits = [rows_of(source, split, options) for split in source.splits]
        for rows in splits:
            found = loaded(output, rows.split)
            check_count(len(found), rows, str(output))
            for i, samples in enumerate(expected_rows(source, rows)):
                _compare(collate([found[i]]), samples, f"{output}: row {i} of {rows.split}")
        return Checked(f"trl {trl.__version__}", compared(splits))


def _columns(source: ExportSource, *, is_packed: bool) -> list[Column]:
    columns = [INPUT_IDS, LABELS] if source.kind == "sft" else [INPUT_IDS]
    return [*columns, SEQ_LENGTHS] if is_packed else columns


def _usage(source: ExportSource, output: Path, *, is_packed: bool) -> str:
    if source.kind != "sft" and not is_packed:
        settings = '    packing=True, packing_strategy="wrapped", max_length=4096,  # rows of 4,096'
    else:
        settings = (
            '    dataset_kwargs={"skip_prepare_dataset": True}, max_length=None,\n'
            f"    padding_free={is_packed}, per_device_train_batch_size={1 if is_packed else 8},"
        )
    several = len(source.splits) > 1
    train = 'dataset["train"], eval_dataset=dataset["val"]' if several else "dataset"
    return (
        "from datasets import load_from_disk\n"
        "from trl import SFTConfig, SFTTrainer\n\n"
        f"dataset = load_from_disk({str(output.absolute())!r})\n"
        f'arguments = SFTConfig(\n    output_dir="checkpoints",\n{settings}\n)\n'
        f"trainer = SFTTrainer(model, arguments, train_dataset={train})\n"
        "trainer.train()"
    )


def _notes(source: ExportSource, *, is_packed: bool) -> list[str]:
    if is_packed:
        return [
            "the samples of a pack stay apart only with padding_free=True and a model loaded with "
            'attn_implementation="flash_attention_2" or another kernel that reads cu_seq_lens'
        ]
    if source.kind != "sft":
        return ["TRL makes rows of max_length tokens itself, and trains every token"]
    return []


def _compare(batch: Any, samples: list[Sample], where: str) -> None:
    """Compare one row, as the collator returned it, with its samples."""
    lengths = [len(sample.ids) for sample in samples]
    labels = np.concatenate([sample.labels for sample in samples])
    starts = np.cumsum([0, *lengths])
    labels[starts[:-1]] = -100  # the collator's own rule; our masks have 0 there
    expected = {
        "input_ids": np.concatenate([sample.ids for sample in samples]),
        "labels": labels,
        "position_ids": np.concatenate([np.arange(length) for length in lengths]),
    }
    for name, values in expected.items():
        check_equal(batch[name][0].numpy(), values, where, name)
    check_equal(batch["cu_seq_lens_q"].numpy(), starts, where, "cu_seq_lens_q")


TRAINER = Trl()
