"""Applies the plans of the bill ("fits with", "may fit") and checks them against every limit given.

    python -m bench.plans             all commands, a line for each plan that does not hold
    python -m bench.plans --rows      also every plan

A command is a model on a GPU with some host RAM. The options of its plan are added to it, as a
person would, and the bill of that command must fit: on the GPU and, if it is limited, in host RAM.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from click.testing import CliRunner

from tokmill.bill.gpus import BARELY, DOES_NOT_FIT, FITS
from tokmill.cli.main import cli

TRAINED = {
    "qwen2.5-0.5b": ("--gpu T4 --micro-batch 32", "--gpu 4060 --sequence 8k"),
    "qwen2.5-7b": ("--gpu 3090", "--gpu 4090 --adapter lora --sequence 4k", "--gpu A6000"),
    "llama-3-8b": ("--gpu 4090 --gpus 2", "--gpu 4090 --gpus 8", "--gpu A100-80 --micro-batch 8"),
    "gpt2-xl": ("--gpu T4 --precision fp32", "--gpu 3060 --adapter lora --micro-batch 16"),
    "phi-2": ("--gpu 4090 --micro-batch 4", "--gpu A10 --gpus 4 --sharding fsdp2"),
    "gemma-2-9b": ("--gpu 24GB --adapter lora", "--gpu L4 --adapter qlora --micro-batch 4"),
    "qwen3-30b-a3b": ("--gpu H100 --gpus 4", "--gpu H100 --adapter lora --sequence 8k"),
    "llama-3-70b": ("--gpu H100 --gpus 8", "--gpu A100-40 --gpus 16 --sharding zero-3"),
    "llama-2-70b": ("--gpu 24GB --adapter qlora", "--gpu A100-80 --gpus 8 --adapter lora"),
}
"""Trainings that do not fit as they are, by model."""
HOST_RAM = ("", "--host-ram 16GiB", "--host-ram 64GiB", "--host-ram 256GiB", "--host-ram 2TiB")
WAYS = ("", "--checkpointing full")
SERVERS = ("", "--server transformers", "--host-ram 32GiB")
SERVED = {
    "qwen3-32b": ("--gpu H100 --batch 100 --context 8k", "--gpu 3090 --context 32k"),
    "llama-3-70b": ("--gpu A6000 --context 32k", "--gpu H100 --context 8k --batch 16"),
    "gpt-oss-120b": ("--gpu H100 --context 128k --batch 8", "--gpu 4090 --context 8k"),
    "mixtral-8x7b": ("--gpu 4090 --context 32k", "--gpu A100-80 --context 32k --batch 32"),
    "qwen3-30b-a3b": ("--gpu 16GB --context 32k --weight-type q4_k_m", "--gpu 24GB --context 8k"),
    "llama-3-8b": ("--gpu T4 --context 8k", "--gpu 4090 --context 32k --batch 8"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A command, the options that its bill advises, and what is wrong with them ("" for nothing).

    `promised` is the verdict that the bill gave the plan.
    """

    command: str
    options: tuple[str, ...]
    promised: str
    wrong: str


def commands() -> Iterator[str]:
    """Yield options of `tokmill memory`."""
    for model, uses in TRAINED.items():
        for use, host_ram, way in product(uses, HOST_RAM, WAYS):
            yield " ".join(f"--model {model} {use} {host_ram} {way}".split())
    for model, uses in SERVED.items():
        for use, server in product(uses, SERVERS):
            yield " ".join(f"--model {model} {use} {server}".split())


def plan_of(command: str) -> Plan | None:
    """Return the plan that the bill of a command offers, applied; None if there is none."""
    bill = bill_of(command)
    serves = "--context" in command
    advice = bill["inference_advice" if serves else "advice"]
    if not advice["plan"]:
        return None
    options = tuple(option for step in advice["plan"] for option in step["options"])
    promised = advice["plan"][-1]["verdict"]
    applied = bill_of(f"{command} {' '.join(options)}")
    gpu = applied["inference_advice" if serves else "advice"]["verdict"]
    wrong = [] if gpu in (promised, FITS) else [f"GPU: {gpu}"]
    host = applied["host"]["verdict"]["said"]
    if not serves and host in (DOES_NOT_FIT, BARELY if promised == FITS else DOES_NOT_FIT):
        wrong.append(f"host RAM: {host}")
    return Plan(command, options, promised, "; ".join(wrong))


def bill_of(command: str) -> Mapping[str, Any]:
    """Return what `tokmill memory --json` prints for some options."""
    result = CliRunner().invoke(cli, ["memory", "--json", *shlex.split(command)])
    if result.exit_code:
        raise RuntimeError(f"{command}: {result.output}")
    found: Mapping[str, Any] = json.loads(result.stdout)
    return found


def main() -> None:
    """Print the plans that do not hold, and how many there are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", action="store_true", help="print every plan")
    show_all = parser.parse_args().rows
    plans = [plan for plan in map(plan_of, commands()) if plan is not None]
    for plan in plans:
        if plan.wrong or show_all:
            print(f"{plan.command}\n    {plan.promised}: {' '.join(plan.options)}  {plan.wrong}")
    n_wrong = sum(bool(plan.wrong) for plan in plans)
    print(f"{len(plans)} plans, {n_wrong} do not hold")
    raise SystemExit(n_wrong > 0)


if __name__ == "__main__":
    main()
