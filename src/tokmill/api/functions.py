"""The Python face of tokmill: the functions behind `tokmill.pretrain`, `sft`, `plan` and others.

Settings are keyword arguments with the names of the options of the command line, and all errors are
`TokmillError`. Nothing is printed on standard output. Notes and warnings about a run go to the
logger `tokmill`, at levels INFO and WARNING; in a terminal or notebook notes are shown too, unless
`progress` is False or a function. Every function may be called from any thread, from a
notebook, from a script without a `__main__` guard and from a worker of a process pool; nothing in
the process is left changed by a call.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from tokmill.api.dataset import Dataset
from tokmill.api.dataset import open as open_dataset
from tokmill.api.in_memory import GivenInputs, placeholder, spilled, spilled_for_now
from tokmill.api.jobs import (
    Inputs,
    checked_path,
    given_text,
    place_of,
    run_config,
    verify_dataset,
)
from tokmill.api.jobs import pack as packed
from tokmill.api.progress import Progress, RunObserver, make_bar, make_notes
from tokmill.errors import UsageError
from tokmill.mixing.settings import MixSettings
from tokmill.settings.names import by_keyword, keyword_errors, name_keywords, settings_of
from tokmill.settings.rows import Rows
from tokmill.settings.schema import PRETRAIN_SECTIONS, SFT_SECTIONS
from tokmill.settings.signature import with_settings
from tokmill.tokenizer.objects import tokenizer_path

if TYPE_CHECKING:
    from tokmill.api.forecast import RunForecast
    from tokmill.dataset.verify import Verification
    from tokmill.inspect.statistics import Statistics
    from tokmill.run.tasks import ArrayStatus
    from tokmill.settings.arguments import (
        MixArguments,
        PlanArguments,
        PretrainArguments,
        SftArguments,
    )
    from tokmill.tokenizer.objects import TokenizerObject

Paths = str | Path | Sequence[str | Path]
ProgressCall = Callable[[Progress], object]

_LOG = logging.getLogger("tokmill")


@keyword_errors()
@with_settings(by_keyword(PRETRAIN_SECTIONS).values())
def pretrain(
    inputs: Inputs = (),
    *,
    tokenizer: str | Path | TokenizerObject | None = None,
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
            settings of reading; sources come behind other inputs. Or rows in memory: dicts, or
            texts that an iterator gives; a table of Arrow, pandas or polars; a dataset of
            `datasets`; a function that returns one of these.
        tokenizer: tokenizer.json, a directory, a SentencePiece .model, a tiktoken file or a name on
            the Hub; or an object of `tokenizers` or `transformers`.
        output: the directory to write the dataset to.
        config: a TOML file with settings, as `tokmill pretrain --config` takes it.
        overwrite: replace the dataset or export in `output`.
        progress: a function that gets a `Progress` at most ten times a second, and once at the end;
            what it raises stops the run. None and True show notes and a bar in a terminal or
            notebook, and nothing elsewhere; False shows nothing.
        **settings: the settings listed below, such as `val_fraction=0.001`, `workers=8` or
            `part_bytes="256MiB"`.

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
    arguments = {"tokenizer": tokenizer, "output": output, **settings}
    return _run("pretrain", inputs, config, arguments, overwrite, progress)


@keyword_errors()
@with_settings(by_keyword(SFT_SECTIONS).values())
def sft(
    inputs: Inputs = (),
    *,
    tokenizer: str | Path | TokenizerObject | None = None,
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
        overwrite: replace the dataset or export in `output`.
        progress: see `pretrain`.
        **settings: the settings listed below, such as `packing=4096`, `max_tokens=4096` or
            `roles=["assistant"]`.

    Returns:
        The dataset, open for reading; `dataset.mask(i)` are the masks.

    Raises:
        TokmillError: see `pretrain`.
        KeyboardInterrupt: its message says what is kept.

    Example:
        >>> dataset = tokmill.sft("chats.jsonl", tokenizer="qwen2.5/", output="out", packing=4096)
        >>> dataset[0][dataset.mask(0) == 1]
    """
    arguments = {"tokenizer": tokenizer, "output": output, **settings}
    return _run("sft", inputs, config, arguments, overwrite, progress)


@keyword_errors()
@with_settings(settings_of("mix", MixSettings).values())
def mix(
    inputs: Sequence[str | Path] | Mapping[str, Any] = (),
    *,
    output: str | Path | None = None,
    config: str | Path | None = None,
    overwrite: bool = False,
    progress: bool | ProgressCall | None = None,
    **settings: Unpack[MixArguments],
) -> Dataset:
    """Write a dataset of the documents of finished datasets, and return it.

    Without settings the datasets are merged: their files are linked, and take no space. The same
    call continues one that was stopped.

    Args:
        inputs: directories, or a mapping of them to shares of the tokens (`{"wiki": 0.4}`) or to
            epochs (`{"wiki": "2.5x"}`); `"DIR#SOURCE"` is one source of a dataset.
        output: the directory to write the dataset to.
        config: a TOML file with a table `[mix]`; arguments win.
        overwrite: replace the dataset or export in `output`.
        progress: see `pretrain`; bytes are those of tokens, once for each pass over them.
        **settings: the settings listed below, such as `tokens="60B"`, `shuffle=7` or
            `dedup=True`.

    Returns:
        The dataset, open for reading; `dataset.manifest["mix"]` says what each source gave.

    Raises:
        TokmillError: a setting or a dataset is at fault, or files cannot be written.
        KeyboardInterrupt: its message says what is kept.

    Example:
        >>> mixed = tokmill.mix({"out": "2.5x"}, shuffle=7, dedup=True, output="mixed")
        >>> mixed.manifest["mix"]["sources"]
    """
    from tokmill.mixing.make import mix as make
    from tokmill.mixing.settings import mix_settings

    chosen = mix_settings(inputs, config, output=output, **settings)
    with _observer(progress) as observer:
        make(chosen, observer, overwrite=overwrite)
    return open_dataset(chosen.output)


@keyword_errors()
@with_settings(by_keyword((*PRETRAIN_SECTIONS, "sft")).values())
def plan(
    inputs: Inputs = (),
    *,
    recipe: Literal["pretrain", "sft"] | None = None,
    tokenizer: str | Path | TokenizerObject | None = None,
    output: str | Path | None = None,
    config: str | Path | None = None,
    progress: bool | None = None,
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
        progress: None and True show notes in a terminal or notebook, False shows none.
        **settings: the settings of the run.

    Returns:
        Tokens, documents, disk, time and memory, each estimate with its lower and upper value.
        `problem` is the error with which the run would stop, such as a full disk; None: none.

    Raises:
        TokmillError: the run could not start, or nothing can be predicted.

    Example:
        >>> forecast = tokmill.plan("corpus/*.jsonl", tokenizer="gpt2/")
        >>> forecast.tokens, forecast.disk_bytes, forecast.time_s, forecast.memory_bytes
    """
    from tokmill.api.forecast import forecast

    arguments = {"tokenizer": tokenizer, "output": output, **settings}
    note = _notes(progress)
    given = GivenInputs(inputs, arguments.get("source"))
    with (
        tokenizer_path(tokenizer) as arguments["tokenizer"],
        spilled_for_now(given) as (files, arguments["source"]),
    ):
        chosen = run_config(recipe, files, config, arguments, note)
        predicted = forecast(chosen, _LOG.warning, note)
    if predicted.problem is not None:
        name_keywords(predicted.problem)
        _LOG.warning("a run with these settings would stop: %s", predicted.problem)
    return predicted


@keyword_errors()
def verify(directory: str | Path, *, tokenizer: str | Path | None = None) -> Verification:
    """Check every file of a dataset against its manifest, as `tokmill verify` does.

    Args:
        directory: the directory of the dataset.
        tokenizer: the tokenizer, if not the one that the dataset keeps.

    Returns:
        What was looked at: files, bytes, shards, documents and tokens.

    Raises:
        VerifyError: something is not as the manifest says; `problems` lists all that was found.
        TokmillError: there is no finished dataset.

    Example:
        >>> tokmill.verify("out").n_documents
    """
    path = checked_path(directory, "directory")
    moved = "" if tokenizer is None else str(checked_path(tokenizer, "tokenizer"))
    verification = verify_dataset(path, moved)
    verification.check(path)
    return verification


@keyword_errors()
def stats(
    directory: str | Path, *, tokenizer: str | Path | None = None, by: str | None = None
) -> Statistics:
    """Return what a dataset holds, from all of its tokens, as `tokmill stats` shows it.

    Lengths of documents, shares of sources, frequent and unused ids with their texts, equal
    documents, and what was left out. Memory does not grow with the dataset: hashes of documents,
    32 bytes for each, are in the temporary directory (`TMPDIR`) meanwhile.

    Args:
        directory: the directory of the dataset.
        tokenizer: the tokenizer, if not the one that the dataset keeps.
        by: a field that was kept beside the documents; `by` of the result counts by its values.

    Raises:
        TokmillError: there is no finished dataset, or a file is missing or damaged; or the field
            was not kept.

    Example:
        >>> statistics = tokmill.stats("out")
        >>> statistics.lengths.percentile(99), statistics.duplicates.documents
    """
    return open_dataset(directory, tokenizer=tokenizer).stats(by=by)


@keyword_errors()
@with_settings(by_keyword((*PRETRAIN_SECTIONS, "sft")).values())
def write_plan(
    inputs: Inputs = (),
    *,
    recipe: Literal["pretrain", "sft"] | None = None,
    tokenizer: str | Path | TokenizerObject | None = None,
    output: str | Path | None = None,
    config: str | Path | None = None,
    overwrite: bool = False,
    **settings: Unpack[PlanArguments],
) -> ArrayStatus:
    """Begin a run: write its plan into the output, for an array of tasks.

    Args:
        inputs: see `tokmill.plan`, as are `recipe`, `tokenizer`, `config` and `settings`.
        recipe: which run.
        tokenizer: see `tokmill.pretrain`.
        output: the directory of the dataset, which every task must see, or a place in a store.
        config: a TOML file with settings.
        overwrite: replace the dataset or export in `output`.
        **settings: the settings of the run.

    Returns:
        The state of the parts: all are missing in a new run, some are done in a continued one.

    Raises:
        TokmillError: see `tokmill.pretrain`.

    Example:
        >>> tokmill.write_plan("corpus/*.jsonl", tokenizer="gpt2/", output="out").parts
    """
    from tokmill.run.tasks import array_status, plan_array

    arguments = {"tokenizer": tokenizer, "output": output, **settings}
    if GivenInputs(inputs, arguments.get("source")).has_rows:
        raise UsageError(
            "inputs: tasks cannot read rows in memory: write them to a file that all machines see"
        )
    with (
        tokenizer_path(tokenizer) as arguments["tokenizer"],
        _observer(progress=False) as observer,
    ):
        chosen = run_config(recipe, inputs, config, arguments)
        plan_array(chosen, observer, overwrite=overwrite)
    return array_status(chosen.output.dir)


@keyword_errors()
def run_part(
    output: str | Path,
    index: int,
    of: int,
    *,
    allow_code: Sequence[str] = (),
    progress: bool | ProgressCall | None = None,
) -> tuple[int, ...]:
    """Work on the share of one task of an array: the parts `index`, `index + of`, and so on.

    The same call continues a task that was stopped. It may run at the same time as those of other
    tasks, here or on other machines.

    Args:
        output: the output of `write_plan`: its plan says all that a task needs.
        index: which task, from 0 to `of` - 1.
        of: how many tasks there are.
        allow_code: dotted paths, such as `["my_render:render"]`, that may be imported if the plan
            names them: others stop the task.
        progress: see `tokmill.pretrain`.

    Returns:
        The numbers of its parts, all of them done.

    Raises:
        UsageError: there is no plan in `output`, as this machine sees it; or it names other code.
        StateError: this machine has other versions, or a whole run writes there.
        TokmillError: see `tokmill.pretrain`.

    Example:
        >>> tokmill.run_part("out", int(os.environ["SLURM_ARRAY_TASK_ID"]), 8)
    """
    from tokmill.run.tasks import run_share

    for name, value in (("index", index), ("of", of)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise UsageError(f"{name}: expected a whole number, found {value!r}")
    with _observer(progress) as observer:
        records = run_share(place_of(output), index, of, observer, _names(allow_code))
    return tuple(record.part for record in records)


@keyword_errors()
def status(output: str | Path) -> ArrayStatus:
    """Return which parts of the run or mix in `output` are done, running, failed or missing.

    Raises:
        TokmillError: there is no plan in `output`, as this machine sees it.

    Example:
        >>> tokmill.status("out").missing
    """
    from tokmill.run.tasks import array_status

    return array_status(place_of(output))


@keyword_errors()
def finish(output: str | Path, *, allow_code: Sequence[str] = ()) -> Dataset:
    """Finish the run in `output` once its parts are done, and return the dataset.

    Sums up the parts, packs samples if `packing` is set (in this process: 45 bytes of memory for
    each sample), and writes the manifest.

    Args:
        output: see `run_part`.
        allow_code: see `run_part`.

    Raises:
        UsageError: there is no plan in `output`, or it names code that is not allowed.
        StateError: parts are missing, or tasks are running.
        TokmillError: see `tokmill.pretrain`.

    Example:
        >>> len(tokmill.finish("out"))
    """
    from tokmill.run.tasks import finish_array

    place = place_of(output)
    with _observer(progress=False) as observer:
        manifest = finish_array(place, observer, _names(allow_code))
    return Dataset(Path(place), manifest, split="", tokenizer="")


@keyword_errors()
def pack(
    directory: str | Path,
    length: int | str,
    *,
    last: Literal["fragment", "drop"] = "fragment",
    split: Literal["train", "val"] | None = None,
    max_samples_per_row: int | None = None,
) -> Dataset:
    """Pack the documents of a dataset for pretraining into rows, and return the dataset.

    Documents that are longer than a row are cut into full rows; short ones and last pieces are
    packed together. Only an index is written, which replaces an earlier one.

    Args:
        directory: of a finished dataset of text. Chats are packed by `tokmill.sft(packing=4096)`.
        length: tokens of a row, such as 4096 or "32k".
        last: what becomes of the last piece of a document that is cut. `fragment`: it is packed
            like a document. `drop`: it is left out, and counted.
        split: pack this one, and leave the packs of the other as they are; None: all splits.
        max_samples_per_row: documents and pieces in a row, at most, so that `cu_seqlens` can have a
            fixed length; None: any number.

    Returns:
        The dataset, open for reading; `manifest["packs"]` has rows, fill, padding, tokens left out.

    Raises:
        TokmillError: there is no such dataset, or the index cannot be written.

    Example:
        >>> dataset = tokmill.pack("out", length=4096)
        >>> dataset.manifest["packs"]["train"]["fill"], tokmill.loader.packs(dataset, shift=True)
    """
    if split is not None and split not in ("train", "val"):
        raise UsageError(f"split: expected train, val or None, found {split!r}")
    manifest = packed(directory, length, last, split or "", max_samples_per_row or 0)
    return Dataset(Path(directory), manifest, split="", tokenizer="")


@keyword_errors()
def import_dataset(
    sources: Paths | Rows,
    *,
    trainer: str,
    output: str | Path,
    tokenizer: str | Path | TokenizerObject,
    val: Paths | None = None,
    eos_token: str | None = None,
    add_eos: bool = False,
    dtype: Literal["uint16", "uint32"] | None = None,
    ids: str | Sequence[str] | None = None,
    labels: str | None = None,
    mask: str | Sequence[str] | None = None,
    weights: str | None = None,
    alignment: Literal["own", "next"] | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    on_unread: Literal["error", "skip"] = "error",
    max_reject_fraction: float = 0.01,
    packing: int | None = None,
    max_samples_per_row: int | None = None,
    workers: int | None = None,
    executor: str = "processes",
    overwrite: bool = False,
    progress: bool | ProgressCall | None = None,
) -> Dataset:
    """Read the tokens of another trainer, or rows of ids, into a dataset, and return it.

    The sources are copied, not changed. The same call continues one that was stopped. Notes
    on what was lost or changed go to the logger `tokmill` as warnings.

    Args:
        sources: files, prefixes of Megatron, or directories: one, or a sequence whose order is the
            order of the dataset. Or rows of ids in memory, as `pretrain` takes rows.
        trainer: whose layout it is: `megatron`, `datatrove`, `nanogpt`, `olmo-core`, `torchtitan`,
            `llm.c`, `litdata`, or a trainer that reads one of these; `datasets`, `parquet` and
            `jsonl` are rows of ids, with labels, masks or weights. Of rows in memory, any of these.
        output: the directory of the dataset.
        tokenizer: which made the tokens.
        val: sources of the val split.
        eos_token: the token that ends a document, if the tokenizer's files do not tell.
        add_eos: add eos to documents that do not end with it; else they are an error.
        dtype: of the ids of nanoGPT and OLMo-core, by default uint16; the others record theirs.
        ids: of rows, the column of ids, or that of prompts and that of completions; by default
            found by name.
        labels: of rows, the column of labels, or `none`.
        mask: of rows, columns of 0 and 1, 1 = trained, or `none`.
        weights: of rows, the column of weights, or `none`.
        alignment: of rows, whether labels and masks stand at their `own` token or at the one
            before it (`next`); by default found by comparing labels with ids.
        on_error: of rows, `fail` at the first broken one, or `skip` and count them.
        on_unread: of rows, whether a file that breaks off is an error.
        max_reject_fraction: of rows, the share that may be broken.
        packing: of rows that are chats, pack samples into rows of this many tokens; longer samples
            are left out.
        max_samples_per_row: with `packing`, the samples of a row, at most.
        workers: worker processes; None: by cores and input.
        executor: `processes` of this machine, or tasks of Ray: `ray`, `ray:HOST:PORT`.
        overwrite: replace the dataset or export at `output`.
        progress: see `pretrain`; bytes are those of tokens.

    Returns:
        The dataset, open for reading.

    Raises:
        TokmillError: a source is damaged, an id is not of the tokenizer, a document lacks eos, or
            files cannot be written.

    Example:
        >>> tokmill.import_dataset("old", trainer="megatron", output="new", tokenizer="gpt2/")
    """
    from tokmill.recipes.row_columns import GivenColumns
    from tokmill.run.finish import run
    from tokmill.run.imports import ImportSettings, import_notes, row_settings
    from tokmill.run.rows import ROW_FORMATS
    from tokmill.settings.schema import RunSettings, TokenizerSettings
    from tokmill.tables import IMPORTS, import_name

    trainer, given_name = import_name(trainer), trainer
    if trainer not in IMPORTS:
        raise UsageError(f"trainer: expected one of {', '.join(IMPORTS)}; found {given_name!r}")
    if workers == 0:
        raise UsageError("workers: expected a number from 1 or None, found 0")
    given = GivenInputs(sources)
    if given.has_rows and trainer not in ROW_FORMATS:
        raise UsageError(f"sources: rows in memory hold ids: trainer is {' or '.join(ROW_FORMATS)}")
    place = place_of(output)
    with (
        tokenizer_path(tokenizer) as path,
        _observer(progress) as observer,
        spilled(given, place, observer.noted, observer.warned) as (files, _),
    ):
        named = TokenizerSettings(
            str(checked_path(path, "tokenizer")), given_text(eos_token, "eos_token")
        )
        paths = _paths(files, "sources")
        if given.has_rows:
            trainer = "parquet" if paths[0].suffix == ".parquet" else "jsonl"
        settings = ImportSettings(
            paths,
            trainer,
            place,
            named,
            [] if val is None else _paths(val, "val"),
            add_eos,
            given_text(dtype, "dtype"),
            RunSettings(workers=workers or 0, executor=executor),
            GivenColumns(
                _columns(ids),
                given_text(labels, "labels"),
                _columns(mask),
                given_text(weights, "weights"),
                given_text(alignment, "alignment"),
            ),
            **row_settings(
                packing,
                max_samples_per_row,
                on_error=on_error,
                on_unread=on_unread,
                max_reject_fraction=max_reject_fraction,
            ),
        )
        manifest = run(settings, observer, overwrite=overwrite)
    for note in import_notes(settings, manifest):
        _LOG.warning(note)
    return Dataset(Path(settings.output), manifest, split="", tokenizer="")


def _run(
    recipe: Literal["pretrain", "sft"],
    inputs: Inputs,
    config_file: str | Path | None,
    settings: Mapping[str, Any],
    overwrite: bool,
    progress: bool | ProgressCall | None,
) -> Dataset:
    """Make a dataset, or continue one, and open it."""
    from tokmill.inspect.summary import noticed_rows
    from tokmill.run.finish import run

    if not isinstance(overwrite, bool):
        raise UsageError(f"overwrite: expected True or False, found {overwrite!r}")
    arguments = dict(settings)
    given = GivenInputs(inputs, arguments.get("source"))
    with (
        tokenizer_path(arguments["tokenizer"]) as arguments["tokenizer"],
        _observer(progress) as observer,
    ):
        output = _checked_output(recipe, given, config_file, arguments) if given.has_rows else ""
        written = spilled(given, output, observer.noted, observer.warned)
        with written as (files, arguments["source"]):
            config = run_config(recipe, files, config_file, arguments)
            manifest = run(config, observer, overwrite=overwrite)
        for label, text in noticed_rows(manifest, config.output.dir):
            observer.noted(f"{label}: {text}")
    return Dataset(Path(config.output.dir), manifest, split="", tokenizer="")


def _checked_output(
    recipe: Literal["pretrain", "sft"],
    given: GivenInputs,
    config_file: str | Path | None,
    settings: Mapping[str, Any],
) -> str:
    """Return the output of a run with rows, whose other settings are checked before a row is read.

    An iterator gives its rows once.
    """
    from tokmill.run.begin import output_place
    from tokmill.run.prepare import tokenizer_of_run

    files, sources = given.with_files(placeholder)
    config = run_config(recipe, files, config_file, {**settings, "source": sources})
    tokenizer_of_run(config)
    output_place(config.output.dir).close()
    return config.output.dir


def _observer(progress: bool | ProgressCall | None) -> RunObserver:
    """Return what logs a run, and shows or calls back its progress; raises `UsageError`."""
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise UsageError(f"progress: expected a function, True or False, found {progress!r}")
    call = progress if callable(progress) else None
    bar = None if call or progress is False else make_bar()
    return RunObserver(note=_notes(progress), warn=_LOG.warning, bar=bar, call=call)


def _notes(progress: bool | ProgressCall | None) -> Callable[[str], None]:
    """Return what notes of a run go to: the log, and whoever watches a terminal or notebook.

    A program that reads the log's notes itself does not see them twice.
    """
    show = None
    if progress in (None, True) and not _LOG.isEnabledFor(logging.INFO):
        show = make_notes()
    if show is None:
        return _LOG.info
    show_line = show

    def note(text: str) -> None:
        _LOG.info(text)
        show_line(text)

    return note


def _names(allow_code: Sequence[str]) -> tuple[str, ...]:
    """Return the names of `allow_code`; raises `UsageError` where it is no list of names."""
    names = () if isinstance(allow_code, str) else tuple(allow_code)
    if isinstance(allow_code, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"allow_code: expected a list of dotted paths, found {allow_code!r}")
    return names


def _columns(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of an argument that takes one or several, or None for none."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def _paths(paths: Paths, name: str) -> list[Path]:
    """Return the paths of an argument that takes one or several."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    return [checked_path(path, name) for path in paths]
