"""The functions of `tokmill.bill`: a bill from a model, a dataset and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tokmill.bill.bill_settings import bill_settings
from tokmill.bill.formula import Bill
from tokmill.bill.full_bill import FullBill, full_bill, limit_of_ram
from tokmill.bill.host_ram.host import HostBill, host_bill
from tokmill.bill.inputs import Inputs, complete_inputs
from tokmill.bill.models.load import model_from_config
from tokmill.bill.on_disk import OnDisk, OpenDataset, on_disk, read_dataset
from tokmill.bill.remedies.comparison import Comparison, default_axes
from tokmill.bill.remedies.comparison import compare as compare_settings
from tokmill.bill.serving import inference_bill
from tokmill.bill.training_bill import TrainingBill, training_bill
from tokmill.errors import UsageError
from tokmill.settings.load import argument_values
from tokmill.settings.names import by_keyword, keyword_errors
from tokmill.settings.schema import BILL_SECTIONS
from tokmill.settings.signature import with_settings

if TYPE_CHECKING:
    from tokmill.bill.models.model import Model
    from tokmill.settings.arguments import BillArguments, InferenceArguments, TrainingArguments


@keyword_errors()
def count_parameters(model: str | Path | Mapping[str, Any]) -> int:
    """Return the parameters of a model, a tied tensor counted once.

    Args:
        model: a built-in name, the path of a config.json or its directory, or its contents.

    Raises:
        UsageError: the model is not known, or its configuration lacks something.

    Example:
        >>> tokmill.bill.count_parameters("llama-3-8b")
        8030261248
    """
    return model_of(model).parameters


@keyword_errors()
def parameters_by_module(model: str | Path | Mapping[str, Any]) -> dict[str, int]:
    """Return the parameters of embedding, attention, mlp, experts, router, norm and head.

    Modules that a model lacks are left out, a tied head among them; the sum is `count_parameters`.

    Args:
        model: see `count_parameters`.

    Raises:
        UsageError: see `count_parameters`.
    """
    return model_of(model).by_module()


@keyword_errors()
@with_settings(by_keyword(("model", "training")).values())
def training(
    model: str | Path | Mapping[str, Any] | None = None,
    dataset: str | Path | OpenDataset | None = None,
    **settings: Unpack[TrainingArguments],
) -> TrainingBill:
    """Return the GPU memory of training on the fullest GPU: of each moment of a step, and the peak.

    Args:
        model: see `count_parameters`; None: by numbers.
        dataset: its packing is the default of `sequence`, its vocabulary that of a model by
            numbers.
        **settings: settings of the sections [model] and [training].

    Raises:
        UsageError: a setting is wrong, or settings contradict each other or the model.

    Example:
        >>> bill = tokmill.bill.training("gpt2", precision="fp32", micro_batch=8)
        >>> bill.peak.title, bill.peak.n_bytes, bill.peak.high_bytes
        >>> [(line.name, line.n_bytes) for line in bill.peak.lines]
    """
    inputs = _inputs(("model", "training"), model, dataset, settings)
    return training_bill(inputs.require_model(), inputs.settings.training)


@keyword_errors()
@with_settings(by_keyword(("model", "inference")).values())
def inference(
    model: str | Path | Mapping[str, Any] | None = None, **settings: Unpack[InferenceArguments]
) -> Bill:
    """Return the memory of one GPU that serves a model.

    Args:
        model: see `count_parameters`; None: by numbers.
        **settings: settings of the sections [model] and [inference]. The default of `context` is
            2,048 tokens, or the model's positions if fewer.

    Raises:
        UsageError: a setting is wrong, or the GPUs cannot share the model.

    Example:
        >>> bill = tokmill.bill.inference("llama-3-8b", context="32k", weight_type="int4")
        >>> bill.n_bytes
    """
    inputs = _inputs(("model", "inference"), model, None, settings)
    context = inputs.settings.training.sequence
    return inference_bill(inputs.require_model(), inputs.settings.inference, context=context)


@keyword_errors()
@with_settings(by_keyword(("model", "training")).values())
def host(
    model: str | Path | Mapping[str, Any] | None = None,
    dataset: str | Path | OpenDataset | None = None,
    **settings: Unpack[TrainingArguments],
) -> HostBill:
    """Return the host RAM of one machine that trains: of each moment, and the verdict.

    Args:
        model: see `count_parameters`; None for the dataset alone.
        dataset: a directory or an open dataset; None for the model alone, or with
            `dataset_bytes` or `tokens`.
        **settings: settings of the sections [model] and [training]. `host_ram` is the memory of the
            machine; without it, that of this one.

    Raises:
        TokmillError: a setting is wrong, or there is no finished dataset.

    Example:
        >>> bill = tokmill.bill.host(dataset_bytes="100GB", loader_workers=8, host_ram="64GiB")
        >>> bill.peak.n_bytes, bill.page_cache.n_bytes, bill.verdict.said
    """
    inputs = _inputs(("model", "training"), model, dataset, settings)
    return host_bill(inputs.model, inputs.settings.training, inputs.size, inputs.machine)


@keyword_errors()
@with_settings(by_keyword(("model", "training")).values())
def disk(
    dataset: str | Path | OpenDataset | None = None, **settings: Unpack[TrainingArguments]
) -> OnDisk:
    """Return the disk space of a dataset; of a finished one it is the sum of its files.

    Args:
        dataset: a directory or an open dataset; None with `dataset_bytes` or `tokens`.
        **settings: settings of the sections [model] and [training].

    Raises:
        TokmillError: there is no finished dataset, or it is damaged.

    Example:
        >>> tokmill.bill.disk("out").bill.n_bytes
        >>> tokmill.bill.disk(tokens="300B").bill.n_bytes
    """
    inputs = _inputs(("model", "training"), None, dataset, settings)
    if inputs.disk is None:
        raise UsageError("no dataset: give its directory, dataset_bytes or tokens")
    return inputs.disk


@keyword_errors()
@with_settings(by_keyword(BILL_SECTIONS).values())
def of(
    model: str | Path | Mapping[str, Any] | None = None,
    dataset: str | Path | OpenDataset | None = None,
    *,
    config: str | Path | None = None,
    deepspeed: str | Path | None = None,
    **settings: Unpack[BillArguments],
) -> FullBill:
    """Return the complete bill of a model, a dataset or both, as `tokmill memory` prints it.

    Of two sources of a setting the first wins: argument, environment variable, `deepspeed`,
    `config`, the run that made the dataset, default.

    Args:
        model: see `count_parameters`.
        dataset: a directory or an open dataset.
        config: a TOML file with [model], [training] and [inference].
        deepspeed: a DeepSpeed configuration (JSON).
        **settings: settings of the sections [model], [training] and [inference].

    Raises:
        TokmillError: a setting or a file is wrong, or there is no finished dataset.

    Example:
        >>> bill = tokmill.bill.of("gpt2", gpu="H100", gpus=8, tokens="15B", price_per_hour=2.5)
        >>> bill.of_model.advice.verdict, bill.of_model.compute.cost
        >>> bill.as_json()["training"]["peak"]["bytes"]
        >>> print(bill)
    """
    from tokmill.bill.text.summary import PrintedBill  # imports rich, which takes time

    sections = ("model", "training", "inference")
    return PrintedBill.of(full_bill(_inputs(sections, model, dataset, settings, config, deepspeed)))


@keyword_errors()
@with_settings(by_keyword(BILL_SECTIONS).values())
def compare(
    model: str | Path | Mapping[str, Any] | None = None,
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    **settings: Unpack[BillArguments],
) -> Comparison:
    """Return the GPU memory of training or inference with every combination of some settings.

    Inference is compared if an axis is one of its settings.

    Args:
        model: see `count_parameters`; None with an axis `model`.
        axes: the settings to vary, each with its values, as in `{"model": ["gpt2", "gpt2-xl"]}`;
            None: precision or sharding, checkpointing and adapters.
        **settings: all other settings of the sections [model], [training] and [inference].

    Raises:
        UsageError: a setting or a value does not exist, or there are over 200 combinations.

    Example:
        >>> table = tokmill.bill.compare("gpt2", axes={"gpu": ["T4", "RTX 4090"]}, micro_batch=8)
        >>> [(each.values, each.n_bytes, each.verdict) for each in table.alternatives]
    """
    contents = model if isinstance(model, Mapping) else None
    arguments = {**settings, "model": None if contents is not None else model}
    sections = ("model", "training", "inference")
    asked = bill_settings({}, None, None, argument_values(sections, arguments))
    chosen = default_axes(asked.training) if axes is None else axes
    given = None if contents is None else model_from_config(contents)
    return compare_settings(asked, chosen, given, limit_of_ram)


def model_of(model: str | Path | Mapping[str, Any]) -> Model:
    """Return a model by its name, configuration or contents; raises as `count_parameters`."""
    return _inputs(("model",), model).require_model()


def _inputs(
    sections: tuple[str, ...],
    model: str | Path | Mapping[str, Any] | None,
    dataset: str | Path | OpenDataset | None = None,
    settings: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    deepspeed: str | Path | None = None,
) -> Inputs:
    """Return the inputs of a bill from the arguments of a function.

    `sections` are those whose settings the function takes.
    """
    contents = model if isinstance(model, Mapping) else None
    directory, manifest = (None, {}) if dataset is None else read_dataset(dataset)
    arguments = {**(settings or {}), "model": None if contents is not None else model}
    asked = bill_settings(
        manifest.get("config", {}),
        None if config is None else Path(config),
        None if deepspeed is None else Path(deepspeed),
        argument_values(sections, arguments),
    )
    return complete_inputs(
        asked,
        None if directory is None else on_disk(directory, manifest),
        model=None if contents is None else model_from_config(contents),
    )
