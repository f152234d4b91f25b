"""The ten questions of docs/memory.md: the first screen of each against arithmetic by hand."""

from __future__ import annotations

import re

import pytest

from tests.docs.conftest import Installed
from tests.docs.pages import blocks

PAGE = "docs/memory.md"
GIB, MIB = 2**30, 2**20
PACKAGES = (277 + 110) * MIB
"""Anonymous memory of a process that has imported torch built for CUDA (measured)."""

Answer = dict[str, str]

QUESTIONS = [
    command
    for block in blocks(PAGE)
    for command in block.commands()
    if command.startswith("tokmill memory ")
]


def answer(installed: Installed, number: int) -> Answer:
    """Return the rows that a question's command prints in 80 columns: at most ten of them."""
    shown = installed.shell(f"COLUMNS=80 {QUESTIONS[number - 1]}").splitlines()
    assert max(map(len, shown)) <= 80
    rows: Answer = {}
    label = ""
    for line in shown:
        label = line[:12].strip() or label
        rows[label] = f"{rows.get(label, '')} {line[12:]}".strip()
    assert len(rows) <= 10
    assert next(iter(rows)) in ("verdict", "host RAM")
    assert list(rows)[-1] == "more"
    return rows


def gib(text: str) -> tuple[float, float, float]:
    """Return expected, low and high of a text such as `33.07 GiB (30.59 to 44.18)`.

    `(up to 44.18)`: low is the expected amount.
    """
    found = re.match(r"([\d,.]+) GiB \((?:([\d,.]+)|up) to ([\d,.]+)\)", text)
    assert found is not None, text
    texts = (found[1], found[2] or found[1], found[3])
    expected, low, high = (float(number.replace(",", "")) for number in texts)
    assert low <= expected <= high
    return expected, low, high


def test_there_are_ten_questions() -> None:
    assert len(QUESTIONS) == 10


def test_the_page_shows_what_the_first_command_prints(installed: Installed) -> None:
    printed = installed.shell(f"COLUMNS=100 {QUESTIONS[0]}")
    (shown,) = (block.text for block in blocks(PAGE) if block.language == "text")
    parts = [part.strip() for part in re.split("[…\n]", shown) if part.strip()]
    assert [part for part in parts if part not in printed] == []


def test_1_llama_3_8b_in_full_on_8_gpus_with_zero_3(installed: Installed) -> None:
    rows = answer(installed, 1)
    assert rows["verdict"].startswith("fits on A100 80GB (")
    parameters, tokens, ranks = 8_030_261_248, 2048, 8
    # Mixed precision, 16 B a parameter; its 2 of gradients come after the peak, in backward.
    states = 14 * parameters / ranks
    # 32 layers, bf16: d 4096, 32 heads and 8 of keys of size 128, f 14336; grouped keys.
    per_token = 16 * 4096 + 8 + 4 * 4096 + 4 * 8 * 128 + 4 * 32 + 8 * 14336
    logits = 12 * tokens * 128_256
    least = (states + 32 * tokens * per_token + logits) / GIB
    expected, low, _ = gib(rows["GPU memory"])
    assert "per GPU" in rows["GPU memory"]
    assert least < low
    # On top: buckets of 500 million and 50 million elements, the largest layers gathered, 4%, CUDA
    # and NCCL.
    gathered = 4 * 2 * 525_336_576
    assert expected < 1.04 * (least + (2 * 5.5e8 + gathered) / GIB) + 0.5 + 0.67
    each = (4 * parameters + PACKAGES) / GIB
    assert f"{each:.2f} GiB for each of 8 processes; peak: initialization" in rows["host RAM"]
    assert gib(rows["host RAM"])[0] == pytest.approx(ranks * each, abs=0.01)
    assert "this machine" not in rows["host RAM"]
    assert f"up to {3 * 14 * parameters / 1e9:.0f} GB" in rows["disk"]
    assert "8 GPUs, zero-3" in rows["training"]


def test_2_qlora_of_70b_on_24_gb(installed: Installed) -> None:
    rows = answer(installed, 2)
    assert rows["verdict"].startswith("does not fit on 24GB (")
    # Matrices of the layers in NF4; embedding and head, 32,000 x 8,192 each, in 16 bit.
    table = 2 * 32_000 * 8_192
    weights = 0.5 * (68_976_648_192 - table) + 2 * table
    assert weights > 24e9
    assert gib(rows["GPU memory"])[1] > weights / GIB
    assert "qlora of rank 16" in rows["training"]


def test_3_gpt2_on_a_t4_in_fp32(installed: Installed) -> None:
    rows = answer(installed, 3)
    assert rows["verdict"].startswith("fits on T4 (14.57 GiB): ")
    # MemTracker on fake tensors: 3,075.8 MiB, 48 of them a mask that a GPU does not make.
    tensors = 3075.8 - 12 * 1024**2 * 4 / MIB
    # On top 4% of fragmentation, 500 MiB of CUDA's context and some MiB of workspaces.
    assert gib(rows["GPU memory"])[0] == pytest.approx((1.04 * tensors + 500) / 1024, rel=0.015)


def test_4_lora_of_qwen_7b_at_4096_tokens_on_a_4090(installed: Installed) -> None:
    rows = answer(installed, 4)
    assert rows["verdict"].startswith("does not fit on RTX 4090 (23.52 GiB): ")
    assert "--loss fused" in rows["fits with"]
    tokens, hidden, layers = 4096, 3584, 28
    weights, logits = 2 * 7_615_616_512, 12 * tokens * 152_064
    # Rank 16 beside q, k, v, o, gate, up, down; 12 B of each before its gradient is there.
    widths = 2 * (hidden + hidden) + 2 * (hidden + 512) + 3 * (hidden + 18_944)
    adapters = 12 * 16 * layers * widths
    inputs = 2 * layers * tokens * hidden
    least = (weights + logits + adapters + inputs) / GIB
    assert 1.04 * least + 0.5 > 23.52
    expected, low, _ = gib(rows["GPU memory"])
    freed = 5 * tokens * 152_064 / GIB  # blocks of logits that recomputed layers split
    assert least < low < expected < 1.1 * least + freed + 0.5


def test_5_mixtral_in_int4_with_a_context_of_32k(installed: Installed) -> None:
    rows = answer(installed, 5)
    assert rows["verdict"].startswith("fits on A6000 (")
    cache = 2 * 32 * 8 * 128 * 32_768 * 2
    assert rows["KV cache"] == (
        f"{cache / 32_768 / 1024:.1f} KiB per token, {cache / GIB:.2f} GiB for 1 x 32,768 tokens"
    )
    # 4 bits, and 16 + 4 bits of scale and zero for 128; router, embedding, head, norms in 16 bit.
    others = 2 * 32_000 * 4096 + 32 * 4096 * 8 + 65 * 4096
    weights = (46_702_792_704 - others) * (4 + 20 / 128) / 8 + 2 * others
    assert f"weights {weights / GIB:.2f} GiB" in rows["GPU memory"]
    assert rows["model"].endswith(", 12,879,925,248 active per token")
    assert "context 32,768" in rows["inference"]
    assert "training" not in rows


def test_6_a_small_model_by_numbers(installed: Installed) -> None:
    rows = answer(installed, 6)
    layer = 512 * 512 + 2 * 512 * 128 + 512 * 512 + 3 * 512 * 1408 + 2 * 512
    assert rows["model"] == f"llama, {8 * layer + 512 + 6400 * 512:,} parameters"
    assert rows["verdict"].startswith("fits on RTX 3090 (23.56 GiB): ")


def test_7_100_gb_mapped_by_8_workers(installed: Installed) -> None:
    rows = answer(installed, 7)
    found = re.match(r"([\d.]+) MiB; peak: training; .* plus (.*)", rows["host RAM"])
    assert found is not None
    # 12 MiB of each forked worker; batches of 2,048 tokens, and a few of them ready.
    assert float(found[1]) == pytest.approx(277 + 8 * 12, abs=2)
    assert found[2].startswith(f"up to {100e9 / GIB:.2f} GiB of page cache, which the system can")
    assert rows["disk"] == "dataset 100 GB"


def test_8_a_deepspeed_file_with_zero_2_and_offload(installed: Installed) -> None:
    (file,) = (block.text for block in blocks(PAGE) if block.language == "json")
    (installed.desk / "ds_config.json").write_text(file)
    rows = answer(installed, 8)
    assert rows["training"].startswith("mixed-16, adamw, micro batch 1, ")
    assert rows["training"].endswith("8 GPUs, zero-2, offload optimizer")
    parameters = 6_738_415_616
    # On the GPU 2 B of weights and the activations, 32 layers of d 4096, 32 heads, f 11008.
    per_token = 16 * 4096 + 8 + 8 * 4096 + 4 * 32 + 8 * 11_008
    least = 2 * parameters + 32 * 2048 * per_token + 12 * 2048 * 32_000
    expected, low, _ = gib(rows["GPU memory"])
    assert least / GIB < low < expected < 1.04 * (least + 2 * 1e9 + 2 * parameters / 8) / GIB + 0.5
    assert rows["verdict"].startswith("does not fit on 24GiB (24.00 GiB): ")
    assert "--checkpointing" in rows["fits with"]
    # 8 processes that create the model in fp32 take more than 16 B of offload for each parameter.
    created = 8 * (4 * parameters + PACKAGES)
    assert created > 16 * parameters
    assert gib(rows["host RAM"])[0] == pytest.approx(created / GIB, abs=0.01)


def test_9_the_largest_batch(installed: Installed) -> None:
    rows = answer(installed, 9)
    # MemTracker: 3,075.8 and 14,637.8 MiB with 1 and 8 sequences, 48 of each a mask.
    each = (14_637.8 - 3075.8) / 7 - 48
    base = 3075.8 - 48 - each
    most = int(((23.52 * 1024 - 500) / 1.04 - base) / each)
    assert rows["largest"].startswith(f"micro batch {most} at sequence 1,024; at micro batch 1, ")
    assert rows["largest"].endswith("the model's maximum of 1,024")


def test_10_time_and_cost(installed: Installed) -> None:
    rows = answer(installed, 10)
    # 6 FLOP a parameter, lookups left out; 12 of each of 2,048 tokens, 32 heads of 128, 32 layers.
    flop = 6 * (8_030_261_248 - 128_256 * 4096) + 12 * 2048 * 4096 * 32
    seconds = 1e9 * flop / (0.4 * 989.4e12 * 8)
    minutes = round(seconds / 60)
    hours = 8 * seconds / 3600
    assert rows["time"].startswith(
        f"{minutes // 60} h {minutes % 60:02d} min for 1 billion tokens at 40% MFU, "
        f"{hours:.0f} GPU hours, cost {2.5 * hours:.2f}; "
    )
    assert f"{10**9 // (8 * 2048):,} steps of 16,384 tokens" in rows["time"]
