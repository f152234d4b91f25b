import json

import pytest

from tokmill.bill.settings_files import ReadSettings, read_training_arguments
from tokmill.errors import UsageError

AMP = "bf16: autocast over weights in fp32; for a model loaded in 16 bit, add --precision=pure-16"


def read(tmp_path, values):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return read_training_arguments(path)


def training(tmp_path, **values):
    said = {"per_device_train_batch_size": 2, "optim": "sgd", "bf16": False}
    return read(tmp_path, said | values)


def test_a_whole_dump(tmp_path):
    found = read(
        tmp_path,
        {
            "output_dir": "out", "per_device_train_batch_size": 4, "num_train_epochs": 3.0,
            "max_steps": -1, "learning_rate": 5e-05, "optim": "adamw_torch_fused",
            "optim_args": None, "gradient_accumulation_steps": 8, "bf16": True, "fp16": False,
            "tf32": None, "gradient_checkpointing": True,
            "gradient_checkpointing_kwargs": {"use_reentrant": False}, "torch_compile": False,
            "use_liger_kernel": False, "neftune_noise_alpha": None, "auto_find_batch_size": False,
            "per_device_eval_batch_size": 8, "eval_strategy": "no", "save_total_limit": 3,
            "hub_token": "<HUB_TOKEN>", "dataloader_num_workers": 2, "dataloader_pin_memory": True,
            "dataloader_prefetch_factor": None, "fsdp": [], "fsdp_config": {"min_num_params": 0},
            "accelerator_config": {"split_batches": False, "gradient_accumulation_kwargs": None},
            "parallelism_config": None, "deepspeed": None, "report_to": [], "local_rank": -1,
        },
    )  # fmt: skip
    assert found == ReadSettings(
        training={
            "micro_batch": 4, "accumulation": 8, "loader_workers": 2, "pin_memory": True,
            "optimizer": "adamw", "optimizer_step": "fused", "checkpointing": "full",
            "epochs": 3.0, "checkpoints": 3, "precision": "amp",
        },
        model={},
        notes=(AMP,),
        not_read=("output_dir", "learning_rate", "per_device_eval_batch_size", "hub_token"),
    )  # fmt: skip


def test_a_yaml_of_a_script_with_its_traps(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(
        "model_name_or_path: gpt2\n"
        "max_seq_length: 1e3\n"
        "per_device_train_batch_size: '8'\n"
        "gradient_accumulation_steps:\n"
        "learning_rate: 1e-5\n"
        "fp16: yes\n"
        "optim: adafactor\n"
        "save_strategy: no\n"
        "attn_implementation: eager\n"
        "my_own_option: 3\n",
        encoding="utf-8",
    )
    found = read_training_arguments(path)
    assert found.training == {
        "micro_batch": 8, "sequence": 1000, "attention": "eager", "optimizer": "adafactor",
        "optimizer_step": "for-loop", "checkpoints": 0, "precision": "amp",
    }  # fmt: skip
    assert found.model == {"name": "gpt2"}
    assert found.not_read == ("learning_rate", "my_own_option")


def test_what_the_file_leaves_to_its_program_is_noted(tmp_path):
    assert read(tmp_path, {"learning_rate": 1}) == ReadSettings(
        training={},
        model={},
        notes=(
            "not in the file, so the option or tokmill's default holds: "
            "per_device_train_batch_size, optim, bf16",
        ),
        not_read=("learning_rate",),
    )


@pytest.mark.parametrize(
    ("optim", "expected"),
    [
        ("adamw_torch", ("adamw", "foreach")),
        ("adamw_torch_fused", ("adamw", "fused")),
        ("adamw_8bit", ("adamw-8bit", "fused")),
        ("adamw_bnb_8bit", ("adamw-8bit", "fused")),
        ("adafactor", ("adafactor", "for-loop")),
        ("sgd", ("sgd", "foreach")),
        ("lion_32bit", ("lion", "fused")),
    ],
)
def test_optimizers_by_name(tmp_path, optim, expected):
    found = training(tmp_path, optim=optim)
    assert (found.training["optimizer"], found.training["optimizer_step"]) == expected
    assert (found.notes, found.not_read) == ((), ())


def test_sgd_with_momentum_has_a_state(tmp_path):
    assert training(tmp_path, optim_args="momentum=0.9").training["optimizer"] == "momentum"


def test_paged_states_count_on_the_gpu_and_that_is_noted(tmp_path):
    found = training(tmp_path, optim="paged_adamw_8bit")
    assert found.training["optimizer"] == "adamw-8bit"
    assert found.notes == ("optim: paged_adamw_8bit: all its states are counted as GPU memory",)


def test_an_optimizer_with_other_states_is_not_read(tmp_path):
    found = training(tmp_path, optim="lion_8bit")
    assert "optimizer" not in found.training
    assert found.not_read == ("optim: lion_8bit",)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"fsdp": "full_shard auto_wrap"}, {"sharding": "fsdp"}),
        ({"fsdp": True, "fsdp_config": {"version": 2, "reshard_after_forward": True}},
         {"sharding": "fsdp2"}),
        ({"fsdp": True, "fsdp_config": {"reshard_after_forward": False}},
         {"sharding": "fsdp-grad-op"}),
        ({"fsdp": ["shard_grad_op", "offload"]}, {"sharding": "fsdp-grad-op", "offload": "all"}),
        ({"fsdp": "", "fsdp_config": {"cpu_offload": True}}, {}),
        ({"fsdp": False, "fsdp_config": {"cpu_offload": True}}, {}),
        ({"fsdp": "full_shard", "fsdp_config": {"fsdp_activation_checkpointing": "true",
                                                "cpu_ram_efficient_loading": True}},
         {"sharding": "fsdp", "checkpointing": "full", "initialization": "rank0"}),
    ],
)  # fmt: skip
def test_fsdp_tables(tmp_path, values, expected):
    found = training(tmp_path, **values)
    said = ("sharding", "offload", "checkpointing", "initialization")
    assert {k: v for k, v in found.training.items() if k in said} == expected
    assert found.not_read == ()


def test_what_fsdp_asks_for_and_nothing_models_is_listed(tmp_path):
    found = training(
        tmp_path,
        fsdp="hybrid_shard",
        fsdp_config={"fsdp_ignored_modules": ["head"], "min_num_params": 1e8, "new": 1},
    )
    assert found.not_read == (
        "fsdp: hybrid_shard", "fsdp_config.fsdp_ignored_modules", "fsdp_config.min_num_params",
        "fsdp_config.new",
    )  # fmt: skip


def test_liger_fuses_the_loss_unless_told_not_to(tmp_path):
    assert training(tmp_path, use_liger_kernel=True).training["loss"] == "fused"
    apart = {"fused_linear_cross_entropy": False}
    found = training(tmp_path, use_liger_kernel=True, liger_kernel_config=apart)
    assert found.training["loss"] == "full"
    assert found.notes == ("use_liger_kernel: its norms and SwiGLU save less than is counted",)
    assert "loss" not in training(tmp_path, use_liger_kernel=False).training


def test_arguments_that_are_not_read_are_listed(tmp_path):
    found = training(
        tmp_path,
        torch_compile=True,
        neftune_noise_alpha=5,
        label_smoothing_factor=0.1,
        eval_strategy="steps",
        per_device_eval_batch_size=8,
        accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}},
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"context_fn": "selective"},
        dataloader_multiprocessing_context="forkserver",
    )
    assert sorted(found.not_read) == [
        "accelerator_config",
        "dataloader_multiprocessing_context: forkserver",
        "eval_strategy",
        "gradient_checkpointing_kwargs",
        "label_smoothing_factor",
        "neftune_noise_alpha",
        "per_device_eval_batch_size",
        "torch_compile",
    ]


def test_steps_take_the_place_of_epochs(tmp_path):
    found = training(tmp_path, max_steps=100, num_train_epochs=3)
    assert "epochs" not in found.training
    assert found.notes == ("max_steps: 100: overrides the number of epochs",)


def test_the_best_checkpoint_is_kept_beside_the_last(tmp_path):
    found = training(tmp_path, save_total_limit=1, load_best_model_at_end=True)
    assert found.training["checkpoints"] == 2


def test_parallel_sizes_give_the_number_of_gpus(tmp_path):
    sizes = {"dp_replicate_size": 2, "dp_shard_size": 4, "tp_size": 2, "cp_size": 1}
    found = training(tmp_path, parallelism_config=sizes)
    assert found.training["gpus"] == 16
    assert found.training["tensor_parallel"] == 2
    assert found.training["context_parallel"] == 1


def test_how_workers_start(tmp_path):
    found = training(tmp_path, dataloader_multiprocessing_context="spawn")
    assert found.training["start_method"] == "spawn"


def test_metrics_may_move_to_the_host_every_so_many_batches(tmp_path):
    found = training(tmp_path, eval_strategy="steps", eval_accumulation_steps=4)
    assert found.training["eval_accumulation"] == 4
    assert found.not_read == ("eval_strategy",)


def test_both_16_bit_types_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"found both fp16 and bf16; switch one off$"):
        training(tmp_path, fp16=True, bf16=True)


def test_a_deepspeed_file_is_followed_and_its_auto_means_these_arguments(tmp_path):
    (tmp_path / "ds.json").write_text(
        '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3},'
        ' "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",'
        ' "train_batch_size": 64}',
        encoding="utf-8",
    )
    found = training(tmp_path, bf16=True, deepspeed="ds.json", gradient_accumulation_steps=4)
    assert found.training["precision"] == "mixed-16"
    assert found.training["sharding"] == "zero-3"
    assert (found.training["micro_batch"], found.training["gpus"]) == (2, 8)
    assert found.notes == ("train_batch_size: 64: taken to mean 8 GPUs",)


def test_a_deepspeed_table_may_stand_in_the_file(tmp_path):
    found = training(tmp_path, deepspeed={"zero_optimization": {"stage": 1, "unheard_of": 1}})
    assert (found.training["sharding"], found.training["precision"]) == ("zero-1", "fp32")
    assert found.not_read == ("deepspeed.zero_optimization.unheard_of",)


def test_a_deepspeed_file_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"^gone\.json: no such settings file$"):
        training(tmp_path, deepspeed="gone.json")


def test_the_state_of_a_trainer_is_refused(tmp_path):
    with pytest.raises(UsageError, match="found the state of a trainer"):
        read(tmp_path, {"log_history": [], "train_batch_size": 8})


def test_trl_offloads_activations(tmp_path):
    assert training(tmp_path, activation_offloading=True).training["activation_offload"]
    assert "activation_offload" not in training(tmp_path, activation_offloading=False).training
