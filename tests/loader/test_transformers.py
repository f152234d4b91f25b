"""Rows train models of Hugging Face as they should: the loss, samples kept apart, the Trainer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.loader import collate, documents, packs, tensors, windows

torch: Any = pytest.importorskip("torch", reason="tests of transformers need torch")
transformers: Any = pytest.importorskip("transformers", reason="tests of transformers need it")


@pytest.fixture(scope="module")
def model() -> Any:
    """A model of two small layers, with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, initializer_range=0.5, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def inputs(batch: dict[str, Any]) -> dict[str, Any]:
    """Return what a model takes, as tensors."""
    taken = ("input_ids", "labels", "position_ids")
    return tensors({name: batch[name] for name in taken if name in batch})


@pytest.mark.parametrize("pad", [True, False])
def test_the_loss_of_packs_is_that_of_their_samples(make_sft, model, pad: bool) -> None:
    directory, _ = make_sft(packed=5)
    losses: list[float] = []
    with torch.no_grad():
        found = float(model(**inputs(packs(directory, pad=pad, shift=False).batch([0, 1, 2]))).loss)
        for sample in documents(directory):
            ids = torch.from_numpy(sample["input_ids"])[None]
            logits = model(input_ids=ids).logits[0, :-1]
            each = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")
            losses += each.numpy()[sample["mask"][1:] == 1].tolist()
    assert len(losses) == 8
    assert found == pytest.approx(np.mean(losses), rel=1e-5)


def test_shifted_labels_are_the_targets_that_a_model_makes_of_others(make_sft, model) -> None:
    directory, _ = make_sft(packed=5)
    with torch.no_grad():
        given = inputs(packs(directory, shift=False).batch([0, 1, 2]))
        expected = float(model(**given).loss)
        shifted = torch.from_numpy(packs(directory, shift=True).batch([0, 1, 2])["labels"])
        logits = model(**{name: one for name, one in given.items() if name != "labels"}).logits
        found = torch.nn.functional.cross_entropy(logits.flatten(0, 1), shifted.flatten())
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_the_trainer_takes_sources(make_sft, model, tmp_path: Path) -> None:
    directory, _ = make_sft(packed=5)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "run"), max_steps=2, per_device_train_batch_size=2, report_to=[],
        use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    for source, collator in (
        (windows(directory, 5, position_ids=True, shift=False), collate),
        (
            packs(directory, pad=False, cu_seqlens=False, shift=False),
            partial(collate, flatten=True),
        ),
    ):
        trainer = transformers.Trainer(
            model, arguments, train_dataset=source, data_collator=collator
        )
        assert trainer.train().training_loss > 0
