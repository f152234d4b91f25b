"""What other programs call a setting, for the messages about names that do not exist."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, get_type_hints

from tokmill.settings.declare import section_type
from tokmill.settings.names import flag
from tokmill.settings.schema import BILL_SECTIONS, Config

if TYPE_CHECKING:
    from collections.abc import Collection

_MEANT = {
    "--sharding zero-3": "zero zero1 zero2 zero3 zero-1 zero-2 zero-3 zero-stage stage",
    "--sharding fsdp": "fsdp fsdp2",
    "--precision auto (mixed, as trainers do), or pure-16": "bf16 fp16 bfloat16 float16 half",
    "--precision": "fp32 amp dtype torch-dtype mixed-precision",
    "--micro-batch": "bs mbs batch-size micro-batch-size per-device-train-batch-size",
    "--sequence": "seq seqlen seq-len seq-length max-seq-len max-seq-length cutoff-len block-size",
    "--context": "ctx context-length max-model-len",
    "--weight-type (inference) or --adapter qlora (training)": (
        "quant quantize quantization bits 4bit 8bit int4 int8 load-in-4bit load-in-8bit"
    ),
    "--adapter lora": "lora peft use-lora",
    "--adapter qlora": "qlora",
    "--adapter-rank": "r rank lora-r lora-rank",
    "--adapter-targets": "target-modules lora-target-modules",
    "--checkpointing full": "gradient-checkpointing activation-checkpointing recompute",
    "--accumulation": "ga gas grad-accum gradient-accumulation gradient-accumulation-steps",
    "--gpus": "num-gpus n-gpus ngpus world-size num-processes dp data-parallel",
    "--tensor-parallel": "tp tp-size",
    "--pipeline-parallel": "pp pp-size",
    "--context-parallel": "cp",
    "--expert-parallel": "ep",
    "--parameters": "params num-params model-size size",
    "--attention flash": "flash flash-attn flash-attention",
    "--offload": "cpu-offload",
    "--kv-type": "kv-dtype kv-cache-dtype",
    "--loader-workers": "workers num-workers dataloader-num-workers",
    "--workers": "num-workers num-proc nproc n-jobs jobs preprocessing-num-workers",
    "--text-field": "json-key json-keys text-key text-column content-key",
    "--template": "chat-template",
    "--packing": "pack packed pack-length",
    "--max-tokens": "max-length max-len",
    "--val-fraction": "val-size test-size val-ratio eval-ratio val-split validation-split",
    "--sample": "limit",
    "--host-ram": "ram cpu-ram",
    "--price-per-hour": "price cost",
}

_LACKING = {
    "shuffle seed": "tokmill keeps the order of its input; tokmill.loader shuffles samples by a "
    "seed, as trainers do; to shuffle records: shuf corpus.jsonl > shuffled.jsonl",
    "dedup dedupe deduplicate": "tokmill keeps every record: remove duplicates from the input",
    "limit max-samples max-records max-documents num-samples": "tokmill reads all of its input; "
    "for a part of it: head -n 1000 corpus.jsonl > few.jsonl",
}
"""Names of options that have no counterpart here, and what to do instead."""

_OF_RUNS = "--part-bytes"
"""An option of every command that makes or plans a dataset, and of no other."""


def advice(name: str, known: Collection[str]) -> str:
    """Return what to write instead of an unknown name, or where it belongs; "" if unknown.

    `name`: an option or a keyword argument. `known`: the options that exist where it was given.
    """
    word = name.lstrip("-").lower().replace("_", "-")
    targets = [to for to, names in _MEANT.items() if word in names.split()]
    for to in targets:
        if to.split()[0] in known:
            return f"use {to}"
    lacking = next((text for names, text in _LACKING.items() if word in names.split()), "")
    if lacking or _OF_RUNS not in known:
        return lacking
    return next(filter(None, (_home(to.split()[0]) for to in (f"--{word}", *targets))), "")


def _home(option: str) -> str:
    """Return which commands take an option; "" for none."""
    for section, hint in get_type_hints(Config).items():
        if option in (flag(section, one.name) for one in dataclasses.fields(section_type(hint))):
            if section not in BILL_SECTIONS:
                return (
                    f"{option} is a setting of tokmill {'sft' if section == 'sft' else 'pretrain'}"
                )
            taken = f"tokmill memory and tokmill report take it, or [{section}] of a --config file"
            return f"{option} is a setting of the bill: {taken}"
    return ""
