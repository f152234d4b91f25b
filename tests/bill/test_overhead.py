import pytest

from tokmill.bill.overhead import MIB, overhead_lines, workspace_line
from tokmill.settings.training import TrainingSettings


def test_the_reserve_is_a_share_of_the_tensors_and_the_context_stands_beside_it():
    reserve, context = overhead_lines(1000, 2000)
    assert (reserve.low_bytes, reserve.n_bytes, reserve.high_bytes) == (0, 40, 600)
    assert (context.low_bytes, context.n_bytes, context.high_bytes) == (
        300 * MIB, 500 * MIB, 1000 * MIB
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"checkpointing": "full"}, (40, 600)),
        ({"adapter": "lora"}, (70, 600)),
        ({"adapter": "lora", "checkpointing": "full"}, (570, 1600)),
        ({"adapter": "lora", "checkpointing": "full", "loss": "fused"}, (70, 600)),
        ({"sharding": "fsdp"}, (420, 1200)),
        ({"sharding": "fsdp", "adapter": "lora"}, (210, 1200)),
        ({"sharding": "fsdp2"}, (40, 600)),
        ({"fragmentation": 0.0}, (0, 0)),
    ],
)
def test_fragmentation_is_that_of_runs_of_its_kind(settings, expected) -> None:
    """Of 1,000 bytes of tensors, 2,000 at most, and 100 logits."""
    reserve, _ = overhead_lines(1000, 2000, TrainingSettings(**settings), 100)
    assert (reserve.low_bytes, reserve.n_bytes, reserve.high_bytes) == (0, *expected)


def test_a_workspace_of_cublas_stands_in_the_allocator_for_two_threads():
    old = workspace_line("A100 80GB", megatron=False, attention_bytes=1000)
    assert (old.n_bytes, old.high_bytes) == (2 * 8_519_680, 64 * MIB + 1000)
    assert workspace_line("h100", megatron=False, attention_bytes=0).n_bytes == 64 * MIB
    assert workspace_line("", megatron=False, attention_bytes=0).n_bytes == 2 * 8_519_680


def test_transformer_engine_has_a_workspace_of_its_own():
    new = workspace_line("NVIDIA H100", megatron=True, attention_bytes=0)
    assert new.n_bytes == 96 * MIB
    old = workspace_line("A100 80GB", megatron=True, attention_bytes=0)
    assert old.n_bytes == 2 * 8_519_680 + 4 * MIB
