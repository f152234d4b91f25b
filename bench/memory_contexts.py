"""How checkpointed layers run, forward and again, so that the tool counts them right."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.memory_cases import Case


def contexts_of(case: Case, tracker: Any) -> tuple[Any, Any]:
    """Return the contexts of a layer's forward and of its recomputation."""
    again = nullcontext() if case.raw else _Again(tracker)
    if case.checkpointing == "full":
        return nullcontext(), again
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    forward, recompute = create_selective_checkpoint_contexts(_Policy())
    return forward, _Both(again, recompute)


class _Both:
    """Two contexts as one."""

    def __init__(self, *contexts: Any) -> None:
        self.contexts, self.stack = contexts, ExitStack()

    def __enter__(self) -> None:
        for context in self.contexts:
            self.stack.enter_context(context)

    def __exit__(self, *_: object) -> None:
        self.stack.close()


class _Policy:
    """Saves what torchtitan's policy does: attention's result and every second matrix product."""

    def __init__(self) -> None:
        import torch
        from torch.utils.checkpoint import CheckpointPolicy

        names = (
            "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
        )  # fmt: skip
        self.kernels = {getattr(torch.ops.aten, name).default for name in names}
        self.products = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
        self.policy, self.passed = CheckpointPolicy, {True: 0, False: 0}

    def __call__(self, context: Any, operation: Any, *_: Any, **__: Any) -> Any:
        again = context.is_recompute
        self.passed[again] += operation in self.products
        second = operation in self.products and self.passed[again] % 2
        saved = second or operation in self.kernels
        return self.policy.MUST_SAVE if saved else self.policy.PREFER_RECOMPUTE


class _Again:
    """Marks for the tool that a checkpointed layer runs again."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker

    def __enter__(self) -> None:
        self.tracker._ac_mod, self.tracker._in_ac = self._never, True

    def __exit__(self, *_: object) -> None:
        self.tracker._ac_mod, self.tracker._in_ac = None, False

    @staticmethod
    def _never() -> None:
        """Stand for a module that never ends."""
