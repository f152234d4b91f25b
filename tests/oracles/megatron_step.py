"""The loss of a GPTModel of megatron-core on rows of its GPTDataset, on a CPU, as JSON.

    python -m tests.oracles.megatron_step PREFIX VOCABULARY EOS CACHE

Prints the loss by its own labels and mask, that of the next token by the logits, and the rows.
"""

from __future__ import annotations

import json
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import Split
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig

from tests.oracles.megatron_layer import _without_gpu

ROWS, ROW = 4, 64


def main() -> None:
    """Print the losses and the rows."""
    prefix, vocabulary, eos, cache = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    parallel_state.initialize_model_parallel()
    config = GPTDatasetConfig(
        random_seed=1, sequence_length=ROW, blend=([prefix], None), split="1,0,0",
        reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
        create_attention_mask=True, path_to_cache=cache,
        tokenizer=SimpleNamespace(
            eod=eos, pad=eos, vocab_size=vocabulary, unique_identifiers={"class": "none"}
        ),
    )  # fmt: skip
    index = IndexedDataset(prefix)
    rows = GPTDataset(index, prefix, np.arange(len(index)), 16, Split.train, config)
    batch = {name: torch.stack([rows[i][name] for i in range(ROWS)]) for name in rows[0]}
    inputs = batch["tokens"], batch["position_ids"], batch["attention_mask"]
    torch.manual_seed(0)
    shape = TransformerConfig(
        num_layers=2, hidden_size=32, num_attention_heads=4, use_cpu_initialization=True,
        hidden_dropout=0.0, attention_dropout=0.0, masked_softmax_fusion=False,
        bias_activation_fusion=False, bias_dropout_fusion=False,
    )  # fmt: skip
    with _without_gpu():
        model = GPTModel(
            shape, get_gpt_layer_local_spec(), vocab_size=vocabulary, max_sequence_length=ROW,
            share_embeddings_and_output_weights=False,
        )  # fmt: skip
        with torch.no_grad():
            model.output_layer.weight.mul_(60)
        losses = model(*inputs, labels=batch["labels"]) * batch["loss_mask"]
        theirs = losses.sum() / batch["loss_mask"].sum()
        theirs.backward()
        logits = model(*inputs).double().log_softmax(-1)
    ids = torch.cat([batch["tokens"], batch["labels"][:, -1:]], 1)
    ours = -logits.gather(-1, ids[:, 1:, None]).mean()
    print(json.dumps({"loss": float(theirs), "ours": float(ours), "rows": ids.tolist()}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
