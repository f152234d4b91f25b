"""Megatron-Bridge's own packed dataset and collator read every row of an export."""

from __future__ import annotations

import numpy as np
import pytest

from tokmill.errors import VerifyError
from tokmill.trainers import megatron_bridge
from tokmill.trainers.export import _is_installed, export
from tokmill.trainers.options import ExportOptions

pytest.importorskip("torch", reason="the oracle is not installed: make oracles")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not _is_installed("megatron-bridge"), reason="megatron-bridge is not installed"
    ),
]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("chats", {}),
        ("chats", {"pad_samples_to": 8}),
        ("unpacked", {"packing": 4096, "pad_samples_to": 64}),
    ],
)
def test_the_collator_returns_every_sample(name, options, tmp_path, request) -> None:
    dataset = request.getfixturevalue(name)
    chosen = ExportOptions(**options)
    made = export(dataset.directory, "megatron-bridge", tmp_path / "e", chosen, check=True)
    assert made.checked is not None
    assert made.checked.reader.startswith("megatron-bridge ")
    assert made.checked.compared.startswith("139 documents, 27,590 tokens in ")


@pytest.mark.parametrize("multiple", [1, 4])
def test_the_collator_returns_every_piece_of_two_tokens(pieces, tmp_path, multiple) -> None:
    options = ExportOptions(pad_samples_to=multiple)
    made = export(pieces.directory, "megatron-bridge", tmp_path / "e", options, check=True)
    assert made.checked is not None
    lengths = [length for packs in pieces.packs.values() for _, length in packs.pieces.tolist()]
    n = sum(length > 1 for length in lengths)
    assert made.checked.compared.startswith(f"{n:,} pieces, ")


def unshifted(batch):
    return batch.mask.astype(np.int8)


def leaking(batch):
    """A shift over the whole row: the first target of a sample lands on the one before."""
    shifted = np.roll(batch.mask.astype(np.int8), -2)
    shifted[-2:] = 0
    return shifted


@pytest.mark.parametrize("wrong", [unshifted, leaking])
def test_a_mask_in_another_alignment_is_found(chats, tmp_path, monkeypatch, wrong) -> None:
    monkeypatch.setattr(megatron_bridge, "predictor_mask", wrong)
    with pytest.raises(VerifyError, match=r"row 0 of train: loss_mask\["):
        export(chats.directory, "megatron-bridge", tmp_path / "e", ExportOptions(), check=True)
