"""One case of `bench.gpu_grid` on a device, in a process of its own: `CASE RESULT`, both JSON.

Needs torch and transformers; peft and bitsandbytes for the cases that say so. On a CPU, which has
no counters, the steps run and the amounts are 0.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

STEPS = 3
"""Optimizer states exist from the end of the first step on; the second is the first whole one."""
NEW_TOKENS = 8


def main(case_path: str, result_path: str) -> int:
    """Measure a case."""
    case = json.loads(Path(case_path).read_text(encoding="utf-8"))
    Path(result_path).write_text(json.dumps(measure(case, "cuda")), encoding="utf-8")
    return 0


def measure(case: dict[str, Any], device: str) -> dict[str, Any]:
    """Run a case and give its peaks in bytes, with what `mem_get_info` says before and after."""
    import torch

    torch.manual_seed(0)
    before = _used(device)
    run = _train if case["training"] else _serve
    model = build(case, device)
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    run(model, case, device)
    allocated = reserved = 0
    if device == "cuda":
        torch.cuda.synchronize()
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "allocated": allocated,
        "reserved": reserved,
        "reserved_now": torch.cuda.memory_reserved() if device == "cuda" else 0,
        "used_before": before,
        "used_after": _used(device),
        "gpu": torch.cuda.get_device_name() if device == "cuda" else "none",
        "versions": _versions(),
    }


def build(case: dict[str, Any], device: str) -> Any:
    """Make the model with random weights, on the device, as the case has it."""
    import torch
    import transformers

    values = dict(case["config"])
    training = case["training"] or {}
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    eager = training.get("attention") == "eager"
    config._attn_implementation = "eager" if eager else "sdpa"
    adapted = training.get("adapter", "none") != "none"
    whole = training.get("precision") in ("fp32", "amp") and not adapted
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32 if whole else torch.bfloat16
        )
    if training.get("checkpointing") == "full":
        new_name = hasattr(model, "activation_checkpointing_enable")  # transformers 5.
        name = "activation" if new_name else "gradient"
        getattr(model, f"{name}_checkpointing_enable")({"use_reentrant": False})
    return _adapted(model, training) if adapted else model


def _adapted(model: Any, training: dict[str, Any]) -> Any:
    peft: Any = importlib.import_module("peft")
    targets = training["adapter_targets"]
    config = peft.LoraConfig(
        r=training["adapter_rank"],
        target_modules=targets if targets == "all-linear" else targets.split(","),
        task_type="CAUSAL_LM",
    )
    model.enable_input_require_grads()
    return peft.get_peft_model(model, config)


def _train(model: Any, case: dict[str, Any], device: str) -> None:
    import torch

    training = case["training"]
    model.train()
    optimizer = _optimizer(model, training)
    ids = torch.randint(
        case["config"]["vocab_size"],
        (training["micro_batch"], training["sequence"]),
        device=device,
    )
    cast: Any = contextlib.nullcontext()
    for _ in range(STEPS):
        for _ in range(training["accumulation"]):
            if training["precision"] == "amp":
                cast = torch.autocast(device, torch.bfloat16)
            with cast:
                loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            loss.backward()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _optimizer(model: Any, training: dict[str, Any]) -> Any:
    import torch

    trained = [p for p in model.parameters() if p.requires_grad]
    step = training["optimizer_step"]
    if training["optimizer"] == "adamw-8bit":
        bitsandbytes: Any = importlib.import_module("bitsandbytes")
        return bitsandbytes.optim.AdamW8bit(trained)
    if training["optimizer"] == "sgd":
        return torch.optim.SGD(trained, lr=1e-3, foreach=step == "foreach")
    return torch.optim.AdamW(
        trained, foreach=step == "foreach", fused=True if step == "fused" else None
    )


def _serve(model: Any, case: dict[str, Any], device: str) -> None:
    """Read the prompt and write the last tokens, as `generate` does with its default cache."""
    import torch

    inference = case["inference"]
    model.eval()
    prompt = torch.randint(
        case["config"]["vocab_size"],
        (inference["batch"], inference["context"] - NEW_TOKENS),
        device=device,
    )
    with torch.no_grad():
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            pad_token_id=0,
        )


def _used(device: str) -> int:
    """Return the bytes of the GPU that anybody uses; asking makes the context, which counts."""
    import torch

    if device != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "transformers", "peft", "bitsandbytes"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
