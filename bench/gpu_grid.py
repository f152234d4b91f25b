"""Measures the formulas of GPU memory on a real GPU.

    python -m bench.gpu_grid --list       the cases, and what the formulas give for them
    python -m bench.gpu_grid              measure, write bench/gpu_grid.json, print the errors
    python -m bench.gpu_grid --score      compare the stored data with the formulas as they are now

Needs torch and transformers; peft and bitsandbytes for the cases that have adapters or 8-bit AdamW.
Cases that are held out are measured only against formulas that are committed: the data name that
commit. The demand, of what is allocated and of what is reserved: median error <= 3%, worst
<= 10%, over the cases that are held out. Exit codes: 0 it is met, 1 it is not, 2 no measurement.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bench.bill_cases import (
    MODELS,
    NEW_TOKENS,
    ROOT,
    Case,
    build,
    generate,
    measured_in_child,
    optimizer_of,
    step,
)
from bench.tables import table
from tokmill.bill.overhead import CUDA_CONTEXT, WORKSPACES
from tokmill.bill.serving import inference_bill
from tokmill.bill.training_bill import allocated_bytes, training_bill
from tokmill.words.units import memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.bill.formula import Bill

DATA = ROOT / "bench" / "gpu_grid.json"
FORMULAS = "src/tokmill/bill"
MEDIAN, WORST = 0.03, 0.10
LIMIT_S = 900
STEPS = 3
"""Optimizer states exist from the end of the first step on; the second is the first whole one."""
NO_DATA = "bench.gpu_grid: no measurements at {}; run python -m bench.gpu_grid on a GPU first"
NO_GPU = "bench.gpu_grid: no GPU here (torch.cuda.is_available() is false); --list needs none"

LORA = {"precision": "amp", "adapter": "lora"}
TRAINED: dict[bool, tuple[tuple[str, dict[str, Any]], ...]] = {
    False: (
        *(
            (model, {"precision": precision, "micro_batch": 8, "sequence": 1024})
            for precision in ("fp32", "amp", "pure-16")
            for model in ("gpt2", "llama-100m")
        ),
        ("llama-1b", {"optimizer_step": "foreach", "sequence": 512}),
        ("llama-1b", {"sequence": 512}),
        ("gpt2", {"attention": "eager", "micro_batch": 4, "sequence": 1024}),
        ("llama-1b", {"checkpointing": "full", "micro_batch": 4, "sequence": 2048}),
        ("tinyllama", {"micro_batch": 2, "sequence": 2048}),
        ("llama-1b", {"optimizer": "adamw-8bit", "sequence": 1024}),
        ("llama-1b", {**LORA, "micro_batch": 2, "sequence": 2048}),
    ),
    True: (
        *(
            (model, {"precision": precision, **settings})
            for precision in ("amp", "pure-16")
            for model, settings in (
                ("gpt2-medium", {"micro_batch": 4, "sequence": 768}),
                ("llama-400m", {"micro_batch": 6, "sequence": 1536}),
                ("llama-3b", {"checkpointing": "full", "micro_batch": 2, "sequence": 4096}),
            )
        ),
        ("llama-3b", {"optimizer_step": "foreach", "sequence": 1024}),
        ("llama-400m", {"attention": "eager", "micro_batch": 3, "sequence": 1024}),
        (
            "gpt2-medium",
            {"precision": "fp32", "optimizer": "sgd", "micro_batch": 2, "sequence": 512},
        ),
        ("gpt2-medium", {"accumulation": 4, "micro_batch": 4, "sequence": 1024}),
        ("tinyllama", {"checkpointing": "full", "sequence": 8192}),
        ("llama-3b", {"optimizer": "adamw-8bit", "sequence": 2048}),
        (
            "llama-3b",
            {**LORA, "adapter_rank": 64, "adapter_targets": "q_proj,v_proj", "sequence": 2048},
        ),
        ("tinyllama", {**LORA, "checkpointing": "full", "micro_batch": 8, "sequence": 1024}),
    ),
}
"""The cases of training by whether they are held out; of each kind, some are, in other sizes."""
SERVED = (
    ("llama-1b", 4, 4096, False), ("gpt2", 16, 1024, False), ("llama-3b", 2, 8192, True),
    ("tinyllama", 16, 2048, True), ("gpt2-medium", 32, 512, True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a GPU: tensors; tensors and what the allocator keeps; what lies outside of it."""

    allocated: int
    reserved: int
    outside: int


def grid() -> tuple[Case, ...]:
    """Return every case."""
    usual = {"precision": "pure-16", "optimizer_step": "fused"}
    trained = [
        Case(model, usual | settings, held_out=held_out)
        for held_out, cases in TRAINED.items()
        for model, settings in cases
    ]
    served = [
        Case(
            model,
            {"batch": batch, "context": context, "prefill_chunk": 0},
            serves=True,
            held_out=held_out,
        )
        for model, batch, context, held_out in SERVED
    ]
    return (*trained, *served)


def needs(case: Case) -> list[str]:
    """Return the packages of a case that are missing, beside torch and transformers."""
    wanted = {"peft": "adapter" in case.settings}
    wanted["bitsandbytes"] = case.settings.get("optimizer") == "adamw-8bit"
    return [name for name, is_needed in wanted.items() if is_needed and not _is_there(name)]


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def predicted(case: Case) -> Memory:
    """Return what the formulas expect for a case."""
    if case.serves:
        return of_bill(inference_bill(case.shape, case.inference, context=case.inference.context))
    return of_bill(training_bill(case.shape, case.training).peak)


def of_bill(bill: Bill) -> Memory:
    """Part a bill by who sees its lines; workspaces of cuBLAS are in torch's allocator."""
    outside = sum(line.n_bytes for line in bill.lines if line.name == CUDA_CONTEXT.name)
    workspaces = sum(line.n_bytes for line in bill.lines if line.name == WORKSPACES.name)
    return Memory(allocated_bytes(bill) + workspaces, bill.n_bytes - outside, outside)


def main(arguments: Sequence[str]) -> int:
    """Measure, list or score; 2 without a GPU or stored data, 1 where the demand is not met."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_grid", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--score", action="store_true", help="only score the stored data")
    parser.add_argument("--shaped", action="store_true", help="leave out what is held out")
    parser.add_argument("--case", type=int, help="measure this one in this process")
    options = parser.parse_args(arguments)
    if options.case is not None:
        print(json.dumps({"measured": measure(grid()[options.case], "cuda")}))
        return 0
    if options.list:
        print(listed())
        return 0
    if options.score and not DATA.is_file():
        print(NO_DATA.format(DATA), file=sys.stderr)
        return 2
    if options.score:
        return _report(json.loads(DATA.read_bytes()))
    if not _has_gpu():
        print(NO_GPU, file=sys.stderr)
        return 2
    frozen = formulas_commit()
    if frozen["changed"] and not options.shaped:
        print(f"bench.gpu_grid: commit {FORMULAS} first, or give --shaped", file=sys.stderr)
        return 2
    rows = [
        _row(number, case)
        for number, case in enumerate(grid())
        if not (options.shaped and case.held_out)
    ]
    date = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    data = {"schema": 1, "date": date, "formulas": frozen, "cases": rows}
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return _report(data)


def listed() -> str:
    """Lay out the cases with what is expected of them."""
    rows = []
    for case in grid():
        found = predicted(case)
        rows.append([case.name, memory(found.allocated), memory(found.reserved), _split(case)])
    return table(["case", "allocated", "reserved", "split"], rows)


def formulas_commit() -> dict[str, Any]:
    """Return the commit of the formulas, and whether they differ from it."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", FORMULAS)
    return {"commit": git("rev-parse", "HEAD"), "changed": bool(changed)}


def _has_gpu() -> bool:
    if not _is_there("torch"):
        return False
    import torch

    return bool(torch.cuda.is_available())


def _row(number: int, case: Case) -> dict[str, Any]:
    """Measure a case in a process of its own; one that cannot be measured says why."""
    row: dict[str, Any] = {"name": case.name, "predicted": asdict(predicted(case))}
    row["used_by_others"] = used_by_others()
    if missing := needs(case):
        row["left_out"] = f"{', '.join(missing)} is not installed"
    else:
        row |= measured_in_child("bench.gpu_grid", number, LIMIT_S)
    print(f"{case.name}: {row.get('left_out', 'measured')}", file=sys.stderr, flush=True)
    return row


def used_by_others() -> int:
    """Return the bytes that the first GPU holds before a case starts; 0 where nobody can say."""
    if shutil.which("nvidia-smi") is None:
        return 0
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True)
    first = (done.stdout.splitlines() or [""])[0].strip()
    return int(first) << 20 if first.isdigit() else 0


def measure(case: Case, device: str, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run a case and return its peaks in bytes; on a CPU, which has no counters, they are 0."""
    import torch

    torch.manual_seed(0)
    is_gpu = device == "cuda"
    before = _used(device)
    model = build(case, device, config)
    if is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    vocabulary = (config or MODELS[case.model])["vocab_size"]
    if case.serves:
        shape = (case.inference.batch, case.inference.context - NEW_TOKENS)
        generate(case, model, torch.randint(vocabulary, shape, device=device))
    else:
        optimizer = optimizer_of(case, model)
        shape = (case.training.micro_batch, case.training.sequence)
        ids = torch.randint(vocabulary, shape, device=device)
        for _ in range(STEPS):
            step(case, model, optimizer, ids)
    if is_gpu:
        torch.cuda.synchronize()
    packages = ("torch", "transformers", "peft", "bitsandbytes")
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "allocated": torch.cuda.max_memory_allocated() if is_gpu else 0,
        "reserved": torch.cuda.max_memory_reserved() if is_gpu else 0,
        "reserved_now": torch.cuda.memory_reserved() if is_gpu else 0,
        "used_before": before,
        "used_after": _used(device),
        "gpu": torch.cuda.get_device_name() if is_gpu else "none",
        "versions": {n: importlib.metadata.version(n) for n in packages if _is_there(n)},
    }


def _used(device: str) -> int:
    """Return the bytes of the GPU that anybody uses; asking makes the context, which counts."""
    import torch

    if device != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def errors(row: dict[str, Any], expected: Memory) -> dict[str, float]:
    """Return the relative errors of a measured case, positive where too much was expected.

    `total` is what the card must have: reserved, and what it held beside this process's tensors.
    """
    found = row["measured"]
    outside = found["used_after"] - found["reserved_now"] - row["used_by_others"]
    total = expected.reserved + expected.outside
    return {
        "allocated": expected.allocated / found["allocated"] - 1,
        "reserved": expected.reserved / found["reserved"] - 1,
        "total": total / (found["reserved"] + outside) - 1,
    }


def _report(data: dict[str, Any]) -> int:
    scores, text = scored(data)
    print(text)
    now = formulas_commit()
    if now["changed"] or now["commit"] != data["formulas"]["commit"]:
        print(f"\nmeasured with the formulas of {data['formulas']['commit'][:12]}; others now")
    held_out = [scores.get(("held out", kind), []) for kind in ("allocated", "reserved")]
    return 0 if all(map(meets_the_demand, held_out)) else 1


def scored(data: dict[str, Any]) -> tuple[dict[tuple[str, str], list[float]], str]:
    """Score stored data with the formulas as they are: errors by split and kind, and a table."""
    cases = {case.name: case for case in grid()}
    rows: list[Sequence[str]] = []
    scores: dict[tuple[str, str], list[float]] = {}
    lines = []
    for row in data["cases"]:
        case = cases.get(row["name"])
        if case is None or "measured" not in row:
            lines.append(f"left out: {row['name']}: {row.get('left_out', 'no case any more')}")
            continue
        found = errors(row, predicted(case))
        for kind, error in found.items():
            scores.setdefault((_split(case), kind), []).append(error)
        shown = [f"{error:+.1%}" for error in found.values()]
        rows.append((case.name, memory(row["measured"]["allocated"]), *shown, _split(case)))
    head = ("case", "allocated", "error", "of reserved", "of total", "split")
    for (split, kind), values in scores.items():
        sizes = [abs(value) for value in values]
        lines.append(
            f"{split}, {kind}: {len(sizes)} cases, median error {statistics.median(sizes):.1%}, "
            f"worst {max(sizes):.1%}"
        )
    return scores, "\n".join([table(head, rows), "", *lines])


def meets_the_demand(found: Sequence[float]) -> bool:
    """Return whether the errors of held-out cases are as small as they must be; none is not."""
    sizes = [abs(value) for value in found]
    return bool(sizes) and statistics.median(sizes) <= MEDIAN and max(sizes) <= WORST


def _split(case: Case) -> str:
    return "held out" if case.held_out else "shaped"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
