"""Trains a tiny Llama with TRL's SFTTrainer on an export of chats.

The model has random weights; nothing is downloaded. TRL's loss on its first batch is compared with
the loss that the dataset's own mask gives on the same logits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokmill.api.dataset import Dataset


def tiny_model(vocab_size: int) -> Any:
    """Return a Llama of 2 layers of 32 with random weights, the same ones every time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, **shape, **heads))


def blank_tokenizer(vocab_size: int) -> Any:
    """Return a tokenizer that only pads: SFTTrainer wants one, and the rows are tokens already."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0} | {f"t{i}": i for i in range(1, vocab_size)}
    library = Tokenizer(WordLevel(words, unk_token="<pad>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=library, pad_token="<pad>", eos_token=f"t{vocab_size - 1}"
    )


def make_trainer(dataset: Dataset, folder: Path, *, steps: int, batch: int = 8) -> Any:
    """Return an SFTTrainer on the train split of an export to `folder`, one row a sample."""
    from datasets import DatasetDict, load_from_disk
    from trl import SFTConfig, SFTTrainer

    dataset.export("trl", folder / "export", unpacked=True)
    rows = load_from_disk(str(folder / "export"))
    vocab_size = dataset.manifest["tokenizer"]["vocab_size"]
    arguments = SFTConfig(
        output_dir=str(folder / "checkpoints"),
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        per_device_train_batch_size=batch,
        max_steps=steps,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=1,
    )
    return SFTTrainer(
        tiny_model(vocab_size),
        arguments,
        train_dataset=rows["train"] if isinstance(rows, DatasetDict) else rows,
        processing_class=blank_tokenizer(vocab_size),
    )


def first_losses(trainer: Any, dataset: Dataset) -> tuple[float, float]:
    """Return TRL's loss on its first batch, and that of the dataset's mask on the same logits."""
    import torch

    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.eval()
    with torch.no_grad():
        theirs = float(trainer.compute_loss(trainer.model, dict(batch)))
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        logits = trainer.model(**inputs).logits.double().log_softmax(-1).numpy()
    masks = masks_by_ids(dataset.split("train"))
    total, n_trained = 0.0, 0
    for row, is_real, scores in zip(
        batch["input_ids"].numpy(), batch["attention_mask"].numpy() == 1, logits, strict=True
    ):
        ids = row[is_real]
        places = np.flatnonzero(masks[ids.tobytes()])
        total -= float(scores[places - 1, ids[places]].sum())
        n_trained += len(places)
    return theirs, total / n_trained


def masks_by_ids(split: Dataset) -> dict[bytes, Any]:
    """Return the mask of every sample by its ids as int64."""
    return {split[i].astype(np.int64).tobytes(): split.mask(i) for i in range(len(split))}


def train(trainer: Any) -> list[float]:
    """Train; return the loss of every step."""
    trainer.model.train()
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
