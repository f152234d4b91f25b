"""What real optimizers keep of small real models, and take for a step, held against ours."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.states.optimizers import is_orthogonalized
from tokmill.bill.states.states import States, rank_states
from tokmill.settings.training import TrainingSettings

REASON = "the oracle is not installed: make oracles"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason=REASON)
    transformers = pytest.importorskip("transformers", reason=REASON)
    tracking = pytest.importorskip("torch.distributed._tools.mem_tracker", reason=REASON)

CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 150},
    "llama": {
        "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 150,
        "num_key_value_heads": 2, "intermediate_size": 48,
    },
}  # fmt: skip
TorchDispatchMode = torch.utils._python_dispatch.TorchDispatchMode
PRECISIONS = {"fp32": torch.float32, "pure-16": torch.bfloat16}


def real(model_type: str, precision: str) -> Any:
    """Make a real model with gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.AutoConfig.for_model(model_type, **CONFIGS[model_type])
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=PRECISIONS[precision])
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    return model


def ours(model_type: str, **settings: Any) -> States:
    model = model_from_config({"model_type": model_type, **CONFIGS[model_type]})
    return rank_states(model, TrainingSettings(**settings))


def optimizers(model: Any, name: str, step: str, states: States) -> list[Any]:
    """Make the optimizers that a setting means."""
    parameters = list(model.parameters())
    how = {"foreach": step == "foreach", "fused": step == "fused"}
    match name:
        case "adamw" | "adam":
            kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[name]
            return [kind(parameters, **how)]
        case "sgd" | "momentum":
            return [torch.optim.SGD(parameters, momentum=0.9 if name == "momentum" else 0, **how)]
        case "adafactor":
            return [transformers.Adafactor(parameters)]
        case _:
            named = dict(model.named_parameters())
            muon = [
                named.pop(held.tensor.name.format(layer))
                for held in states.tensors
                if is_orthogonalized(held)
                for layer in held.layers or ()
            ]
            return [torch.optim.Muon(muon), torch.optim.AdamW(named.values(), **how)]


def kept(optimizer: Any) -> int:
    """Return the bytes of the states: all but counts of steps and the like."""
    return sum(
        value.nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value) and value.dim()
    )


def taken(model: Any, optimizer: Any) -> int:
    """Return the bytes that a second step takes at its peak, beside what stands."""
    tracker = tracking.MemTracker()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracker.track_external(model, optimizer)
        with tracker:
            optimizer.step()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    return int(
        peak["Total"] - tracker.get_tracker_snapshot("current")[torch.device("cpu")]["Total"]
    )


@pytest.mark.parametrize("model_type", CONFIGS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "momentum", "adafactor", "muon"])
def test_states_are_those_of_the_real_optimizer(name: str, precision: str, model_type: str) -> None:
    states = ours(model_type, precision=precision, optimizer=name)
    made = optimizers(real(model_type, precision), name, "foreach", states)
    for optimizer in made:
        optimizer.step()
    assert sum(map(kept, made)) == sum(line.n_bytes for line in states.optimizer)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("adamw", "foreach"),
        ("adamw", "for-loop"),
        ("adamw", "fused"),
        ("adam", "foreach"),
        ("sgd", "foreach"),
        ("sgd", "for-loop"),
        ("momentum", "foreach"),
        ("adafactor", "foreach"),
        ("muon", "fused"),
        ("muon", "foreach"),
    ],
)
def test_a_step_takes_what_the_real_optimizer_takes(name: str, step: str, precision: str) -> None:
    torch.set_num_threads(1)
    states = ours("llama", precision=precision, optimizer=name, optimizer_step=step)
    model = real("llama", precision)
    made = optimizers(model, name, step, states)
    for optimizer in made:
        optimizer.step()
    peak, expected = max(taken(model, each) for each in made), states.step_temporary.n_bytes
    # What is left: row and column sums (Adafactor), and a norm's copy beside the embedding's two.
    assert expected <= peak <= 1.02 * expected


@pytest.mark.parametrize("model_type", CONFIGS)
def test_autocast_casts_the_weights_that_we_count(model_type: str) -> None:
    """Each weight is cast once, and only those that are multiplied."""
    model = real(model_type, "fp32")
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    casts: list[int] = []

    class Casts(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            if func is torch.ops.aten._to_copy.default and args[0].data_ptr() in weights:
                casts.append(made.nbytes)
            return made

    with Casts(), torch.autocast("cpu", torch.bfloat16):
        model(torch.zeros(1, 8, dtype=torch.long))
    line = ours(model_type, precision="amp").casts
    assert line
    assert sum(casts) == line.n_bytes
