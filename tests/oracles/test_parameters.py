"""Our tensors of a model held against those that transformers makes of the same configuration.

The models stand on the meta device, so that they take no memory. Random configurations vary
everything that decides a tensor or a window; keys are left out too, so that the defaults
of the configuration classes are held as well.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tokmill.bill.models.families import KNOWN, ROWS
from tokmill.bill.models.family import TASKS
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.bill.models.model import Model, Tensor
from tokmill.settings.training import ModelSettings

REASON = "the oracle is not installed: make oracles"

with warnings.catch_warnings():
    # Importing them may warn of optional packages that are not here.
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason=REASON)
    transformers = pytest.importorskip("transformers", "5.23", reason=REASON)

N_CONFIGS = 12
Draw = Callable[[random.Random], dict[str, Any]]


def one_in(rng: random.Random, n: int) -> bool:
    return rng.randrange(n) == 0


def some(rng: random.Random, **choices: list[Any]) -> dict[str, Any]:
    """Return a value of each key, or leave the key to its default."""
    return {key: rng.choice(values) for key, values in choices.items() if not one_in(rng, 4)}


def sizes(rng: random.Random, *, grouped: bool = True, ffn: str = "intermediate_size") -> Any:
    heads = rng.choice([2, 4, 8])
    kv_heads = rng.choice([n for n in (1, 2, 4, 8) if n <= heads])
    return {
        "num_hidden_layers": rng.randint(1, 4),
        "hidden_size": heads * rng.choice([4, 8, 10]),
        "num_attention_heads": heads,
        "vocab_size": rng.randint(40, 90),
        **({"num_key_value_heads": kv_heads} if grouped else {}),
        **({ffn: rng.randint(3, 50)} if ffn else {}),
        **some(rng, tie_word_embeddings=[True, False]),
    }


def with_head(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    return config | {"head_dim": rng.choice([4, 6, 16])}


def kinds(rng: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """Return layer_types in words, now and then."""
    words = ["full_attention", "sliding_attention"]
    drawn = [rng.choice(words) for _ in range(config["num_hidden_layers"])]
    return {"layer_types": drawn} if one_in(rng, 3) else {}


def gpt2(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng, grouped=False, ffn="n_inner")
    return config | {"n_positions": rng.randint(8, 40)} | some(rng, n_inner=[None, 24])


def gpt_neox(rng: random.Random) -> dict[str, Any]:
    more = some(rng, attention_bias=[True, False], rotary_pct=[0.25, 0.5, 1.0])
    return sizes(rng, grouped=False) | more


def opt(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng, grouped=False, ffn="ffn_dim") | some(
        rng,
        enable_bias=[True, False],
        do_layer_norm_before=[True, False],
        _remove_final_layer_norm=[True, False],
        layer_norm_elementwise_affine=[True, False],
        max_position_embeddings=[16, 33],
    )
    # Left out, the class takes 768 for it, whatever the hidden size.
    return config | {"word_embed_proj_dim": rng.choice([config["hidden_size"], 12])}


def bloom(rng: random.Random) -> dict[str, Any]:
    return sizes(rng, grouped=False, ffn="")


def llama(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng) | some(rng, attention_bias=[True, False], mlp_bias=[True, False])
    return with_head(rng, config) if one_in(rng, 2) else config


def mistral(rng: random.Random) -> dict[str, Any]:
    return with_head(rng, sizes(rng)) | some(rng, sliding_window=[None, 16])


def mixtral(rng: random.Random) -> dict[str, Any]:
    more = some(rng, num_local_experts=[2, 5], num_experts_per_tok=[1, 2], sliding_window=[16])
    return sizes(rng) | more


def qwen2(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng) | some(
        rng, use_sliding_window=[True, False], sliding_window=[16], max_window_layers=[0, 2]
    )
    return config | kinds(rng, config)


def qwen2_moe(rng: random.Random) -> dict[str, Any]:
    more = some(
        rng,
        moe_intermediate_size=[7, 12],
        shared_expert_intermediate_size=[9, 16],
        num_experts=[4, 6],
        decoder_sparse_step=[1, 2],
        mlp_only_layers=[[], [0]],
        qkv_bias=[True, False],
        max_window_layers=[0, 2],
        use_sliding_window=[True, False],
    )
    return sizes(rng) | more


def qwen3(rng: random.Random) -> dict[str, Any]:
    config = qwen2(rng) | some(rng, attention_bias=[True, False])
    return with_head(rng, config)


def qwen3_moe(rng: random.Random) -> dict[str, Any]:
    more = some(
        rng,
        moe_intermediate_size=[7, 12],
        num_experts=[9, 16],
        decoder_sparse_step=[1, 2],
        mlp_only_layers=[[], [0]],
        attention_bias=[True, False],
        use_sliding_window=[True, False],
        head_dim=[4, 12],
    )
    return sizes(rng) | more


def gemma(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng) | some(rng, attention_bias=[True, False])
    return with_head(rng, config) if one_in(rng, 2) else config


def gemma2(rng: random.Random) -> dict[str, Any]:
    config = gemma(rng) | some(rng, sliding_window=[16])
    return config | kinds(rng, config)


def gemma3_text(rng: random.Random) -> dict[str, Any]:
    return gemma2(rng) | some(rng, sliding_window_pattern=[2, 3])


def phi(rng: random.Random) -> dict[str, Any]:
    return sizes(rng) | some(rng, qk_layernorm=[True, False], partial_rotary_factor=[0.4, 1.0])


def phi3(rng: random.Random) -> dict[str, Any]:
    return sizes(rng) | some(rng, sliding_window=[16], partial_rotary_factor=[0.5])


def falcon(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng, grouped=False, ffn="")
    return config | some(
        rng,
        new_decoder_architecture=[True, False],
        multi_query=[True, False],
        parallel_attn=[True, False],
        bias=[True, False],
        alibi=[True, False],
        num_kv_heads=[1, 2],
        num_ln_in_parallel_attn=[None, 1, 2],
        ffn_hidden_size=[None, 20],
    )


def olmo2(rng: random.Random) -> dict[str, Any]:
    return sizes(rng) | some(rng, attention_bias=[True, False])


def olmo3(rng: random.Random) -> dict[str, Any]:
    config = olmo2(rng) | some(rng, sliding_window=[16])
    return config | kinds(rng, config)


def smollm3(rng: random.Random) -> dict[str, Any]:
    config = llama(rng) | some(
        rng, use_sliding_window=[True, False], sliding_window=[16], no_rope_layer_interval=[2, 3]
    )
    return config | kinds(rng, config)


def seed_oss(rng: random.Random) -> dict[str, Any]:
    more = some(rng, attention_out_bias=[True, False], residual_dropout=[0.0])
    return with_head(rng, llama(rng)) | more


def glm(rng: random.Random) -> dict[str, Any]:
    config = with_head(rng, sizes(rng)) | some(rng, attention_bias=[True, False])
    return config | some(rng, partial_rotary_factor=[0.5, 1.0])


def ernie4_5(rng: random.Random) -> dict[str, Any]:
    return with_head(rng, sizes(rng)) | some(rng, use_bias=[True, False])


def exaone4(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng) | some(rng, sliding_window_pattern=[2, 4])
    # Without a window, the class makes layer_types only if they are given.
    layers = ["full_attention"] * config["num_hidden_layers"]
    whole = {"sliding_window": None, "layer_types": layers}
    return config | (whole if one_in(rng, 3) else kinds(rng, config))


def apertus(rng: random.Random) -> dict[str, Any]:
    return llama(rng) | {"mlp_bias": False} | some(rng, hidden_act=["xielu", "silu"])


def starcoder2(rng: random.Random) -> dict[str, Any]:
    return sizes(rng) | some(rng, use_bias=[True, False], sliding_window=[None, 16])


def stablelm(rng: random.Random) -> dict[str, Any]:
    return sizes(rng) | some(
        rng,
        use_qkv_bias=[True, False],
        use_parallel_residual=[True, False],
        partial_rotary_factor=[0.5],
    )


def late_experts(rng: random.Random) -> dict[str, Any]:
    more = some(
        rng,
        first_k_dense_replace=[0, 1, 5],
        n_routed_experts=[8, 16],
        moe_intermediate_size=[6, 9],
        n_shared_experts=[1, 3],
        attention_bias=[True, False],
        use_qk_norm=[True, False],
        head_dim=[6, 16],
    )
    return sizes(rng) | more | {"num_experts_per_tok": 2}


def ernie4_5_moe(rng: random.Random) -> dict[str, Any]:
    return sizes(rng) | some(
        rng,
        moe_num_experts=[6, 8],
        moe_intermediate_size=[6, 9],
        moe_num_shared_experts=[0, 1, 2],
        moe_layer_start_index=[0, 2],
        moe_layer_end_index=[1, 3],
        moe_layer_interval=[1, 2],
    )


def local_experts(rng: random.Random) -> dict[str, Any]:
    more = some(rng, num_local_experts=[8, 9], attention_bias=[True, False])
    return sizes(rng) | more


def minimax_m2(rng: random.Random) -> dict[str, Any]:
    return with_head(rng, sizes(rng)) | some(rng, num_local_experts=[8, 9])


def deepseek_v32(rng: random.Random) -> dict[str, Any]:
    config = deepseek(rng) | some(rng, index_n_heads=[2, 4], index_head_dim=[8, 12])
    return config | {"q_lora_rank": 5}


def gpt_oss(rng: random.Random) -> dict[str, Any]:
    config = sizes(rng) | some(
        rng, num_local_experts=[4, 5], attention_bias=[True, False], sliding_window=[16]
    )
    config = with_head(rng, config) if one_in(rng, 2) else config
    return config | kinds(rng, config)


def deepseek(rng: random.Random) -> dict[str, Any]:
    return (
        sizes(rng, grouped=False)
        | some(
            rng,
            first_k_dense_replace=[0, 1, 5],
            kv_lora_rank=[6, 8],
            q_lora_rank=[None, 5],
            qk_rope_head_dim=[4, 8],
            qk_nope_head_dim=[6],
            v_head_dim=[5, 10],
            n_routed_experts=[8, 16],
            moe_intermediate_size=[6, 9],
            n_shared_experts=[1, 3],
            attention_bias=[True, False],
        )
        | {"num_experts_per_tok": 2}
    )


def bert(rng: random.Random) -> dict[str, Any]:
    return sizes(rng, grouped=False) | some(
        rng, type_vocab_size=[1, 3], max_position_embeddings=[16, 33]
    )


def t5(rng: random.Random) -> dict[str, Any]:
    names = {
        "hidden_size": "d_model",
        "intermediate_size": "d_ff",
        "num_hidden_layers": "num_layers",
    }
    drawn = sizes(rng, grouped=False)
    config = {names.get(key, key): value for key, value in drawn.items()}
    return (
        config
        | {"tie_word_embeddings": True}
        | some(
            rng,
            d_kv=[4, 10],
            num_decoder_layers=[None, 1, 3],
            feed_forward_proj=["relu", "gated-gelu", "gated-silu", "gelu"],
            relative_attention_num_buckets=[6],
        )
    )


DRAWS: dict[str, Draw] = {
    draw.__name__: draw
    for draw in (
        gpt2, gpt_neox, opt, bloom, llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe,
        gemma, gemma2, gemma3_text, phi, phi3, falcon, olmo2, gpt_oss, olmo3, smollm3, seed_oss,
        glm, ernie4_5, ernie4_5_moe, exaone4, apertus, starcoder2, stablelm, minimax_m2,
        deepseek_v32,
    )
}  # fmt: skip
DRAWS |= {"granite": llama, "ministral": mistral, "ministral3": mistral, "glm4": glm}
DRAWS |= {"glm4_moe": late_experts, "granitemoe": local_experts, "olmoe": local_experts}
DRAWS |= {"deepseek_v2": deepseek, "deepseek_v3": deepseek}
DRAWS |= {"bert": bert, "roberta": bert, "t5": t5, "mt5": t5}
ENCODER_DECODERS = ("t5", "mt5")
OWN_CODE = {"plain", "baichuan", "chatglm", "minimind"}


def made_by_transformers(family: str, config: dict[str, Any], architecture: str = "") -> Any:
    marks = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # the vocabulary is small
    settings = transformers.CONFIG_MAPPING[family](**(config | marks))
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        if architecture:
            return getattr(transformers, architecture)(settings)
        if family in ENCODER_DECODERS:
            return transformers.AutoModelForSeq2SeqLM.from_config(settings)
        return transformers.AutoModelForCausalLM.from_config(settings)


def names(tensor: Tensor, model: Model) -> list[str]:
    """Return the names of all copies; layers of a decoder are counted from its first one."""
    first = model.encoder_layers if tensor.name.startswith("decoder.") else 0
    return [tensor.name.format(layer - first) for layer in tensor.layers or (0,)]


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor, layer by layer."""
    return {name: tensor.shape for tensor in model.tensors for name in names(tensor, model)}


def parameters(module: Any) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor; a tied table may stand under the head's name."""
    other = {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}
    tied = module.config.tie_word_embeddings
    return {
        other.get(name, name) if tied else name: tuple(tensor.shape)
        for name, tensor in module.named_parameters()
    }


def windows(module: Any, family: str) -> tuple[int, ...]:
    """Return the window that each layer attends to, as its forward takes it."""
    if family in ("mistral", "mixtral", "phi3", "starcoder2", "ministral3"):
        found = [module.config.sliding_window] * module.config.num_hidden_layers
    elif not hasattr(getattr(module, "model", None), "layers"):
        found = []
    else:
        layers = [layer.self_attn for layer in module.model.layers]
        found = [
            getattr(each, "sliding_window", 0) if getattr(each, "is_sliding", True) else 0
            for each in layers
        ]
    return tuple(window or 0 for window in found) if any(found) else ()


def windows_of_layers(model: Model) -> tuple[int, ...]:
    """Return the window of each layer of ours, 0 for none; () if no layer has one."""
    found = {i: block.window for block in model.blocks if block.window for i in block.layers}
    return tuple(found.get(i, 0) for i in range(model.layers)) if found else ()


def test_every_family_of_transformers_is_held_against_it() -> None:
    by_parts = {name for name, row in ROWS.items() if "parts" in row}  # test_layer_kinds.py
    assert set(DRAWS) | OWN_CODE | by_parts == set(KNOWN)


@pytest.mark.parametrize("family", DRAWS)
def test_tensors_and_windows_are_those_of_transformers(family: str) -> None:
    rng = random.Random(family)
    for _ in range(N_CONFIGS):
        config = DRAWS[family](rng)
        theirs = made_by_transformers(family, dict(config))
        ours = model_from_config(config | {"model_type": family})

        found = parameters(theirs)
        assert shapes(ours) == found, config
        assert ours.parameters == theirs.num_parameters(), config
        assert windows_of_layers(ours) == windows(theirs, family), config


IN_TRANSFORMERS = set(dir(transformers))  # `hasattr` would import each model
ARCHITECTURES = [
    (name, architecture)
    for name in DRAWS
    for task in TASKS
    if (architecture := transformers.CONFIG_MAPPING[name].__name__.removesuffix("Config") + task)
    in IN_TRANSFORMERS
]


def test_most_architectures_are_those_of_transformers() -> None:
    assert len(ARCHITECTURES) > 4 * len(DRAWS)


@pytest.mark.parametrize(("family", "architecture"), ARCHITECTURES)
def test_a_head_has_the_shapes_of_the_architecture(family: str, architecture: str) -> None:
    rng = random.Random(architecture)
    answers = architecture.endswith("ForQuestionAnswering")  # start and end, whatever the labels
    for labels in ({}, {} if answers else {"num_labels": 5}):
        config = DRAWS[family](rng)
        theirs = made_by_transformers(family, config | labels, architecture)
        saved = theirs.config.to_diff_dict() if labels else {}
        ours = model_from_config(
            config | saved | {"model_type": family, "architectures": [architecture]}
        )
        assert sorted(shapes(ours).values()) == sorted(parameters(theirs).values())


@pytest.mark.parametrize("family", DRAWS)
def test_sizes_that_are_left_out_are_those_of_the_class(family: str) -> None:
    heads = transformers.CONFIG_MAPPING[family]().num_attention_heads
    config = {"hidden_size": 8 * heads, "num_hidden_layers": 2}
    config = {"d_model": 8 * heads, "num_layers": 2} if family in ENCODER_DECODERS else config
    config |= {"word_embed_proj_dim": 8 * heads} if family == "opt" else {}
    config |= {"num_experts_per_tok": 2} if family == "deepseek_v2" else {}
    config |= {"head_dim": 8} if family == "ministral" else {}

    theirs = made_by_transformers(family, dict(config))
    ours = model_from_config(config | {"model_type": family})

    assert shapes(ours) == parameters(theirs)
    assert ours.positions == getattr(theirs.config, "max_position_embeddings", 0)
    named = ("hidden_activation", "hidden_act", "dense_act_fn")
    activation = next(
        (getattr(theirs.config, key) for key in named if getattr(theirs.config, key, None)),
        ours.activation,
    )
    assert ours.activation == activation


@pytest.mark.parametrize("family", DRAWS)
def test_a_configuration_that_transformers_saved_gives_the_same_model(
    family: str, tmp_path: Any
) -> None:
    rng = random.Random(family)
    for _ in range(3):
        theirs = made_by_transformers(family, DRAWS[family](rng))
        theirs.config.save_pretrained(tmp_path)
        ours = load_model(ModelSettings(name=str(tmp_path)))
        found = parameters(theirs)
        assert shapes(ours) == found


@pytest.mark.parametrize("family", DRAWS)
def test_matrices_are_linear_exactly_where_transformers_has_them(family: str) -> None:
    config = DRAWS[family](random.Random(family))
    theirs = made_by_transformers(family, dict(config))
    ours = model_from_config(config | {"model_type": family})
    linear = {
        (f"{name}.weight", module.weight.shape[0] if is_linear else module.weight.shape[1])
        for name, module in theirs.named_modules()
        if (is_linear := isinstance(module, torch.nn.Linear)) or type(module).__name__ == "Conv1D"
    }
    found = {
        (name, tensor.n_out)
        for tensor in ours.tensors
        if tensor.kind == "linear" and tensor.module != "router"
        for name in names(tensor, ours)
    }
    head = {"bert": "cls.predictions.decoder", "roberta": "lm_head.decoder"}.get(family, "lm_head")
    tied = {(f"{head}.weight", ours.vocabulary)} if ours.tied else set()
    assert found | tied == linear
