"""Questions that people ask the bill: the line of the first screen that answers, in 80 columns."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokmill.cli.main import cli

ZERO_2 = {
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
}


def screen(command: str) -> list[str]:
    """Return the lines that `tokmill memory` prints in 80 columns."""
    result = CliRunner().invoke(cli, ["memory", *shlex.split(command)], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def answer(command: str, label: str) -> str:
    """Return the row of a label, its lines joined."""
    lines = screen(command)
    first = next(i for i, line in enumerate(lines) if line.startswith(f"{label} "))
    more = next((i for i in range(first + 1, len(lines)) if lines[i][0] != " "), len(lines))
    return " ".join(" ".join(lines[first:more]).split())


@pytest.mark.parametrize(
    ("command", "label", "expected"),
    [
        # The ten of docs/memory.md.
        (
            "--model llama-3-8b --gpu A100-80 --gpus 8 --sharding zero-3",
            "verdict", r"verdict fits on A100 80GB \(79.14 GiB\): 4\d\.\d\d GiB left",
        ),
        (
            "--model llama-2-70b --gpu 24GB --adapter qlora",
            "verdict", r"verdict does not fit on 24GB \(22.35 GiB\): \d\d\.\d\d GiB missing",
        ),
        (
            "--model gpt2 --gpu T4 --precision fp32",
            "verdict", r"verdict fits on T4 \(14.57 GiB\): 1\d\.\d\d GiB left",
        ),
        (
            "--model qwen2.5-7b --gpu 4090 --adapter lora --sequence 4k --checkpointing full",
            "fits with", r"fits with --loss fused \(1\d\.\d\d GiB, up to 2[0-3]\.\d\d GiB\)",
        ),
        (
            "--model mixtral-8x7b --weight-type int4 --context 32k --gpu A6000",
            "GPU memory", r"GPU memory \d\d\.\d\d GiB \(.*\), of which weights 22.9\d GiB",
        ),
        (
            "--family llama --layers 8 --hidden 512 --heads 8 --kv-heads 2 --ffn 1408 "
            "--vocabulary 6400 --tied yes --gpu 3090",
            "verdict", r"verdict fits on RTX 3090 \(23.56 GiB\): 2\d\.\d\d GiB left",
        ),
        (
            "--dataset-bytes 100GB --loading memmap --loader-workers 8",
            "host RAM", r"host RAM 3\d\d\.\d MiB; peak: training; .* page cache, .*",
        ),
        (
            "--model llama-2-7b --gpu 24GiB --gpus 8 --deepspeed ds_config.json",
            "verdict", r"verdict does not fit on 24GiB \(24.00 GiB\): \d\.\d\d GiB missing",
        ),
        (
            "--model gpt2 --gpu 4090 --precision fp32",
            "largest", r"largest micro batch 1\d at sequence 1,024; .* maximum of 1,024",
        ),
        (
            "--model llama-3-8b --gpu H100 --gpus 8 --sharding zero-3 --tokens 1B "
            "--price-per-hour 2.5",
            "time", r"time 4 h \d\d min for 1 billion tokens at 40% MFU, 3\d GPU hours, cost .*",
        ),
        (
            "--model gpt2 --gpu 4GiB", "verdict",
            r"verdict fits on 4GiB \(4.00 GiB\) by the estimate, not by the upper bound",
        ),
        # Which of them fits?
        (
            "--compare model=qwen2.5-1.5b,qwen2.5-3b,qwen2.5-7b --gpu 3090 --adapter lora",
            "verdict",
            "verdict fits: qwen2.5-1.5b; may fit: qwen2.5-3b; does not fit: qwen2.5-7b",
        ),
        (
            "--model llama-3-8b --gpu T4 --compare weight-type=bf16,int8,int4",
            "verdict", "verdict fits: int8, int4; does not fit: bf16",
        ),
        (
            "--model gpt2 --gpu T4 --compare micro-batch=1,2,64",
            "verdict", "verdict fits: micro-batch 1, 2; does not fit: micro-batch 64",
        ),
        (
            "--model gpt2-xl --compare gpu=4090,T4,H100",
            "verdict", "verdict fits: H100; does not fit: 4090, T4",
        ),
        (
            "--model llama-3-8b --gpu H200 --compare adapter=lora,dora",
            "verdict", "verdict fits: lora; a part is not known: dora",
        ),
        # Do activations grow with the batch, where the optimizer step is the peak?
        (
            "--model gpt2 --micro-batch 1 --sequence 128", "GPU memory",
            r".* peak: optimizer step; activations before it: up to 1\d\d\.\d MiB",
        ),
        (
            "--model gpt2 --micro-batch 2 --sequence 128", "GPU memory",
            r".* peak: optimizer step; activations before it: up to 3\d\d\.\d MiB",
        ),
        # How do I make it fit?
        (
            "--model mistral-7b --gpu 4090 --adapter lora",
            "fits with", r"fits with --checkpointing full \(1\d\.\d\d GiB, up to 21\.\d\d GiB\)",
        ),
        (
            "--model llama-3-8b --gpu 4090",
            "fits with", r"fits with --checkpointing selective --offload all \(.*\)",
        ),
        (
            "--model llama-3-70b --weight-type int4 --context 32k --gpu A6000",
            "fits with", r"fits with --serving-gpus 2 \(.* GiB, up to \d\d\.\d\d GiB\)",
        ),
        (
            "--model llama-3-8b --gpu 4090 --adapter dora",
            "advice", r"advice --loss fused --checkpointing full \(at least 1\d\.\d\d GiB\)",
        ),
        # How much is a token of the cache?
        (
            "--model llama-3-8b --context 8k --batch 4",
            "KV cache", "KV cache 128.0 KiB per token, 4.00 GiB for 4 x 8,192 tokens",
        ),
        (
            "--model llama-3-8b --context 8k --batch 4 --serving-gpus 2",
            "KV cache", "KV cache 64.0 KiB per token and GPU, 2.00 GiB for 4 x 8,192 tokens",
        ),
        (
            "--model llama-3-8b --context 8k --serving-gpus 2",
            "GPU memory", r"GPU memory .* GiB \(.*\) per GPU, of which weights 7.48 GiB",
        ),
        # In which precision, and why?
        (
            "--model gpt2", "training",
            r"training amp \(default of most trainers: fp32 weights\), .*",
        ),
        (
            "--model gpt2 --gpus 8 --sharding zero-2", "training",
            r"training mixed-16 \(default of ZeRO: 16-bit weights, fp32 copies\), .*",
        ),
        ("--model gpt2 --precision pure-16", "training", "training pure-16, adamw, .*"),
    ],
)  # fmt: skip
def test_the_first_screen_answers(
    command: str, label: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ds_config.json").write_text(json.dumps(ZERO_2))
    assert re.fullmatch(expected, answer(command, label))


def test_activations_grow_with_the_batch_beside_a_peak_that_does_not() -> None:
    lines = screen("--model llama-3-8b --checkpointing full --compare micro-batch=1,2,4")
    heads = lines[2].split()
    assert heads == ["micro-batch", "expected", "at", "most", "activations", "fits"]
    table = [line.split() for line in lines[3:6]]
    assert [row[0] for row in table] == ["1", "2", "4"]
    assert table[0][1] == table[1][1]
    assert float(table[0][3]) < float(table[1][3]) < float(table[2][3])


def test_a_bound_that_equals_its_amount_is_not_printed() -> None:
    lines = screen("--model gpt2 --only gpu")
    total = next(line for line in lines if line.startswith("  total "))
    for line in lines[lines.index(total) - 8 : lines.index(total) + 1]:
        amounts = re.findall(r"\d+\.\d", line)
        assert len(amounts) == len(set(amounts)), line
    host = answer("--model llama-3-8b --gpus 8 --sharding zero-3", "host RAM")
    assert re.match(r"host RAM 242\.\d\d GiB \(up to 4\d\d\.\d\d\) per node", host)
