"""datatrove's own pipeline: JsonlReader, DocumentTokenizer, files; a task and a worker per core.

The reader gives whole files to its tasks, so that the input comes in as many files as cores. Left
out, in its favour: shuffling, merging, imports, and what tokmill does besides (hashes, fsync).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from bench.corpus import SEPARATOR, TERMINATOR, n_text_bytes, read_text
from bench.libraries import described, is_sentencepiece, tokenizer_file
from bench.parity import render
from bench.values import NotMeasured, Task, Timing


def run(task: Task) -> Timing:
    """Time the executor, from its start to its last file."""
    try:
        from datatrove.executor import LocalPipelineExecutor
        from datatrove.pipeline.readers import JsonlReader
        from datatrove.pipeline.tokens import DocumentTokenizer
        from loguru import logger
    except ImportError as error:
        raise NotMeasured(f"not installed: {error.name}") from None
    logger.remove()
    logger.add(sys.stderr, level="ERROR")
    work = Path(task.work)
    tokenizer = described(task.tokenizer, task.eos)
    executor = LocalPipelineExecutor(
        pipeline=[
            JsonlReader(str(Path(task.inputs[0]).parent), adapter=adapter),
            DocumentTokenizer(
                output_folder=str(work / "tokens"),
                tokenizer_name_or_path=str(_json_file(task, tokenizer.json)),
                eos_token=tokenizer.eos.content,
                shuffle_documents=False,
            ),
        ],
        tasks=task.cores,
        workers=task.cores,
        logging_dir=str(work / "logs"),
    )
    start = time.perf_counter()
    executor.run()
    seconds = time.perf_counter() - start
    text = read_text(Path(task.text))
    return Timing(seconds, seconds, n_text_bytes(text), _tokens(work / "tokens"), len(text))


def adapter(_reader: Any, data: dict[str, Any], path: str, id_in_file: int | str) -> dict[str, Any]:
    """Render a record for datatrove's reader."""
    return {"text": render(data, SEPARATOR, TERMINATOR), "id": f"{path}/{id_in_file}"}


def _json_file(task: Task, tokenizer_json: str) -> Path:
    """Return a tokenizer.json, for a SentencePiece model an equal one that tokmill wrote."""
    tokenizer = Path(task.tokenizer)
    if not is_sentencepiece(tokenizer):
        return tokenizer_file(tokenizer)
    if not tokenizer_json:
        raise NotMeasured("no tokenizer.json says the same as this SentencePiece model")
    path = Path(task.work) / "tokenizer.json"
    path.write_text(tokenizer_json, encoding="utf-8")
    return path


def _tokens(directory: Path) -> int:
    """Add up what its `.metadata` files say: tokenizer, tokens, tokens for people."""
    return sum(int(path.read_text().splitlines()[1]) for path in directory.glob("*.metadata"))
