"""Ten questions as a person asks them: one command, right on the first screen of 80 columns."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from tokmill.cli.main import cli

QWEN = "qwen3-4b,qwen3-8b,qwen3-14b,qwen3-32b"


def rows(command: str) -> dict[str, str]:
    """Return the rows of the first screen by label, each on one line."""
    result = CliRunner().invoke(cli, ["memory", *shlex.split(command)], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    found: dict[str, str] = {}
    label = ""
    for line in lines:
        if line and line[0] != " ":
            label, _, text = line.partition("  ")
            found[label] = text.strip()
        elif label:
            found[label] += f" {line.strip()}"
    return found


@pytest.mark.parametrize(
    ("command", "label", "expected"),
    [
        # Which Qwen can I fine-tune on a 3090 with 64 GB of RAM?
        (
            f"--compare model={QWEN} --gpu 3090 --qlora --trainer unsloth --host-ram 64GB",
            "verdict", r"fits: qwen3-4b, qwen3-8b, qwen3-14b; (may fit|does not fit): qwen3-32b",
        ),
        # I have 8 x H100 and want to train 70B: how?
        (
            "--model llama-3-70b --gpu H100 --gpus 8 --host-ram 2TiB",
            "may fit", r"--.*sharding zero-3.* \(.*",
        ),
        # A server for 100 users with a 32B.
        (
            "--model qwen3-32b --gpu H100 --users 100 --context 8k",
            "fits with", r"--serving-gpus 8 \(\d\d\.\d\d GiB, up to \d\d\.\d\d GiB\)",
        ),
        # A 32B in Q4 on 24 GB with a context of 64k?
        (
            "--model qwen3-32b --weight-type q4_k_m --gpu 24GB --context 64k",
            "verdict", r"does not fit on 24GB \(22.35 GiB\) under llama.cpp: \d+\.\d\d GiB missing",
        ),
        # 30B-A3B on 16 GB, with 32 GB of RAM?
        (
            "--model qwen3-30b-a3b --weight-type q4_k_m --gpu 16GB --context 32k --host-ram 32GB",
            "fits with", r"--host-experts 24 \(GPU 1\d\.\d\d GiB, .*; host RAM 8\.\d\d GiB, .*",
        ),
        # Does gpt-oss-120b with its whole context run on one H100?
        (
            "--model gpt-oss-120b --gpu H100 --context 128k --server vllm",
            "verdict", r".* under vLLM, which takes 90% of it(: \d\.\d\d GiB missing| by the .*)",
        ),
        # QLoRA of 70B on two 3090 with FSDP, as fsdp_qlora does it?
        (
            "--model llama-2-70b --gpu 3090 --gpus 2 --sharding fsdp --qlora --offload all "
            "--precision pure-16 --host-ram 128GiB",
            "verdict", r"fits on RTX 3090 .*",
        ),
        # How long may texts be, when I fine-tune 8B with QLoRA on a 4090?
        (
            "--model qwen3-8b --gpu 4090 --trainer axolotl --qlora",
            "largest", r"micro batch \d+ at sequence 2,048; at micro batch 1, sequence \d\d,\d+",
        ),
        # How much RAM must the machine have for ZeRO-3 with offload of 8B on 4 x 3090?
        (
            "--model llama-3-8b --gpu 3090 --gpus 4 --trainer deepspeed --offload all",
            "host RAM", r"1[2-9]\d\.\d\d GiB .* per node, .*",
        ),
        # What does it cost to train 8B on 1 billion tokens?
        (
            "--model llama-3-8b --gpu H100 --gpus 8 --sharding zero-3 --tokens 1B "
            "--price-per-hour 2.5",
            "time", r"\d h \d\d min for 1 billion tokens .*, 3\d GPU hours, cost 8\d\.\d\d.*",
        ),
    ],
)  # fmt: skip
def test_the_first_screen_answers(command: str, label: str, expected: str) -> None:
    assert re.fullmatch(expected, rows(command)[label])
