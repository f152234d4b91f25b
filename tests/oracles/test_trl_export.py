"""TRL's own collator reads every row of an export, and its trainer takes the usage as it is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.oracles.conftest import import_or_skip
from tokmill.errors import VerifyError
from tokmill.trainers import hf_datasets
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

TOKENIZER = Path(__file__).parents[2] / "data_samples" / "tokenizer"

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    import_or_skip("torch", "trl.trainer.sft_trainer")


@pytest.mark.parametrize(
    ("name", "options", "compared"),
    [
        ("chats", {}, r"^139 documents, 27,590 tokens in \d packs$"),
        ("chats", {"unpacked": True}, "^139 documents, 27,590 tokens$"),
        ("unpacked", {"packing": 3000}, r"^139 documents, 27,590 tokens in \d\d packs$"),
        ("unpacked", {}, "^139 documents, 27,590 tokens$"),
        ("pretrained", {}, "documents, "),
        ("pieces", {}, r"^[\d,]+ pieces, [\d,]+ tokens in \d+ packs$"),
        ("pieces", {"unpacked": True}, r"^180 documents, [\d,]+ tokens$"),
    ],
)
def test_the_collator_returns_every_sample(name, options, compared, tmp_path, request) -> None:
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "trl", tmp_path / "e", ExportOptions(**options), check=True)
    assert made.checked is not None
    assert made.checked.reader.startswith("trl ")
    assert re.search(compared, made.checked.compared)


@pytest.mark.parametrize("what", ["labels", "seq_lengths"])
def test_a_wrong_value_is_found(chats, tmp_path, monkeypatch, what) -> None:
    def wrong_labels(batch):
        labels, offsets = hf_datasets._labels(batch)
        labels[np.argmax(labels != -100)] = -100
        return labels, offsets

    def wrong_lengths(batch):
        lengths = batch.sample_lengths.copy()
        lengths[:2] += (1, -1)
        return lengths, batch.row_samples

    column = {
        "labels": hf_datasets.Column("labels", "int32", wrong_labels),
        "seq_lengths": hf_datasets.Column("seq_lengths", "int32", wrong_lengths, by_sample=True),
    }[what]
    monkeypatch.setattr(f"tokmill.trainers.hf_datasets.{what.upper()}", column)
    with pytest.raises(VerifyError, match="row 0 of train: "):
        export(chats.directory, "trl", tmp_path / "e", ExportOptions(), check=True)


def tiny_model(vocab_size):
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=vocab_size, num_hidden_layers=1, **size))


@pytest.mark.parametrize(
    ("name", "options"),
    [("chats", {}), ("chats", {"unpacked": True}), ("single", {}), ("wide", {}), ("pieces", {})],
)
def test_the_usage_runs_as_it_is_printed(name, options, tmp_path, request, monkeypatch) -> None:
    import trl
    from transformers import PreTrainedTokenizerFast

    monkeypatch.chdir(tmp_path)
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "trl", tmp_path / "e", ExportOptions(**options))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(TOKENIZER)

    class Quick(trl.SFTTrainer):
        def __init__(self, model, arguments, **others):
            super().__init__(model, arguments, processing_class=tokenizer, **others)

    def quick_config(**given):
        # The logits of a row of 4,096 tokens take seconds, those of eight rows gigabytes.
        quickly = {"use_cpu": True, "bf16": False, "max_steps": 1, "report_to": []}
        shorter = {"max_length": 256} if given["max_length"] else {}
        return trl.SFTConfig(**given | quickly | shorter | {"per_device_train_batch_size": 1})

    usage = made.usage.replace("from trl import SFTConfig, SFTTrainer", "")
    model = tiny_model(dataset.manifest["tokenizer"]["vocab_size"])
    names = {"SFTConfig": quick_config, "SFTTrainer": Quick, "model": model}
    exec(usage, names)
    assert names["trainer"].state.global_step == 1
