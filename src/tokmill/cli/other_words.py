"""Options under the names of other programs, for the messages about options that do not exist."""

from __future__ import annotations

import click

_MEANT = {
    "--sharding zero-3": "zero zero1 zero2 zero3 zero-1 zero-2 zero-3 zero-stage stage",
    "--sharding fsdp": "fsdp",
    "--precision": "bf16 fp16 fp32 amp dtype torch-dtype mixed-precision",
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
    "--host-ram": "ram cpu-ram",
    "--price-per-hour": "price cost",
}


def meant(error: click.UsageError) -> str:
    """Return what to write instead of an unknown option or a lone word; "" if that is not known."""
    known = set() if error.ctx is None else {o for p in error.ctx.command.params for o in p.opts}
    if isinstance(error, click.NoSuchOption):
        name = error.option_name.lstrip("-").lower().replace("_", "-")
        words = (to for to, names in _MEANT.items() if name in names.split())
    else:
        is_extra = error.message.startswith("Got unexpected extra argument")
        words = (to for to in ["--model NAME"] if is_extra)
    return next((to for to in words if to.split()[0] in known), "")
