"""Servers: the share that they take, what they hold beside weights and cache, and who is said."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from tokmill.bill.gpus import DOES_NOT_FIT, find_gpu, gpu_verdict
from tokmill.bill.models.load import load_model
from tokmill.bill.servers import SERVERS, server_name
from tokmill.bill.serving import inference_bill, room_tokens
from tokmill.cli.main import cli
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, ModelSettings

GIB = 1 << 30


def screen(command: str) -> str:
    """Return what `tokmill memory` prints, on one line."""
    result = CliRunner().invoke(cli, ["memory", *command.split()])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def bill(name: str, gpu: str = "H100", **settings):
    model = load_model(ModelSettings(name=name))
    return inference_bill(model, InferenceSettings(**settings), context=2048, gpu=find_gpu(gpu))


def amount(name: str, of) -> int:
    return sum(line.n_bytes for line in of.lines if line.name.startswith(name))


@pytest.mark.parametrize(
    ("settings", "server"),
    [
        ({}, "vllm"),
        ({"kv_type": "fp8"}, "vllm"),
        ({"weight_type": "int4"}, "vllm"),
        ({"weight_type": "q4_k_m"}, "llama.cpp"),
        ({"kv_type": "int8"}, "llama.cpp"),
        ({"host_experts": 4}, "llama.cpp"),
        ({"weight_type": "nf4"}, "transformers"),
        ({"prefill_chunk": 0}, "transformers"),
        ({"logits": "all"}, "transformers"),
        ({"server": "sglang", "weight_type": "q8_0"}, "sglang"),
    ],
)
def test_the_server_is_the_one_named_else_the_usual_one(settings, server):
    assert server_name(InferenceSettings(**settings)) == server


def test_a_server_that_takes_a_share_leaves_the_rest_free():
    gpu = find_gpu("H100")
    found = bill("qwen3-32b", server="vllm")
    graphs = amount("CUDA graphs", found)
    assert found.kept_free == round(0.1 * gpu.memory_bytes) - graphs
    assert bill("qwen3-32b", server="vllm", gpu_share=1.0).kept_free == 0
    assert bill("qwen3-32b", server="transformers").kept_free == 0


def test_gpt_oss_120b_starts_on_one_h100_only_with_a_short_context() -> None:
    of_kernels = amount("weights", bill("gpt-oss-120b")) + amount("padding", bill("gpt-oss-120b"))
    assert of_kernels == pytest.approx(64.38 * GIB, rel=0.01)
    assert "does not fit" in screen("--model gpt-oss-120b --gpu H100 --context 128k --users 2")
    shown = screen("--model gpt-oss-120b --gpu H100 --context 16k")
    assert "under vLLM, which takes 90% of it" in shown
    assert "vLLM (default)" in shown


@pytest.mark.parametrize(
    ("server", "share", "tokens"), [("vllm", 0.9, 178_880), ("sglang", 0.93, 367_404)]
)
def test_the_room_for_tokens_is_near_what_servers_print(server, share, tokens):
    found = bill(
        "qwen3-235b-a22b", server=server, gpu_share=share, serving_gpus=4, weight_type="fp8"
    )
    assert room_tokens(found, find_gpu("H100")) == pytest.approx(tokens, rel=0.6)


def test_a_cache_that_grows_is_there_twice() -> None:
    growing = bill("llama-3-8b", server="transformers", context=8192)
    assert amount("copies of the growing", growing) == amount("KV cache", growing) == GIB
    assert amount("copies of the growing", bill("llama-3-8b", context=8192)) == 0


def test_prompt_and_answer_make_the_context():
    asked = {"server": "transformers", "batch": 4}
    apart = bill("llama-3-8b", prompt=1024, answer=7168, **asked)
    whole = bill("llama-3-8b", context=8192, **asked)
    assert amount("KV cache", apart) == amount("KV cache", whole)
    assert amount("activations", whole) == 8 * amount("activations", apart)


def test_layers_with_a_window_keep_a_chunk_more_under_llama_cpp() -> None:
    gpt_oss = {"context": 131_072, "batch": 2}
    found = bill("gpt-oss-120b", server="llama.cpp", **gpt_oss)
    # 2 sequences, 18 layers, 768 cells (128 + 512, rounded up to 256), 2 KiB of a token.
    assert amount("KV cache, sliding", found) == 2 * 18 * 768 * 2048


def test_experts_in_host_ram_leave_the_gpu() -> None:
    command = "--model qwen3-30b-a3b --gpu 16GB --weight-type q4_k_m --context 32k"
    plan = screen(f"{command} --host-ram 32GiB")
    assert re.search(r"fits with --host-experts 24 \(GPU .*; host RAM 8\.\d\d GiB", plan)
    assert "verdict fits on 16GB" in screen(f"{command} --host-ram 32GiB --host-experts 24")
    small = screen(f"{command} --host-ram 4GiB")
    assert "--host-experts 24" not in small
    moved = screen(f"{command} --host-experts 48 --host-ram 32GiB")
    assert re.search(r"host RAM 16\.\d\d GiB of experts; fits in 32.00 GiB of a node", moved)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server": "vllm", "kv_type": "int4"}, "kv_type: vLLM has no cache of int4; choose fp8"),
        ({"server": "sglang", "host_experts": 1}, "host_experts: SGLang has none; choose --server"),
    ],
)
def test_what_a_server_cannot_do_is_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        bill("qwen3-30b-a3b", **settings)


def test_a_context_shorter_than_prompt_and_answer_is_refused() -> None:
    command = "memory --model gpt2 --context 512 --prompt 500 --answer 20"
    result = CliRunner().invoke(cli, command.split(), standalone_mode=False)
    told = "context: expected at least prompt and answer, tokens: 500 + 20, found 512"
    assert told in str(result.exception)


@pytest.mark.parametrize("server", list(SERVERS))
def test_each_server_has_a_verdict_of_its_own(server: str) -> None:
    shown = screen(f"--model llama-3-8b --gpu 4090 --server {server} --context 8k")
    assert f"under {SERVERS[server].name}" in shown
    found = bill("llama-3-8b", "4090", server=server, context=8192)
    assert gpu_verdict(found, find_gpu("4090")) != DOES_NOT_FIT


def test_gpus_that_only_serve_share_the_model() -> None:
    shown = screen("--model llama-3-70b --gpu H100 --gpus 4 --context 8k --users 20")
    assert "4 GPUs" in shown
    assert "training" not in shown
