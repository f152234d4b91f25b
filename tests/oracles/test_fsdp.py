"""What FSDP1 and FSDP2 keep of recomputed layers, counted on the storages that torch makes.

With a frozen base FSDP1 hooks the input of each layer; under reentrant checkpointing this holds
inputs and their gradients until backward ends (`bill.activations.layers.HELD_BY_HOOKS`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the oracle is not installed: make oracles")

from torch import distributed, nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

WIDTH, TOKENS = 64, 1024
INPUT_BYTES = 4 * WIDTH * TOKENS
LAYERS = 6


class Peak(TorchDispatchMode):
    """The largest sum of the storages that hold an activation, in inputs of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.inputs = 0.0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.untyped_storage().nbytes() >= INPUT_BYTES
            ):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.alive:
                    weakref.finalize(storage, self.alive.pop, storage._cdata, None)
                self.alive[storage._cdata] = storage.nbytes()
        self.inputs = max(self.inputs, sum(self.alive.values()) / INPUT_BYTES)
        return result


class Layer(nn.Module):
    """A residual layer with a low-rank adapter, which can be the only part that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.lora_A, self.lora_B = (
            nn.Linear(*shape, bias=False) for shape in ((WIDTH, 2), (2, WIDTH))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x) + self.lora_B(self.lora_A(x))))


class Net(nn.Module):
    def __init__(self, *, frozen: bool, reentrant: bool) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(16, WIDTH), nn.Linear(WIDTH, 8, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.frozen, self.reentrant = frozen, reentrant
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(not frozen or "lora" in name)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        if self.frozen:
            x.requires_grad_(True)
        for layer in self.layers:
            x = checkpoint(layer.__call__, x, use_reentrant=self.reentrant)
        return self.head(x).sum()


def is_trained_leaf(module: nn.Module) -> bool:
    """Return what peft's wrapping policy for FSDP1 returns of a module."""
    weight = getattr(module, "weight", None)
    return not list(module.children()) and weight is not None and weight.requires_grad


def peak(program: str, *, frozen: bool, reentrant: bool) -> float:
    """Return the activations of a step at its peak, in inputs of a layer."""
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.wrap import (
        _or_policy,
        lambda_auto_wrap_policy,
        transformer_auto_wrap_policy,
    )

    torch.manual_seed(0)
    net: nn.Module = Net(frozen=frozen, reentrant=reentrant)
    if program == "FSDP1":
        leaves = functools.partial(lambda_auto_wrap_policy, lambda_fn=is_trained_leaf)
        layers = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
        policy = functools.partial(_or_policy, policies=[leaves, layers])
        device = torch.device("cpu")
        net = FullyShardedDataParallel(
            net, auto_wrap_policy=policy if frozen else layers, device_id=device
        )
    elif program == "FSDP2":
        for layer in net.layers:  # type: ignore[union-attr]
            fully_shard(layer)
        fully_shard(net)
    ids = torch.randint(16, (1, TOKENS))
    net(ids).backward()
    with Peak() as found:
        net(ids).backward()
    return found.inputs


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """Make this process a group of one."""
    store = tmp_path / "store"
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("group")
def test_fsdp1_holds_inputs_and_gradients_of_frozen_layers_under_reentrant_checkpointing() -> None:
    for frozen in (True, False):
        for reentrant in (True, False):
            plain = peak("none", frozen=frozen, reentrant=reentrant)
            more = {
                program: peak(program, frozen=frozen, reentrant=reentrant) - plain
                for program in ("FSDP1", "FSDP2")
            }
            # The peak moves from the last layer's backward, where all inputs exist, to the first's.
            held = LAYERS - 2 if frozen and reentrant else 0
            assert more == {"FSDP1": held, "FSDP2": 0}, (frozen, reentrant)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", ["FSDP1", "FSDP2"])
def test_gradients_of_a_micro_batch_without_a_step_are_not_shared(program: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import (
        FullyShardedDataParallel,
        MixedPrecision,
        MixedPrecisionPolicy,
        fully_shard,
    )
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        half = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.bfloat16}
        layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)))
        elements = sum(parameter.numel() for parameter in layers.parameters())
        if program == "FSDP1":
            device = torch.device("cpu")
            net = FullyShardedDataParallel(
                layers, device_id=device, mixed_precision=MixedPrecision(**half)
            )
            with net.no_sync():
                net(torch.randn(2, WIDTH)).sum().backward()
            gradients = [parameter.grad for parameter in net.parameters()]
        else:
            mesh = init_device_mesh("cpu", (4,))
            policy = MixedPrecisionPolicy(**half)
            for layer in layers:
                fully_shard(layer, mesh=mesh, mp_policy=policy)
            fully_shard(layers, mesh=mesh, mp_policy=policy)
            layers.set_requires_gradient_sync(False)
            layers(torch.randn(2, WIDTH)).sum().backward()
            groups = [layer._get_fsdp_state()._fsdp_param_group for layer in layers]
            held = [parameter for group in groups for parameter in group.fsdp_params]
            gradients = [parameter._unsharded_param.grad for parameter in held]
        n_bytes = sum(grad.numel() * grad.element_size() for grad in gradients)
        assert n_bytes == 2 * elements  # bill.states.states.UNSHARED
    finally:
        distributed.destroy_process_group()
