import pytest

from tokmill.bill.settings_files import ReadSettings, read_axolotl
from tokmill.errors import UsageError

FULL = "base_model: gpt2\nsequence_len: 1024\nmicro_batch_size: 1\noptimizer: adamw_torch\n"


def read(tmp_path, text):
    path = tmp_path / "train.yml"
    path.write_text(text, encoding="utf-8")
    return read_axolotl(path)


def test_a_whole_qlora(tmp_path):
    found = read(
        tmp_path,
        """
base_model: NousResearch/Llama-2-7b-hf
model_type: LlamaForCausalLM
load_in_8bit: false
load_in_4bit: true
datasets:
  - path: some/dataset
    type: alpaca
val_set_size: 0.05
adapter: qlora
lora_model_dir:
sequence_len: 4096
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
wandb_project:
wandb_name: x
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 2e-4
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
evals_per_epoch: 4
weight_decay: 0.0
special_tokens:
""",
    )
    assert found == ReadSettings(
        training={
            "sequence": 4096, "micro_batch": 2, "accumulation": 4, "adapter_rank": 32,
            "optimizer": "adamw-8bit", "optimizer_step": "fused", "adapter": "lora",
            "adapter_targets": "all-linear", "weights": "nf4-double", "attention": "flash",
            "checkpointing": "full", "epochs": 4.0, "precision": "amp",
        },
        model={"name": "NousResearch/Llama-2-7b-hf"},
        notes=("bf16: auto, taken as bf16", "adapter: weights in bf16 below, adapters in fp32"),
        not_read=(
            "model_type", "datasets", "val_set_size", "sample_packing", "lora_alpha",
            "lora_dropout", "wandb_name", "lr_scheduler", "learning_rate", "evals_per_epoch",
        ),
    )  # fmt: skip


def test_a_file_without_a_model_names_none(tmp_path):
    assert read(tmp_path, "sequence_len: 8").model == {}


@pytest.mark.parametrize(
    ("text", "precision", "weights"),
    [
        ("bf16: true", "pure-16", None),
        ("bf16: full", "pure-16", None),
        ("fp16: yes", "pure-16", None),
        ("bf16: false\nfp16:", "fp32", None),
        ("", None, None),
        ("bf16: true\nadapter: lora", "amp", "bf16"),
        ("bf16: true\nadapter: lora\nload_in_8bit: true", "amp", "int8"),
        ("bf16: true\nadapter: qlora\nload_in_4bit: true\n"
         "bnb_config_kwargs: {bnb_4bit_use_double_quant: false}", "amp", "nf4"),
        ("bf16: true\nfsdp: [full_shard]", "amp", None),
        ("bf16: true\ndeepspeed: {bf16: {enabled: auto}, zero_optimization: {stage: 2}}",
         "mixed-16", None),
    ],
)  # fmt: skip
def test_precision_and_weights(tmp_path, text, precision, weights):
    found = read(tmp_path, FULL + text).training
    assert (found.get("precision"), found.get("weights")) == (precision, weights)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("bf16: true", ("bf16: weights, gradients and states are all in bf16",)),
        ("fp16: true\nadapter: lora\nlora_r: 8\nlora_target_linear: true",
         ("adapter: weights in fp16 below, adapters in fp32",)),
        ("bf16: true\nfsdp: [full_shard]",
         ("bf16: FSDP keeps the sharded weights and their states in fp32",)),
        ("bf16: true\ndeepspeed: {zero_optimization: {stage: 2}}", ()),
    ],
)  # fmt: skip
def test_what_was_assumed_is_noted(tmp_path, text, notes):
    assert read(tmp_path, FULL + text).notes == notes


@pytest.mark.parametrize(
    ("options", "weights", "listed"),
    [
        ("{bnb_4bit_use_double_quant: true, bnb_4bit_quant_type: nf4}", "nf4-double", ()),
        ("{bnb_4bit_quant_type: fp4}", "int4", ()),
        ("{new: 1}", "nf4-double", ("bnb_config_kwargs.new",)),
    ],
)
def test_how_4_bit_weights_are_quantized(tmp_path, options, weights, listed):
    found = read(tmp_path, f"{FULL}load_in_4bit: true\nbnb_config_kwargs: {options}")
    assert (found.training["weights"], found.not_read) == (weights, listed)


def test_options_of_4_bit_do_nothing_to_8_bit(tmp_path):
    found = read(
        tmp_path, f"{FULL}load_in_8bit: true\nbnb_config_kwargs: {{bnb_4bit_quant_type: fp4}}"
    )
    assert found.training["weights"] == "int8"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lora_target_modules: [q_proj, v_proj]", "q_proj,v_proj"),
        ("lora_target_modules: [q_proj]\nlora_target_linear: true", "all-linear"),
        ("lora_target_modules: all-linear", "all-linear"),
        ("lora_target_modules: 'model.layers.[\\d]+.mlp'", None),
    ],
)
def test_what_is_adapted(tmp_path, text, expected):
    found = read(tmp_path, f"{FULL}bf16: true\nadapter: lora\nlora_r: 8\n{text}")
    assert found.training.get("adapter_targets") == expected
    listed = ("lora_target_modules: a pattern",) if expected is None else ()
    assert found.not_read == listed


def test_dora_is_an_adapter_with_magnitudes(tmp_path):
    assert read(tmp_path, "adapter: lora\npeft_use_dora: true").training["adapter"] == "dora"


@pytest.mark.parametrize(
    ("text", "attention"),
    [
        ("flash_attention: true", "flash"),
        ("sdp_attention: true", "flash"),
        ("eager_attention: true", "eager"),
        ("attn_implementation: eager", "eager"),
        ("attn_implementation: sdpa", "flash"),
        ("flash_attention:", None),
    ],
)
def test_attention(tmp_path, text, attention):
    assert read(tmp_path, FULL + text).training.get("attention") == attention


def test_attention_by_another_kernel_is_noted(tmp_path):
    known = read(tmp_path, f"{FULL}bf16: false\nattn_implementation: flash_attention_2")
    other = read(tmp_path, f"{FULL}bf16: false\nattn_implementation: flex_attention")
    assert known.training["attention"] == other.training["attention"] == "flash"
    assert known.notes == ()
    assert other.notes == ("attn_implementation: flex_attention: counted as flash attention",)


@pytest.mark.parametrize("word", ["offload", "unsloth"])
def test_checkpointing_that_moves_to_the_host_offloads_activations(tmp_path, word):
    found = read(tmp_path, f"{FULL}bf16: true\ngradient_checkpointing: {word}").training
    assert (found["checkpointing"], found["activation_offload"]) == ("full", True)


def test_preferences_need_a_reference_model(tmp_path):
    assert read(tmp_path, f"{FULL}rl: dpo").training["reference_model"]
    assert read(tmp_path, f"{FULL}rl: grpo").not_read == ("rl: grpo",)


def test_checkpointing_that_is_off_is_none(tmp_path):
    found = read(tmp_path, f"{FULL}gradient_checkpointing: off")
    assert found.training["checkpointing"] == "none"


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
         "liger_fused_linear_cross_entropy: true", "fused"),
        ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]", "fused"),
        ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
         "cut_cross_entropy: false", None),
        ("plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true", None),
    ],
)  # fmt: skip
def test_loss_by_plugin(tmp_path, text, loss):
    assert read(tmp_path, FULL + text).training.get("loss") == loss


def test_plugins_that_are_not_used_are_listed(tmp_path):
    found = read(tmp_path, f"{FULL}plugins: [axolotl.integrations.liger.LigerPlugin]")
    assert found.not_read == ("plugins: axolotl.integrations.liger.LigerPlugin",)


def test_parallel_sizes_and_fsdp_by_its_table_alone(tmp_path):
    found = read(
        tmp_path,
        FULL + "dp_shard_size: 4\ntensor_parallel_size: 2\ncontext_parallel_size: 2\n"
        "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n"
        "  transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  reshard_after_forward: true\n",
    )
    assert found.training["gpus"] == 16
    assert (found.training["tensor_parallel"], found.training["context_parallel"]) == (2, 2)
    assert (found.training["sharding"], found.training["offload"]) == ("fsdp2", "all")
    assert found.not_read == ("fsdp_config.transformer_layer_cls_to_wrap",)


def test_what_nothing_models_is_listed(tmp_path):
    found = read(
        tmp_path,
        FULL + "rl: dpo\ndpo_beta: 0.1\nlora_modules_to_save: [lm_head]\nunfrozen_parameters: []\n"
        "torch_compile: false\nfp8: true\nplugins: [my.Plugin]\ncontext_parapllel_size: 2\n"
        "adapter: llama-adapter\n",
    )
    assert sorted(found.not_read) == [
        "adapter: llama-adapter", "context_parapllel_size", "dpo_beta", "fp8",
        "lora_modules_to_save", "plugins: my.Plugin",
    ]  # fmt: skip


def test_what_the_file_leaves_to_its_program_is_noted(tmp_path):
    found = read(tmp_path, "base_model: gpt2\nadapter: lora\nmicro_batch_size: 1")
    assert found.notes == (
        "not in the file, so the option or tokmill's default holds: sequence_len, optimizer, "
        "bf16, lora_r, lora_target_modules",
    )


def test_a_deepspeed_file_is_found_beside_the_yaml(tmp_path):
    (tmp_path / "zero2.json").write_text(
        '{"zero_optimization": {"stage": 2}, "fp16": {"enabled": "auto"}}', encoding="utf-8"
    )
    found = read(tmp_path, f"{FULL}bf16: true\ndeepspeed: zero2.json")
    assert (found.training["sharding"], found.training["precision"]) == ("zero-2", "mixed-16")


def test_a_wrong_value_is_one_line(tmp_path):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "micro_batch_size: two")
    assert str(caught.value) == (
        f'{tmp_path / "train.yml"}: micro_batch_size: expected a number, found "two"'
    )
