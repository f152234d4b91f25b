"""One timing of tokmill or of a peer, in a process of its own: `python -m bench.peers TASK RESULT`.

Cold caches and fresh memory for everybody. TASK is JSON; RESULT is a timing, or why there is none.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.corpus import SEPARATOR, TERMINATOR, n_text_bytes, read_text
from bench.parity import load_reference, render

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer

CALL_DOCUMENTS = 1024
"""Documents a call of the reference, as one feeds the library by hand."""


class NotMeasured(Exception):
    """A peer cannot run here: not installed, or it refuses the tokenizer. Never a failure."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is told.

    `tokenizer`: file or directory; `eos`: its token, '' for the configured one. `path`, `text`,
    `split`: see `Corpus`. `work`: an empty directory. `cache`: where tokmill remembers its choice
    of engine. `settings`: those of the peer.
    """

    peer: str
    tokenizer: str
    eos: str
    path: str
    text: str
    split: str
    work: str
    cache: str
    cores: int
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timing:
    """What a process found.

    `seconds`: for tokmill of the whole command, for its peers of their work alone, without imports
    and loading. `start_s`: what tokmill took until the first text could be encoded. `text_bytes`:
    of rendered UTF-8. `tokens`: one eos a document included.
    """

    seconds: float
    text_bytes: int
    tokens: int
    start_s: float = 0.0

    @property
    def mb_per_s(self) -> float:
        """Return megabytes of rendered text per second."""
        return self.text_bytes / 1e6 / self.seconds

    @property
    def own_mb_per_s(self) -> float:
        """Return the same without start-up."""
        return self.text_bytes / 1e6 / (self.seconds - self.start_s)


def run_tokmill(task: Task) -> Timing:
    """Time `tokmill pretrain` as a user runs it: start, plan, read, parse, encode, write, fsync.

    Settings: `arguments`, further options; `checkout`, another version's source tree.
    """
    output = Path(task.work) / "dataset"
    command = [sys.executable, "-m", "tokmill", "pretrain", task.path, "-t", task.tokenizer]
    command += ["-o", str(output), "-q", "--renderer", "encyclopedia", *task.settings["arguments"]]
    command += ["--eos-token", task.eos] if task.eos else []
    environment = os.environ | {"TOKMILL_CACHE_DIR": task.cache}
    if checkout := task.settings.get("checkout"):
        environment["PYTHONPATH"] = f"{checkout}/src"
    start = time.perf_counter()
    child = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    seconds = time.perf_counter() - start
    if child.returncode:
        raise NotMeasured((child.stderr.strip().splitlines() or ["no message"])[-1][:200])
    manifest = json.loads((output / "manifest.json").read_bytes())
    run, totals = manifest["run"], manifest["totals"]
    start_s = seconds - (run["wall_s"] - run["start_s"])
    return Timing(seconds, totals["text_bytes"], totals["tokens"], start_s)


def run_reference(task: Task) -> Timing:
    """Time the reference alone, over ready text in memory, with all cores."""
    column = read_text(Path(task.text))
    texts, encode = column.to_pylist(), load_reference(Path(task.tokenizer))
    start, tokens = time.perf_counter(), 0
    for i in range(0, len(texts), CALL_DOCUMENTS):
        tokens += sum(map(len, encode(texts[i : i + CALL_DOCUMENTS])))
    seconds = time.perf_counter() - start
    return Timing(seconds, n_text_bytes(column), tokens + len(texts))


def run_datatrove(task: Task) -> Timing:
    """Time datatrove's own pipeline: JsonlReader, DocumentTokenizer, a task and a worker per core.

    Left out, in its favour: shuffling, merging, imports, and what tokmill does besides.
    """
    try:
        from datatrove.executor import LocalPipelineExecutor
        from datatrove.pipeline.readers import JsonlReader
        from datatrove.pipeline.tokens import DocumentTokenizer
        from loguru import logger
    except ImportError as error:
        raise NotMeasured(f"not installed: {error.name}") from None
    logger.remove()
    work = Path(task.work)
    tokenizer = described(task)
    (work / "tokenizer.json").write_text(tokenizer.json, encoding="utf-8")
    reader = JsonlReader(task.split, adapter=adapter)
    writer = DocumentTokenizer(
        output_folder=str(work / "tokens"),
        tokenizer_name_or_path=str(work / "tokenizer.json"),
        eos_token=tokenizer.eos.content,
        shuffle_documents=False,
    )
    executor = LocalPipelineExecutor(
        pipeline=[reader, writer],
        tasks=task.cores,
        workers=task.cores,
        logging_dir=str(work / "logs"),
    )
    start = time.perf_counter()
    executor.run()
    seconds = time.perf_counter() - start
    counts = (path.read_text().splitlines()[1] for path in (work / "tokens").glob("*.metadata"))
    return Timing(seconds, n_text_bytes(read_text(Path(task.text))), sum(map(int, counts)))


def adapter(_reader: Any, data: dict[str, Any], path: str, id_in_file: int | str) -> dict[str, Any]:
    """Render a record for datatrove's reader."""
    return {"text": render(data, SEPARATOR, TERMINATOR), "id": f"{path}/{id_in_file}"}


def run_engine(task: Task) -> Timing:
    """Time a fast engine alone, over ready text in memory: the ceiling of what uses it.

    Settings: `engine`; `mode`: `serial` (one thread), `parallel` (its own threads) or `threads`
    (calls on one thread a core); `call_bytes`: text a call, 0 for all in one call.
    """
    mode, cores = task.settings["mode"], task.cores
    call_bytes = task.settings["call_bytes"]
    # A parallel call of so little gigatoken encodes on the thread that calls, with learnt words.
    parallel = mode == "parallel" or 0 < call_bytes <= 1 << 20
    os.environ["RAYON_NUM_THREADS"] = str(cores if parallel else 1)
    if mode == "threads":  # fastokens has one thread for each core besides, unless told otherwise
        os.environ["FASTOKENS_BPE_THREADS"] = "1"
    text = read_text(Path(task.text))
    load = {"gigatoken": _gigatoken, "fastokens": _fastokens}[task.settings["engine"]]
    try:
        feed, encode = load(described(task).fast_json, parallel=parallel)
    except ImportError:
        raise NotMeasured("not installed") from None
    except (ValueError, RuntimeError, KeyError, TypeError, NotImplementedError) as error:
        raise NotMeasured(f"refuses the tokenizer: {str(error).splitlines()[0][:120]}") from None
    size = n_text_bytes(text)
    n_calls = max(1, size // call_bytes) if call_bytes else 1
    cuts = [len(text) * i // n_calls for i in range(n_calls + 1)]
    calls = [feed(text.slice(a, b - a)) for a, b in itertools.pairwise(cuts) if b > a]
    with ThreadPoolExecutor(cores if mode == "threads" else 1) as pool:
        start = time.perf_counter()
        tokens = sum(pool.map(encode, calls))
        seconds = time.perf_counter() - start
    return Timing(seconds, size, tokens + len(text))


def described(task: Task) -> Tokenizer:
    """Return tokmill's description of a tokenizer: its eos, and the JSON that engines load."""
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(TokenizerSettings(path=task.tokenizer, eos_token=task.eos))
    if not tokenizer.json:
        raise NotMeasured("no tokenizer.json says the same as this SentencePiece model")
    return tokenizer


Loaded = tuple[Callable[["pa.LargeStringArray"], Any], Callable[[Any], int]]
"""What makes an engine's input of a column, and what encodes that and counts its tokens."""


def _gigatoken(tokenizer_json: str, *, parallel: bool) -> Loaded:
    import awkward as ak
    import numpy as np
    from gigatoken.gigatoken_rs import load_hf_json

    from tokmill.tokenizer.tokenizer_json import without_special_tokens

    backend = load_hf_json(without_special_tokens(tokenizer_json))

    def feed(text: pa.LargeStringArray) -> Any:
        offsets = np.frombuffer(text.buffers()[1], np.int64)[text.offset :][: len(text) + 1]
        characters = ak.contents.NumpyArray(
            np.frombuffer(text.buffers()[2], np.uint8), parameters={"__array__": "char"}
        )
        index = ak.index.Index64(offsets)
        strings = {"__array__": "string"}
        return ak.Array(ak.contents.ListOffsetArray(index, characters, parameters=strings))

    return feed, lambda strings: len(
        backend.encode_batch(strings, parallel=parallel).layout.content.data
    )


def _fastokens(tokenizer_json: str, *, parallel: bool) -> Loaded:
    from fastokens import Tokenizer as Library

    library = Library.from_json_str(tokenizer_json)  # variables set its threads

    def encode(texts: list[str]) -> int:
        ids, _ = library.encode_batch_flat(texts, split_special_tokens=True)
        return len(ids) // 4

    return lambda text: text.to_pylist(), encode


PEERS: dict[str, Callable[[Task], Timing]] = {
    "tokmill": run_tokmill,
    "engine": run_engine,
    "reference": run_reference,
    "datatrove": run_datatrove,
}


def main(task_file: str, result_file: str) -> None:
    """Run the task and write its result."""
    task = Task(**json.loads(Path(task_file).read_bytes()))
    try:
        result = asdict(PEERS[task.peer](task))
    except NotMeasured as reason:
        result = {"refused": str(reason)}
    Path(result_file).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
