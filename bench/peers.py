"""One timing of tokmill or of a peer, in a process of its own: `python -m bench.peers TASK RESULT`.

Cold caches and fresh memory for everybody. TASK is JSON; RESULT is a timing, or why there is none.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from tokmill.tokenizer.tokenizer import Tokenizer

CALL_DOCUMENTS = 1024
"""Documents a call of the reference, as one feeds the library by hand."""
CALL_BYTES = 8 << 20
Encode = Callable[[list[str]], list[list[int]]]


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
    eos: str
    cores: int
    settings: dict[str, Any]
    tokenizer: str
    path: str
    text: str
    split: str
    work: str
    cache: str


@dataclass(frozen=True, slots=True)
class Timing:
    """What a process found.

    `seconds`: on the clock; `cpu_s`: of processors, of all its processes. For tokmill of the whole
    command, for its peers of their work alone, without imports and loading. `start_cpu_s`: what
    tokmill took of them for all but the text. `text_bytes`: of rendered UTF-8. `tokens`: one eos a
    document included.
    """

    seconds: float
    cpu_s: float
    text_bytes: int
    tokens: int
    start_cpu_s: float = 0.0

    @property
    def text_cpu_s(self) -> float:
        """Return processor seconds for the text alone."""
        return self.cpu_s - self.start_cpu_s

    @property
    def mb_per_cpu_s(self) -> float:
        """Return megabytes of rendered text per processor second, without start-up."""
        return self.text_bytes / 1e6 / self.text_cpu_s


class Stopwatch:
    """Measures a context: seconds on the clock, and of processors with ended child processes."""

    seconds = cpu_s = 0.0

    def __enter__(self) -> Self:
        self._start = time.perf_counter(), _cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start[0]
        self.cpu_s = _cpu_s() - self._start[1]


def _cpu_s() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def run_tokmill(task: Task) -> Timing:
    """Time `tokmill pretrain` as a user runs it: start, plan, read, parse, encode, write, fsync.

    Settings: `arguments`, further options; `checkout`, another version's source tree.
    """
    output = Path(task.work) / "dataset"
    command = [sys.executable, "-m", "tokmill", "pretrain", task.path, "-t", task.tokenizer]
    command += [
        "-o",
        str(output),
        "-q",
        "--renderer",
        "encyclopedia",
        *task.settings.get("arguments", ()),
    ]
    command += ["--eos-token", task.eos] if task.eos else []
    environment = os.environ | {"TOKMILL_CACHE_DIR": task.cache}
    if checkout := task.settings.get("checkout"):
        environment["PYTHONPATH"] = f"{checkout}/src"
    with Stopwatch() as watch:
        child = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False
        )
    if child.returncode:
        raise NotMeasured((child.stderr.strip().splitlines() or ["no message"])[-1][:200])
    manifest = json.loads((output / "manifest.json").read_bytes())
    run, totals = manifest["run"], manifest["totals"]
    stages = run["stage_cpu_s"]
    text_cpu_s = run["cpu_s"] - stages.get("prepare", 0.0) - stages.get("load engine", 0.0)
    start_cpu_s = watch.cpu_s - text_cpu_s
    return Timing(watch.seconds, watch.cpu_s, totals["text_bytes"], totals["tokens"], start_cpu_s)


def run_reference(task: Task) -> Timing:
    """Time the reference alone, over ready text in memory, with all cores."""
    column = read_text(Path(task.text))
    texts, encode = column.to_pylist(), load_reference(Path(task.tokenizer))
    tokens = 0
    with Stopwatch() as watch:
        for i in range(0, len(texts), CALL_DOCUMENTS):
            tokens += sum(map(len, encode(texts[i : i + CALL_DOCUMENTS])))
    return Timing(watch.seconds, watch.cpu_s, n_text_bytes(column), tokens + len(texts))


def run_datatrove(task: Task) -> Timing:
    """Time datatrove's own pipeline: JsonlReader, DocumentTokenizer, its tasks in this process.

    Of processes that it starts, the processor time is unknown.
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
        workers=1,
        logging_dir=str(work / "logs"),
    )
    with Stopwatch() as watch:
        executor.run()
    counts = (path.read_text().splitlines()[1] for path in (work / "tokens").glob("*.metadata"))
    size = n_text_bytes(read_text(Path(task.text)))
    return Timing(watch.seconds, watch.cpu_s, size, sum(map(int, counts)))


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
    with ThreadPoolExecutor(n_beside) as pool, Stopwatch() as watch:
        tokens = sum(len(batch.ids) for batch in pool.map(engine.encode, calls))
    return Timing(watch.seconds, watch.cpu_s, size, tokens + len(text))


def described(task: Task) -> Tokenizer:
    """Return tokmill's description of a tokenizer: its eos, and the JSON that engines load."""
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(TokenizerSettings(path=task.tokenizer, eos_token=task.eos))
    if not tokenizer.json:
        raise NotMeasured("no tokenizer.json says the same as this SentencePiece model")
    return tokenizer


# The files of a corpus: rendered and encoded without tokmill's code


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus of JSON Lines. No text is repeated.

    `text`: an Arrow file of the rendered documents, for peers that encode ready text. `split`: the
    same lines in a file for each core, for peers that give whole files to their processes.
    """

    name: str
    path: Path
    text: Path
    split: Path


def make_corpus(name: str, path: Path, directory: Path, cores: int) -> Corpus:
    """Render a corpus once, in plain Python, and cut its lines into files of about equal bytes."""
    corpus = Corpus(name, path, directory / "text.arrow", directory / "split")
    corpus.split.mkdir(parents=True)
    with path.open(encoding="utf-8", newline="\n") as lines:
        texts = [render(json.loads(line)) for line in lines]
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    with pa.OSFile(str(corpus.text), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    data, start = path.read_bytes(), 0
    for i in range(cores):
        stop = data.find(b"\n", max(start, len(data) * (i + 1) // cores - 1)) + 1 or len(data)
        (corpus.split / f"{i:04}.jsonl").write_bytes(data[start:stop])
        start = stop
    return corpus


def read_text(path: Path) -> pa.LargeStringArray:
    """Read rendered documents into memory, as one column."""
    with pa.OSFile(str(path)) as file:
        column = pa.ipc.open_file(file).read_all()["text"].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def n_text_bytes(text: pa.LargeStringArray) -> int:
    """Return the bytes of UTF-8 in a column of documents."""
    return int(pc.sum(pc.binary_length(text)).as_py() or 0)


def load_reference(path: Path) -> Encode:
    """Return the reference library's batch encoder for a tokenizer file or directory."""
    if path.is_dir():
        json_file, model_file = path / "tokenizer.json", path / "tokenizer.model"
        path = json_file if json_file.exists() else model_file
    if path.suffix == ".model":
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_file=str(path))
        return lambda texts: [list(ids) for ids in processor.encode(texts, out_type=int)]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return lambda texts: [
        e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    ]


def render(record: dict[str, Any]) -> str:
    """Render one record: by the encyclopedia formula, or its text."""
    if "text" in record:
        return str(record["text"] or "")
    text = f"{record.get('title') or ''}:{record.get('summary') or ''}"
    for section in record.get("sections") or []:
        section = section or {}
        text += f"{section.get('title') or ''}:{section.get('content') or ''}。"
    return text


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
