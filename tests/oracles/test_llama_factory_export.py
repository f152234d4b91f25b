"""LLaMA-Factory's own loader and collator read every row of an export, and a model trains on it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.oracles.conftest import import_or_skip
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    from tokmill.trainers.llama_factory import without_torchaudio

    with without_torchaudio():
        import_or_skip("datasets", "llamafactory.data.loader", "llamafactory.data.collator")


@pytest.mark.parametrize("name", ["chats", "unpacked", "pieces", "wide"])
def test_the_loader_and_the_collator_return_every_row(name: str, tmp_path, request) -> None:
    dataset = request.getfixturevalue(name)
    made = export(dataset.directory, "llamafactory", tmp_path / "e", ExportOptions(), check=True)
    assert made.checked is not None
    assert made.checked.reader.startswith("llamafactory ")
    assert f"{dataset.n_tokens:,} tokens" in made.checked.compared


def test_a_model_trains_on_the_samples_of_a_pack_as_on_each_alone(unpacked, tmp_path) -> None:
    """The collator's mask keeps the samples apart: the sums of the losses are equal."""
    import datasets
    import torch
    from llamafactory.data.collator import SFTDataCollatorWith4DAttentionMask
    from llamafactory.data.template import TEMPLATES
    from transformers import LlamaConfig, LlamaForCausalLM

    from tokmill.trainers.hf_datasets import padding_tokenizer

    def loss(row: dict, is_packed: bool) -> torch.Tensor:
        collate = SFTDataCollatorWith4DAttentionMask(
            tokenizer=padding_tokenizer(),
            template=TEMPLATES["empty"],
            pad_to_multiple_of=8,
            neat_packing=is_packed,
            block_diag_attn=is_packed,
            attn_implementation="sdpa",
        )
        batch = collate([dict(row)])
        batch.pop("labels")
        labels = torch.tensor(row["labels"] + [-100])[1:]
        logits = model(**batch).logits[0, : len(labels)]
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum")

    longest = max(len(unpacked.split("train")[i]) for i in range(len(unpacked.split("train"))))
    for name, options in (("packs", {"packing": longest}), ("rows", {})):
        export(unpacked.directory, "llamafactory", tmp_path / name, ExportOptions(**options))
    vocab_size = unpacked.manifest["tokenizer"]["vocab_size"]
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
    )
    packs = datasets.load_from_disk(str(tmp_path / "packs"))["train"]
    pack = next(row for row in packs if len(row["packing_params"]["sequence_boundaries"]) > 4)
    ends = pack["packing_params"]["sequence_boundaries"]
    alone = {
        tuple(row["input_ids"]): row
        for row in datasets.load_from_disk(str(tmp_path / "rows"))["train"]
    }
    samples = [alone[tuple(pack["input_ids"][start:stop])] for start, stop in pairwise(ends[:-1])]
    packed = loss(pack, is_packed=True)
    apart = sum(loss(row, is_packed=False) for row in samples)
    torch.testing.assert_close(packed, apart, rtol=1e-4, atol=1e-2)
    packed.backward()
    assert all(p.grad is not None for p in model.parameters())
