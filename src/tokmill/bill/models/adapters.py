"""The tensors of low-rank adapters: LoRA's two matrices, and DoRA's magnitudes.

As in peft 0.21 on transformers 5: `all-linear` is every nn.Linear and Conv1D but the head. Experts
of a layer are one stacked tensor. In families with `Style.stacked`, peft also adapts experts and
routers, by the names of their former modules; it skips dense layers of these names.
"""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.model import Model, Tensor
from tokmill.errors import UsageError
from tokmill.settings.training import TrainingSettings

ALL_LINEAR = "all-linear"
WEIGHT = ".weight"
FUSED = "gate_up_proj"


def adapter_tensors(model: Model, training: TrainingSettings) -> tuple[Tensor, ...]:
    """Return the tensors that an adapter trains, () without an adapter.

    A matrix from i to o features gets A (r, i) and B (o, r), with DoRA also a vector (o). E stacked
    experts get A (E r, i) and B (o, E r), or 2 E r if one tensor is gate and up. Tensor parallelism
    splits A by rows and B by columns, like their matrix.

    Raises:
        UsageError: a target matches no matrix or half of a fused one, or experts with DoRA.
    """
    if training.adapter == "none":
        return ()
    matrices = adapted(model, training.adapter_targets)
    if training.adapter == "dora" and any(t.module in ("experts", "router") for t in matrices):
        raise UsageError(
            f"adapter: dora cannot adapt the stacked experts and routers of {model.family}, but "
            "adapter_targets has some; choose lora, or name other matrices"
        )
    return tuple(
        factor
        for matrix in matrices
        for factor in _factors(matrix, _rank(matrix, training), training.adapter)
    )


def adapted(model: Model, targets: str) -> tuple[Tensor, ...]:
    """Return the matrices that are adapted, stacked experts and routers last.

    Raises:
        UsageError: a target matches no matrix, or half of a fused one.
    """
    known = model.style.stacked
    modules = {_module(t): t for t in model.tensors if _is_module(t)}
    if targets.strip() == ALL_LINEAR:
        plain = (t for t in modules.values() if is_plain_linear(t))
        return (*(t for t in plain if _leaf(_module(t)) not in known), *_stacked(model, set(known)))
    ends = [end.strip() for end in targets.split(",")]
    here = [end for end in ends if _leaf(end) not in known]
    for end in here:
        if not any(_ends(name, end) for name in modules):
            raise UsageError(_no_such_matrix(end, modules, model))
    named = [t for name, t in modules.items() if any(_ends(name, end) for end in here)]
    return (*named, *_stacked(model, {_leaf(end) for end in ends} & set(known)))


def is_plain_linear(tensor: Tensor) -> bool:
    """Return whether a tensor is the matrix of an nn.Linear or Conv1D inside a layer."""
    if tensor.module == "router":  # not an nn.Linear in transformers; a shared expert's gate is one
        return tensor.name.endswith("shared_expert_gate.weight")
    return tensor.kind == "linear" and tensor.module != "head"


def _stacked(model: Model, names: set[str]) -> tuple[Tensor, ...]:
    """Return the stacked experts and routers for names of their former modules."""
    known = model.style.stacked
    fused = {name for name, end in known.items() if end == FUSED}
    if 0 < len(names & fused) < len(fused):
        raise UsageError(
            f"adapter_targets: {' and '.join(sorted(fused))} are one tensor in the experts of "
            f"{model.family}, found only {min(names & fused)}; name both"
        )
    ends = {known[name] for name in names}
    tensors = (t for t in model.tensors if t.module in ("experts", "router"))
    return tuple(t for t in tensors if any(_ends(t.name, end) for end in ends))


def _module(tensor: Tensor) -> str:
    return tensor.name.removesuffix(WEIGHT)


def _leaf(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _is_module(tensor: Tensor) -> bool:
    head = tensor.kind == "linear" and tensor.module == "head"
    return head or tensor.kind == "embedding" or is_plain_linear(tensor)


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def _no_such_matrix(end: str, modules: dict[str, Tensor], model: Model) -> str:
    """Return the message for a target that no matrix has."""
    names = {_leaf(name) for name in modules} | set(model.style.stacked)
    tied = "; the head is the embedding" if model.tied else ""
    is_skipped = model.experts and not model.style.stacked
    stacked = "; experts are one stacked tensor and cannot be adapted" if is_skipped else ""
    return (
        f"adapter_targets: no matrix's name ends with {end!r}; "
        f"expected {ALL_LINEAR} or some of {', '.join(sorted(names))}{tied}{stacked}"
    )


def _rank(matrix: Tensor, training: TrainingSettings) -> int:
    """Return the rank: of all experts together, and twice if one tensor is gate and up."""
    experts = matrix.shape[0] if matrix.kind == "experts" else 1
    return training.adapter_rank * experts * (2 if _leaf(matrix.name) == FUSED else 1)


def _factors(matrix: Tensor, rank: int, adapter: str) -> tuple[Tensor, ...]:
    """Return A, B and DoRA's magnitudes of one matrix, in all layers of the matrix."""
    name, n_in, n_out = _adapter_name(matrix), matrix.n_in, matrix.n_out
    part = replace(matrix, kind="linear", split="none")
    down = replace(
        part, name=f"{name}.lora_A{WEIGHT}", shape=(rank, n_in), n_out=rank,
        split="rows" if matrix.split == "rows" else "none",
    )  # fmt: skip
    up = replace(
        part, name=f"{name}.lora_B{WEIGHT}", shape=(n_out, rank), n_in=rank,
        split="columns" if matrix.split == "columns" else "none",
    )  # fmt: skip
    if adapter != "dora":
        return (down, up)
    magnitude = replace(up, name=f"{name}.lora_magnitude_vector", shape=(n_out,), kind="vector")
    return (down, up, magnitude)


def _adapter_name(matrix: Tensor) -> str:
    """Return the module of the factors: for stacked experts, the wrapper of the tensor."""
    if matrix.kind != "experts":
        return _module(matrix)
    parent, leaf = matrix.name.rsplit(".", 1)
    return f"{parent}.base_layer" if leaf == FUSED else parent
