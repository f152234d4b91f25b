"""The loss of a step of each trainer is that of our ids and mask: nothing is shifted or lost.

The model has random weights that tell tokens apart: with a mask that is off by one, its loss is
another. All rows are one batch, so their order does not matter. TRL's own step, with its loop, is
in test_trl_training.py.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.fixtures.datasets import CHATS, TOKENIZER
from tests.oracles.conftest import import_or_skip
from tests.oracles.one_step import TRAINING
from tests.oracles.trl_trainer import blank_tokenizer, masks_by_ids, tiny_model
from tokmill.api.dataset import Dataset
from tokmill.tables import TRAINERS

pytestmark = pytest.mark.filterwarnings("ignore")

NO_STEP = {
    "trl": "tests/oracles/test_trl_training.py",
    "unsloth": "it needs a GPU; its rows, and the trainer that it changes, are those of trl",
    "skyrl": "no release reads tokenized rows: 0.3.0 is the newest",
    "megatron-bridge": "its step needs Transformer Engine, which needs a GPU; its collator is read",
    "nemo": "as megatron-bridge",
    "maxtext": "no package; its reader is a file of its repository",
    "nanogpt": "no package",
    "llm.c": "no package",
    "modded-nanogpt": "no package; it needs a GPU",
    "datatrove": "it reads, and does not train",
    "nanotron": "it needs a GPU; its reader is datatrove's",
    "litdata": "it reads, and does not train",
    "litgpt": "its loop needs lightning; its reader is litdata's",
}
"""Trainers that do not train here, and why."""


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    import_or_skip("torch", "transformers", "datasets")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Dataset:
    """Short chats, so that a step takes a fraction of a second."""
    return tokmill.sft(
        CHATS, tokenizer=TOKENIZER, output=tmp_path_factory.mktemp("small") / "out",
        max_tokens=64, too_long="drop-turns", progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(small) -> Any:
    """A model whose loss differs much from token to token."""
    import torch

    made = tiny_model(small.manifest["tokenizer"]["vocab_size"])
    with torch.no_grad():
        made.lm_head.weight.mul_(60)
    return made


@pytest.fixture(scope="module")
def model_folder(model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    blank_tokenizer(model.config.vocab_size).save_pretrained(folder)
    return folder


def hand_loss(model: Any, samples: Sequence[tuple[Any, Any]]) -> float:
    """Return the mean loss of the targets of samples; each is its ids and its mask."""
    import torch

    total, n_trained = 0.0, 0
    for ids, mask in samples:
        with torch.no_grad():
            found = model(torch.tensor(np.asarray(ids, np.int64))[None])
        logits = getattr(found, "logits", found)[0].double().log_softmax(-1).numpy()
        places = np.flatnonzero(mask)
        total -= float(logits[places - 1, np.asarray(ids)[places]].sum())
        n_trained += len(places)
    return total / n_trained


def samples_of(dataset: Dataset) -> list[tuple[Any, Any]]:
    return [(dataset[i], dataset.mask(i)) for i in range(len(dataset))]


def is_ours(theirs: float, model: Any, samples: Sequence[tuple[Any, Any]]) -> bool:
    """Return whether a loss is that of our masks, which differs from that of masks off by one."""
    moved = []
    for ids, mask in samples:
        shifted = np.roll(mask, 1)
        shifted[0] = 0
        moved.append((ids, shifted))
    ours, wrong = hand_loss(model, samples), hand_loss(model, moved)
    assert abs(ours - wrong) > 0.1
    return theirs == pytest.approx(ours, abs=1e-4)


def test_every_trainer_takes_a_step_or_has_a_reason() -> None:
    stepped = {"llamafactory", "ms-swift", "datasets", "axolotl", "torchtitan", "grain"}
    stepped |= {"olmo-core", "megatron", "automodel"}
    assert stepped | NO_STEP.keys() == set(TRAINERS.rows)
    assert not stepped & NO_STEP.keys()


def printed(module: str, words: Sequence[Any]) -> str:
    """Return the last line that a module of the oracles prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.oracles.{module}", *map(str, words)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


def test_commands_of_trainers_take_a_step(small, model, model_folder, tmp_path) -> None:
    cases = [
        ("llamafactory", "llamafactory", {"unpacked": True}),
        ("llamafactory", "llamafactory", {"packing": 128}),
        ("ms-swift", "swift", {"unpacked": True}),
    ]
    exports = []
    for number, (trainer, package, options) in enumerate(cases):
        if importlib.util.find_spec(package) and importlib.util.find_spec("omegaconf"):
            made = small.export(trainer, tmp_path / f"e{number}", **options)
            (tmp_path / f"e{number}.txt").write_text(made.usage)
            exports.append(f"{trainer}={tmp_path}/e{number}")
    if not exports:
        pytest.skip("neither llamafactory nor ms-swift is installed: make oracles")
    words = [model_folder, len(small), tmp_path / "o", *exports]
    losses = json.loads(printed("one_step", words))
    assert len(losses) == len(exports)
    for theirs in losses:
        assert is_ours(theirs, model, samples_of(small))


@pytest.mark.parametrize("trainer", ["datasets", "axolotl"])
def test_transformers_trainer_takes_a_step(trainer, small, model_folder, model, tmp_path) -> None:
    from datasets import load_from_disk
    from transformers import (
        AutoModelForCausalLM,
        DataCollatorForSeq2Seq,
        Trainer,
        TrainingArguments,
    )

    if trainer == "axolotl":
        # axolotl's trainer is this one; 0.19.0 does not import with trl 1.16
        collators = pytest.importorskip("axolotl.utils.collators", exc_type=ImportError)
        DataCollatorForSeq2Seq = collators.DataCollatorForSeq2Seq
    small.export(trainer, tmp_path / "e")
    trained = Trainer(
        AutoModelForCausalLM.from_pretrained(model_folder),
        TrainingArguments(
            output_dir=tmp_path / "o", per_device_train_batch_size=len(small), disable_tqdm=True,
            **TRAINING,
        ),
        train_dataset=load_from_disk(str(tmp_path / "e")),
        data_collator=DataCollatorForSeq2Seq(blank_tokenizer(model.config.vocab_size)),
    )  # fmt: skip
    trained.train()
    assert is_ours(trained.state.log_history[0]["loss"], model, samples_of(small))


@pytest.mark.parametrize("trainer", ["torchtitan", "grain"])
def test_torchtitan_s_loss_of_shifted_labels(trainer, small, model, tmp_path) -> None:
    import torch

    from tokmill.trainers.document_files import DocumentFiles

    loss_of = pytest.importorskip("torchtitan.components.loss", exc_type=ImportError)
    small.export(trainer, tmp_path / "e")
    total, n_targets = 0.0, 0
    for row in DocumentFiles(tmp_path / "e" / "train"):
        labels = torch.tensor(row["labels"])[None]
        with torch.no_grad():
            logits = model(torch.tensor(row["input_ids"])[None]).logits
        total += float(loss_of.cross_entropy_loss(logits, labels))
        n_targets += int((labels != -100).sum())
    assert is_ours(total / n_targets, model, samples_of(small))


def test_olmo_core_s_model_takes_a_step_on_packed_rows(small, tmp_path) -> None:
    import torch

    import_or_skip("olmo_core.nn.transformer")
    from olmo_core.data import NumpyDatasetDType, NumpyPackedFSLDatasetConfig, TokenizerConfig
    from olmo_core.data.utils import get_labels
    from olmo_core.nn.transformer import TransformerConfig

    small.export("olmo-core", tmp_path / "e")
    tokenizer = small.manifest["tokenizer"]
    eos = tokenizer["eos"]["id"]
    rows = NumpyPackedFSLDatasetConfig(
        paths=[f"{tmp_path}/e/train/*.npy"], label_mask_paths=[f"{tmp_path}/e/train-mask/*.npy"],
        expand_glob=True, dtype=NumpyDatasetDType(small.manifest["dtype"]), sequence_length=128,
        tokenizer=TokenizerConfig(tokenizer["vocab_size"], eos_token_id=eos, pad_token_id=eos),
        work_dir=str(tmp_path / "work"), generate_doc_lengths=True, use_array_if_local=False,
    ).build()  # fmt: skip
    rows.prepare()
    torch.manual_seed(0)
    model = TransformerConfig.llama_like(
        d_model=32, vocab_size=tokenizer["vocab_size"], n_layers=2, n_heads=4
    ).build(init_device="cpu")
    model.init_weights(max_seq_len=128, device=torch.device("cpu"))
    with torch.no_grad():
        model.lm_head.w_out.weight.mul_(60)
    batch = {
        name: torch.stack([rows[i][name] for i in range(len(rows))])
        for name in ("input_ids", "label_mask")
    }
    labels = get_labels(batch)
    found = model(
        batch["input_ids"], labels=labels, ignore_index=-100, loss_reduction="sum",
        loss_div_factor=(labels != -100).sum(),
    )  # fmt: skip
    found.loss.backward()
    every = [rows[i] for i in range(len(rows))]
    ours = [(row["input_ids"].numpy(), mask_of(row, small)) for row in every]
    assert sum(mask.sum() for _, mask in ours) == sum(mask.sum() for _, mask in samples_of(small))
    assert is_ours(float(found.loss), model, ours)


def mask_of(row: dict[str, Any], dataset: Dataset) -> Any:
    """Return the mask of a packed row of OLMo-core, by the ids of its samples; 0 in padding."""
    masks = masks_by_ids(dataset)
    parts = np.split(row["input_ids"].numpy().astype(np.int64), np.cumsum(row["doc_lens"])[:-1])
    return np.concatenate([masks.get(ids.tobytes(), np.zeros(len(ids))) for ids in parts])


@pytest.fixture
def megatron_files(pretrained, tmp_path) -> Path:
    pretrained.export("automodel", tmp_path / "e", merge=True)
    return tmp_path / "e" / "train"


def check_pieces(rows: Sequence[Sequence[int]], dataset: Dataset) -> None:
    """Check that rows are documents end to end, of which the first and the last may be cut."""
    split, eos = dataset.split("train"), dataset.manifest["tokenizer"]["eos"]["id"]
    documents = [split[i].tolist() for i in range(len(split))]
    for row in rows:
        ends = [i + 1 for i, token in enumerate(row) if token == eos]
        first, *middle = [row[i:j] for i, j in pairwise([0, *ends, len(row)]) if i < j]
        last = middle.pop() if middle else []
        assert all(piece in documents for piece in middle)
        assert any(last == one[: len(last)] for one in documents)
        if ends:
            assert any(first == one[-len(first) :] for one in documents)


def test_megatron_core_s_model_takes_a_step(megatron_files, pretrained, tmp_path) -> None:
    pytest.importorskip("megatron.core.models.gpt", exc_type=ImportError)
    tokenizer = pretrained.manifest["tokenizer"]
    words = [megatron_files, tokenizer["vocab_size"], tokenizer["eos"]["id"], tmp_path / "cache"]
    found = json.loads(printed("megatron_step", words))
    check_pieces(found["rows"], pretrained)
    assert found["loss"] == pytest.approx(found["ours"], abs=1e-4)


def test_automodel_s_loss_on_its_rows(megatron_files, pretrained, model, tmp_path) -> None:
    import torch

    import_or_skip("nemo_automodel.components.datasets.llm.megatron_dataset")
    from nemo_automodel.components.datasets.llm.megatron_dataset import MegatronPretraining
    from nemo_automodel.components.loss.masked_ce import MaskedCrossEntropy

    reader = MegatronPretraining(
        str(megatron_files), seq_length=64, tokenizer=blank_tokenizer(model.config.vocab_size),
        micro_batch_size=4, global_batch_size=4, split="1,0,0", num_train_samples=4,
        index_mapping_dir=str(tmp_path / "cache"), splits_to_build="train",
    )  # fmt: skip
    reader.build()
    rows = [reader.get_dataset("train")[i] for i in range(4)]
    ids = torch.stack([row["input_ids"] for row in rows])
    labels = torch.stack([row["labels"] for row in rows])
    with torch.no_grad():
        logits = model(ids).logits
    theirs = MaskedCrossEntropy()(logits, labels, num_label_tokens=int((labels != -100).sum()))
    whole = torch.cat([ids, labels[:, -1:]], 1).tolist()
    check_pieces(whole, pretrained)
    ours = [(row, np.arange(len(row)) > 0) for row in whole]
    assert float(theirs) == pytest.approx(hand_loss(model, ours), abs=1e-4)
