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

from bench.corpus import load_reference, n_text_bytes, read_text, render

if TYPE_CHECKING:
    from tokmill.tokenizer.tokenizer import Tokenizer

CALL_DOCUMENTS = 1024
"""Documents a call of the reference, as one feeds the library by hand."""
CALL_BYTES = 8 << 20


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
    return {"text": render(data), "id": f"{path}/{id_in_file}"}


def run_engine(task: Task) -> Timing:
    """Time a fast engine alone, as tokmill loads it, over ready text in memory: a ceiling.

    Settings: `engine`; `mode`: `inside` (the engine's own threads share each call) or `beside`
    (calls on one thread a core).
    """
    from tokmill.engines.engine import load_engine
    from tokmill.errors import TokmillError

    n_inside, n_beside = (task.cores, 1) if task.settings["mode"] == "inside" else (1, task.cores)
    name, text = task.settings["engine"], read_text(Path(task.text))
    try:
        engine = load_engine(name, described(task), control_in_text="text", n_threads=n_inside)
    except TokmillError as error:
        raise NotMeasured(str(error)) from None
    size = n_text_bytes(text)
    n_calls = max(1, size // CALL_BYTES)
    cuts = [len(text) * i // n_calls for i in range(n_calls + 1)]
    calls = [text.slice(a, b - a) for a, b in itertools.pairwise(cuts) if b > a]
    with ThreadPoolExecutor(n_beside) as pool:
        start = time.perf_counter()
        tokens = sum(len(batch.ids) for batch in pool.map(engine.encode, calls))
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
