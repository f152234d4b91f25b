"""ChatGLM: parameter counts of the code of its authors."""

from __future__ import annotations

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.errors import UsageError

L, D, A, F, V = 3, 64, 4, 20, 50


CHATGLM = {
    "model_type": "chatglm", "num_layers": L, "hidden_size": D, "num_attention_heads": A,
    "padded_vocab_size": V, "ffn_hidden_size": F, "kv_channels": 16, "seq_length": 32,
}  # fmt: skip


def test_chatglm_has_groups_and_a_bias_of_the_fused_matrix() -> None:
    config = {"multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True}
    found = model_from_config(CHATGLM | config)
    qkv = D + 2 * 2 * 16

    assert found.parameters == L * (D * qkv + qkv + D * D + 3 * D * F + 2 * D) + D + 2 * V * D
    assert (found.attention.kv_heads, found.positions, found.tied) == (2, 32, False)


def test_the_first_chatglm_is_refused_for_it_is_another_model() -> None:
    with pytest.raises(UsageError, match=r"parameters of chatglm: .* inner_hidden_size"):
        model_from_config(CHATGLM | {"inner_hidden_size": 16384})
