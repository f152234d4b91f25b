"""Time of a training step by roofline: matrix products, memory and communication.

Each part runs at a share of the peak speed that programs reach. Nothing here was measured by us;
tests/bill/test_throughput.py compares it with published throughputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tokmill.bill.formula import Bill, Formula, evaluate
from tokmill.bill.gpus import Gpu
from tokmill.bill.models.model import Model
from tokmill.bill.states.parallel import ranks_per_node, state_ranks
from tokmill.bill.states.precision import scheme_of
from tokmill.bill.states.sharding import sharding_of
from tokmill.bill.states.states import rank_states
from tokmill.bill.training_bill import allocated_bytes, training_bill
from tokmill.settings.training import TrainingSettings

NETWORK = 25e9
"""Bytes per second from a GPU to other nodes: 200 Gb/s InfiniBand, as in DGX A100."""
FITTED = "the share of the peak: MosaicML's table of MPT (llm-foundry), A100 and H100"
ERROR = "published trainings reach 68 to 121% of the speed; not measured by us"

MATRICES = Formula(
    "seconds of a step: matrix products", "flop / (gpus * efficiency * peak)",
    f"roofline; {FITTED}", ERROR,
)  # fmt: skip
MEMORY = Formula(
    "seconds of a micro batch: reading and writing activations",
    "passes * saved / (0.8 * bandwidth)",
    "a saved tensor and its gradient are each written and read once, and once more where layers "
    "are recomputed; 0.8: gpt-fast reaches 1.7 of 2.04 TB/s on A100",
    ERROR,
)  # fmt: skip
OPTIMIZER = Formula(
    "seconds of a step: optimizer", "2 * states / (0.8 * bandwidth)",
    "gradients and states are read and written once", ERROR,
)  # fmt: skip
TENSOR = Formula(
    "seconds of a micro batch: exchange between tensor-parallel GPUs",
    "exchanges * layers * 2 * (t - 1) / t * q * n * d / (0.75 * link)",
    "Megatron-LM: 2 all-reduces forward and 2 backward per layer, by rings; 0.75: nccl-tests, A100",
    ERROR,
)
REDUCE = Formula(
    "seconds of a step: exchange of gradients",
    "2 * (N - 1) / N * q_gradient * P_trained / (0.75 * link)",
    "all-reduce by rings, or reduce-scatter and all-gather (ZeRO, section 7.1: the same volume)",
    ERROR,
)
GATHER = Formula(
    "seconds of a step: exchange of weights and gradients",
    "(N - 1) / N * (gathers * micro_batches * q * P + q_gradient * P_trained) / (0.75 * link)",
    "ZeRO-3 (section 7.2.2): weights are gathered for forward and backward, gradients scattered; "
    "FSDP's SHARD_GRAD_OP gathers for forward only",
    ERROR,
)
DECODING = Formula(
    "tokens per second of decoding", "b * bandwidth / (weights + cache)",
    "each token reads the weights (of experts, the active ones) and the KV cache once",
    "upper bound: gpt-fast measured 104.9 of 151 for Llama-2-7B in bf16 on A100 80GB",
)  # fmt: skip

EFFICIENCY = {"A100 40GB": 0.7, "A100 80GB": 0.7, "H100 SXM": 0.55, "H200": 0.55, "GH200": 0.55}
"""Share of the peak that matrix products reach in training; fitted to MPT-7B at 2,048 tokens."""
OTHER_EFFICIENCY = 0.6


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of an optimizer step, by cause.

    Exchange of weights and gradients overlaps with computation; tensor-parallel exchange does not.
    `bubble` is the factor that waiting of pipeline stages adds.
    """

    matrices_s: float
    memory_s: float
    tensor_exchange_s: float
    data_exchange_s: float
    optimizer_s: float
    bubble: float
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        busy = (self.matrices_s + self.memory_s + self.tensor_exchange_s) * self.bubble
        return max(busy, self.data_exchange_s) + self.optimizer_s


def step_time(model: Model, training: TrainingSettings, gpu: Gpu, flop: float) -> StepTime:
    """Return the time of an optimizer step; `flop` is that of all GPUs, with recomputation."""
    stages, micro_batches = training.pipeline_parallel, training.accumulation
    bill = training_bill(model, replace(training, checkpointing="none", accumulation=1))
    symbols = {
        "flop": flop,
        "gpus": training.gpus,
        "efficiency": EFFICIENCY.get(gpu.name, OTHER_EFFICIENCY),
        "peak": gpu.peak(scheme_of(training).computed),
        "bandwidth": gpu.bandwidth,
        "passes": 4 + (training.checkpointing != "none"),
        "saved": _saved_bytes(bill.moments),
        "states": _state_bytes(training_bill(model, training).moments),
    }
    return StepTime(
        _value(MATRICES, symbols),
        _value(MEMORY, symbols) * micro_batches,
        _tensor_exchange(model, training, gpu) * micro_batches,
        _data_exchange(model, training, gpu),
        _value(OPTIMIZER, symbols),
        1 + (stages - 1) / (micro_batches * training.virtual_stages),
        tuple(_left_out(model, training)),
    )


def decoding_speed(model: Model, inference: Bill, batch: int, gpu: Gpu) -> float | None:
    """Return an upper bound of decoding in tokens per second; None if the GPU is not known."""
    if not gpu.bandwidth:
        return None
    weights = sum(line.n_bytes for line in inference.lines if line.name == "weights")
    return _value(DECODING, {
        "b": batch,
        "bandwidth": gpu.bandwidth,
        "weights": weights * model.active_parameters / model.parameters,
        "cache": sum(line.n_bytes for line in inference.lines if "KV cache" in line.name),
    })  # fmt: skip


def _value(formula: Formula, symbols: dict[str, float]) -> float:
    return evaluate(formula.expression, symbols)


def _saved_bytes(moments: tuple[Bill, ...]) -> int:
    """Return the activations and logits of a micro batch at the end of forward."""
    return max(
        sum(
            line.n_bytes
            for line in moment.lines
            if line.name.startswith(("activations", "loss", "logits"))
        )
        for moment in moments
    )


def _state_bytes(moments: tuple[Bill, ...]) -> int:
    """Return the gradients and optimizer states at the optimizer's step."""
    (step,) = (moment for moment in moments if moment.title.endswith("optimizer's step"))
    weights = sum(line.n_bytes for line in step.lines if line.name == "weights")
    return allocated_bytes(step) - weights


def _left_out(model: Model, training: TrainingSettings) -> Iterator[str]:
    if not model.has_shape:
        yield "time of attention and activations: not counted, the layers are not known"
    if training.expert_parallel > 1:
        yield "time of exchange between expert-parallel GPUs: not counted"
    if training.context_parallel > 1:
        yield "time of exchange between context-parallel GPUs: not counted"
    if training.offload != "none":
        yield "time of offload to the host: not counted"


def _tensor_exchange(model: Model, training: TrainingSettings, gpu: Gpu) -> float:
    ranks = training.tensor_parallel
    return _value(TENSOR, {
        "exchanges": 4 + 2 * (training.checkpointing == "full"),
        "layers": -(-model.layers // training.pipeline_parallel),
        "t": ranks,
        "q": scheme_of(training).computed,
        "n": training.micro_batch * training.sequence / training.context_parallel,
        "d": model.hidden,
        "link": _link(training, gpu, ranks),
    })  # fmt: skip


def _data_exchange(model: Model, training: TrainingSettings, gpu: Gpu) -> float:
    states = rank_states(model, training)
    return _value(GATHER if sharding_of(training).weights else REDUCE, {
        "gathers": 1 if training.sharding == "fsdp-grad-op" else 2,
        "N": state_ranks(training),
        "micro_batches": training.accumulation,
        "q": scheme_of(training).computed,
        "P": states.parameters,
        "q_gradient": scheme_of(training).gradient,
        "P_trained": states.trainable,
        "link": _link(training, gpu, training.gpus),
    })  # fmt: skip


def _link(training: TrainingSettings, gpu: Gpu, ranks: int) -> float:
    """Return the bytes per second of an exchange among `ranks` neighbouring GPUs.

    Rings over several nodes use the network cards of all GPUs of a node at the same time.
    """
    each = ranks_per_node(training)
    if training.gpus <= each:
        return training.link_bandwidth or gpu.link
    return min(gpu.link, each * (training.link_bandwidth or NETWORK)) if ranks > each else gpu.link
