import pytest

from tokmill.bill.overhead import MIB, Fragmentation, fragmentation, overhead_lines, workspace_line
from tokmill.settings.training import TrainingSettings


def test_the_reserve_is_a_share_of_the_tensors_and_the_context_stands_beside_it():
    reserve, context = overhead_lines(1000, 2000)
    assert (reserve.low_bytes, reserve.n_bytes, reserve.high_bytes) == (0, 40, 600)
    assert (context.low_bytes, context.n_bytes, context.high_bytes) == (
        300 * MIB, 500 * MIB, 1000 * MIB
    )  # fmt: skip


def test_freed_blocks_of_logits_are_reserved_beside_the_share() -> None:
    reserve, _ = overhead_lines(1000, 2000, Fragmentation(0.1, 0.3, 50))
    assert (reserve.low_bytes, reserve.n_bytes, reserve.high_bytes) == (0, 150, 700)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"checkpointing": "full"}, (0.04, 0.3, 0)),
        ({"adapter": "lora"}, (0.07, 0.3, 0)),
        ({"adapter": "lora", "checkpointing": "full"}, (0.07, 0.3, 500)),
        ({"adapter": "lora", "checkpointing": "full", "loss": "fused"}, (0.07, 0.3, 0)),
        ({"sharding": "fsdp"}, (0.42, 0.6, 0)),
        ({"sharding": "fsdp", "adapter": "lora"}, (0.21, 0.6, 0)),
        ({"sharding": "fsdp2"}, (0.04, 0.3, 0)),
        ({"fragmentation": 0.0}, (0, 0, 0)),
    ],
)
def test_fragmentation_is_that_of_runs_of_its_kind(settings, expected) -> None:
    assert fragmentation(TrainingSettings(**settings), 100) == Fragmentation(*expected)


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
