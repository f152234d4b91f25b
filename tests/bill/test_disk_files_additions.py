from __future__ import annotations

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.disk_files import additions

PRETRAIN = DatasetSize("pretrain", tokens=10_000, documents=10, item_bytes=2, shards=3)
SFT = DatasetSize("sft", tokens=10_001, documents=10, item_bytes=4, mask=True)


def amounts(size: DatasetSize, epochs: float = 1.0) -> dict[str, int]:
    return {
        line.name.split(":")[0]: line.n_bytes
        for line in additions(size, sequence=100, epochs=epochs)
    }


def test_a_dataset_for_pretraining_could_have_masks_uint32_and_other_layouts():
    assert amounts(PRETRAIN) == {
        "loss masks": 10_000,
        "uint32 instead of uint16": 20_000,
        "nanoGPT, Megatron, OLMo-core, nanotron": 0,
        "datatrove, nanotron": 80,
        "llm.c, modded-nanogpt, litdata": 20_000 + 3 * 1024,
        "Megatron's indices, cached at load": 40 + 12 * 100,
    }


def test_samples_of_sft_could_have_weights_and_be_packed():
    found = additions(SFT, sequence=100, epochs=1.0)
    by_name = {line.name: line.n_bytes for line in found}
    assert by_name["loss weights (.weight)"] == 40_004
    assert by_name["packing: the index"] == 8 * (10 + 101 + 1)
    assert by_name["packing: the padded rows"] == 5 * 101 * 100 + 20 * 101 + 42
    assert "loss masks" not in by_name
    assert "uint32 instead of uint16" not in by_name
