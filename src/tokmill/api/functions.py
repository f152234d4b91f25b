"""The Python face of tokmill: the functions behind `tokmill.pretrain`, `sft`, `plan` and others.

Settings are keyword arguments with the names of the options of the command line, and all errors are
`TokmillError`. Nothing is printed on standard output. Notes and warnings about a run go to the
logger `tokmill`, at levels INFO and WARNING. Every function may be called from any thread, from a
notebook, from a script without a `__main__` guard and from a worker of a process pool; nothing in
the process is left changed by a call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from tokmill.api.dataset import Dataset, open_dataset
from tokmill.api.jobs import Inputs, checked_path, make_observed, run_config, verify_dataset
from tokmill.api.progress import Progress
from tokmill.errors import UsageError
from tokmill.settings.names import keyword_errors

if TYPE_CHECKING:
    from tokmill.api.bar import Bar, NotebookBar
    from tokmill.api.forecast import RunForecast
    from tokmill.api.jobs import Verification
    from tokmill.settings.arguments import PlanArguments, PretrainArguments, SftArguments
    from tokmill.settings.schema import Config

Paths = str | Path | Sequence[str | Path]
ProgressCall = Callable[[Progress], object]

_LOG = logging.getLogger("tokmill")


def pretrain(
    inputs: Inputs = (),
    *,
    tokenizer: str | Path | None = None,
    output: str | Path | None = None,
    config: str | Path | None = None,
    overwrite: bool = False,
    progress: bool | ProgressCall | None = None,
    **settings: Unpack[PretrainArguments],
) -> Dataset:
    """Turn records into token shards, and return the dataset.

    The same call continues a run that was stopped, and returns at once if the dataset is complete.
    Of two sources of a setting the first wins: argument, environment variable (`TOKMILL_…`),
    `config`, default.

    Args:
        inputs: files, globs, directories or `hf:NAME` for a Hugging Face dataset: one, or a
            sequence whose order is the order of the dataset. A `tokmill.Source` has its own
            settings of reading; sources come behind other inputs.
        tokenizer: tokenizer.json, a directory, a SentencePiece .model, a tiktoken file or a name on
            the Hub.
        output: the directory to write the dataset to.
        config: a TOML file with settings, as `tokmill pretrain --config` takes it.
        overwrite: remove the dataset in `output` first.
        progress: a function that gets a `Progress` at most ten times a second, and once at the end;
            what it raises stops the run. None and True draw a bar in a terminal or notebook, and
            nothing elsewhere; False draws none.
        **settings: every setting of `tokmill pretrain`, such as `val_fraction=0.001`, `workers=8`
            or `part_bytes="256MiB"`; `tokmill pretrain --help` explains them, and
            `tokmill.settings.arguments.PretrainArguments` lists them with their types.

    Returns:
        The dataset, open for reading.

    Raises:
        TokmillError: a setting, the tokenizer, the input or the disk is at fault; the message says
            where, what was expected and what to do. What is committed stays.
        KeyboardInterrupt: its message says what is kept.

    Example:
        >>> dataset = tokmill.pretrain("corpus/*.jsonl", tokenizer="gpt2/", output="out")
        >>> len(dataset), dataset.n_tokens
    """
    given = {"tokenizer": tokenizer, "output": output, **settings}
    with keyword_errors():
        chosen = run_config("pretrain", inputs, config, given)
        return _run(chosen, overwrite, progress)


def sft(
    inputs: Inputs = (),
    *,
    tokenizer: str | Path | None = None,
    output: str | Path | None = None,
    config: str | Path | None = None,
    overwrite: bool = False,
    progress: bool | ProgressCall | None = None,
    **settings: Unpack[SftArguments],
) -> Dataset:
    """Turn conversations into token shards with loss masks, and return the dataset.

    Records may be OpenAI messages, ShareGPT conversations, prompt and completion, Alpaca
    instructions or text, also mixed. The same call continues a run that was stopped.

    Args:
        inputs: see `pretrain`.
        tokenizer: see `pretrain`; its chat template is used unless `template` says otherwise.
        output: the directory to write the dataset to.
        config: a TOML file with settings, as `tokmill sft --config` takes it.
        overwrite: remove the dataset in `output` first.
        progress: see `pretrain`.
        **settings: every setting of `tokmill sft`, such as `packing=4096`, `max_tokens=4096` or
            `roles=["assistant"]`; `tokmill sft --help` explains them, and
            `tokmill.settings.arguments.SftArguments` lists them with their types.

    Returns:
        The dataset, open for reading; `dataset.mask(i)` are the masks.

    Raises:
        TokmillError: see `pretrain`.
        KeyboardInterrupt: its message says what is kept.

    Example:
        >>> dataset = tokmill.sft("chats.jsonl", tokenizer="qwen2.5/", output="out", packing=4096)
        >>> dataset[0][dataset.mask(0) == 1]
    """
    given = {"tokenizer": tokenizer, "output": output, **settings}
    with keyword_errors():
        chosen = run_config("sft", inputs, config, given)
        return _run(chosen, overwrite, progress)


def plan(
    inputs: Inputs = (),
    *,
    recipe: Literal["pretrain", "sft"] | None = None,
    tokenizer: str | Path | None = None,
    output: str | Path | None = None,
    config: str | Path | None = None,
    **settings: Unpack[PlanArguments],
) -> RunForecast:
    """Predict tokens, disk, time and memory of a run from a sample of its input; write nothing.

    Args:
        inputs: see `pretrain`.
        recipe: which run: `tokmill.pretrain` or `tokmill.sft`; None: by the settings that only one
            of them has, else by the first records.
        tokenizer: see `pretrain`.
        output: directory of the dataset; its disk must have the space.
        config: a TOML file with settings.
        **settings: the settings of the run.

    Returns:
        Tokens, documents, disk, time and memory, each estimate with its lower and upper value.

    Raises:
        TokmillError: the run could not start, or would stop.

    Example:
        >>> forecast = tokmill.plan("corpus/*.jsonl", tokenizer="gpt2/")
        >>> forecast.tokens, forecast.disk_bytes, forecast.time_s, forecast.memory_bytes
    """
    from tokmill.api.forecast import plan_run

    given = {"tokenizer": tokenizer, "output": output, **settings}
    with keyword_errors():
        chosen = run_config(recipe, inputs, config, given, _LOG.info)
        planned = plan_run(chosen, _LOG.warning, _LOG.info)
        if planned.problem is not None:
            raise planned.problem
        return planned.forecast


def open(  # noqa: A001  its name in the package
    directory: str | Path, *, split: str = "", tokenizer: str | Path = ""
) -> Dataset:
    """Open a finished dataset for reading.

    Args:
        directory: the directory of the dataset.
        split: `train` or `val` for the documents of one split; "" for all.
        tokenizer: the tokenizer for `Dataset.text`, if it has moved since the run.

    Returns:
        The dataset; nothing but its manifest has been read.

    Raises:
        StateError: a run is writing in the directory, or one was stopped and must be continued.
        UsageError: there is no dataset.
        VerifyError: its manifest is damaged.

    Example:
        >>> dataset = tokmill.open("out", split="val")
    """
    with keyword_errors():
        return open_dataset(directory, split=split, tokenizer=tokenizer)


def verify(directory: str | Path, *, tokenizer: str | Path = "") -> Verification:
    """Check every file of a dataset against its manifest, as `tokmill verify` does.

    Args:
        directory: the directory of the dataset.
        tokenizer: the tokenizer, if it has moved since the run.

    Returns:
        What was looked at: files, bytes, shards, documents and tokens.

    Raises:
        VerifyError: something is not as the manifest says; `problems` lists all that was found.
        TokmillError: there is no finished dataset.

    Example:
        >>> tokmill.verify("out").n_documents
    """
    with keyword_errors():
        path = checked_path(directory, "directory")
        verification = verify_dataset(path, str(tokenizer or ""))
        verification.check(path)
        return verification


def receivers(
    progress: bool | ProgressCall | None,
) -> tuple[ProgressCall | None, Bar | NotebookBar | None]:
    """Return the function that gets the progress, and the bar; raises `UsageError`."""
    from tokmill.api.bar import make_bar

    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise UsageError(f"progress: expected a function, True or False, found {progress!r}")
    call = progress if callable(progress) else None
    return call, None if call or progress is False else make_bar()


def _run(config: Config, overwrite: bool, progress: bool | ProgressCall | None) -> Dataset:
    """Make a dataset, with a bar or a callback, and open it."""
    if not isinstance(overwrite, bool):
        raise UsageError(f"overwrite: expected True or False, found {overwrite!r}")
    call, bar = receivers(progress)
    manifest = make_observed(
        config, overwrite=overwrite, note=_LOG.info, warn=_LOG.warning, bar=bar, call=call
    )
    directory = Path(config.output.dir)
    return Dataset(directory, manifest, split="", tokenizer=config.tokenizer.path)
