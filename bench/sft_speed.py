"""How many times faster than trl `tokmill sft` makes tokens and masks: a ratio, in turn.

    python -m bench.sft_speed TOKENIZER DATA... [--rounds N] [--tagged FILE]

DATA are sets of chats, `.jsonl` or `.json`, of any schema, such as Stanford's `alpaca_data.json`
and Baize's `quora_chat_data.json`; no record is taken twice. tokmill is the whole command: the
first run with a tokenizer, whose cache is empty, and a later one, when the comparisons of engines
with the reference are known. Of trl only the work on the data counts. Both get all cores. FILE is a
template with generation tags, which trl needs for its masks: by default trl's own for Qwen 2.5.
The built-in template is chatml with Qwen 2.5's system message.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import machine
from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.detect import detect_schema
from tokmill.chat.reading.schemas import read_conversation
from tokmill.engines.engine import FAST_ENGINES, is_installed
from tokmill.settings.sft import SftSettings

ROOT = Path(__file__).resolve().parents[1]
QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


@dataclass(frozen=True, slots=True)
class Case:
    """One comparison: rows of a kind, the options of tokmill, and whether trl has a template."""

    name: str
    rows: str
    options: Sequence[str]
    goal: float
    template: bool = True


_CHATML = ("--template", "chatml", "--default-system", QWEN_SYSTEM, "--suffix", "train")
_OWN = ("--template", "tokenizer")
_TAGGED = ("--preset", "trl", "--template", "TAGGED")
CASES = (
    Case("prompt and completion, built-in", "pairs", ("--template", "plain"), 8, template=False),
    Case("one turn, built-in", "single", _CHATML, 8),
    Case("several turns, built-in", "multi", _CHATML, 8),
    Case("tools and calls, built-in", "tools", _CHATML, 8),
    Case("one turn, the tokenizer's own Jinja", "single", _OWN, 5),
    Case("several turns, the tokenizer's own Jinja", "multi", _OWN, 5),
    Case("one turn, Jinja with tags", "single", _TAGGED, 5),
    Case("several turns, Jinja with tags", "multi", _TAGGED, 5),
)
HEAD = (
    "| records, template | MB | first run, MB/s | later runs, MB/s | trl, MB/s | "
    "times, first run | times, later runs | goal | tokens |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---|"
)
FIRST, LATER, TRL = "first run", "later runs", "trl"

Runs = dict[str, list[dict[str, Any]]]
"""What each run printed, by whose it is: seconds and tokens."""


def main() -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tokenizer")
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--tagged", default="", help="template with generation tags, for trl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="of the cases, those with this in their name")
    parser.add_argument("--megabytes", type=float, default=25, help="most of each file of rows")
    given = parser.parse_args()
    given.tagged = given.tagged or trl_template()
    about = machine.described()
    print(f"{about['date']}, {about['cpu']}, {about['cores']} cores\n\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        files = write_rows(given.data, work, int(given.megabytes * 1_000_000))
        for case in CASES:
            if given.only in case.name and case.rows in files:
                print(measure(case, files[case.rows], given, work), flush=True)


def trl_template() -> str:
    """Return the path of trl's template for Qwen 2.5 with generation tags."""
    found = importlib.util.find_spec("trl")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("trl is not installed: make oracles")
    return f"{found.submodule_search_locations[0]}/chat_templates/qwen2_5_training.jinja"


def measure(case: Case, data: Path, given: argparse.Namespace, work: Path) -> str:
    """Return one row of the table."""
    known = work / "cache"
    for engine in filter(is_installed, FAST_ENGINES):
        with contextlib.suppress(subprocess.CalledProcessError):  # not exact for this tokenizer
            run_tokmill(case, data, given, known, "--engine", engine)
    runs: Runs = {FIRST: [], LATER: [], TRL: []}
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory(dir=work) as empty:
            runs[FIRST].append(run_tokmill(case, data, given, Path(empty)))
        runs[LATER].append(run_tokmill(case, data, given, known))
        runs[TRL].append(run_trl(case, data, given, work / f"trl-{case.name}-{number}"))
    return row_of(case, data.stat().st_size / 1e6, runs)


def row_of(case: Case, megabytes: float, runs: Runs) -> str:
    """Return one row of the table: medians of speeds and ratios, with least and greatest ratio."""
    speeds = [
        statistics.median(megabytes / run["seconds"] for run in runs[who])
        for who in (FIRST, LATER, TRL)
    ]
    times = []
    for who in (FIRST, LATER):
        pairs = zip(runs[TRL], runs[who], strict=True)
        ratios = [theirs["seconds"] / ours["seconds"] for theirs, ours in pairs]
        times.append(f"{statistics.median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f})")
    same = len({run["tokens"] for found in runs.values() for run in found}) == 1
    return (
        f"| {case.name} | {megabytes:.3g} | {speeds[0]:.1f} | {speeds[1]:.1f} | {speeds[2]:.2f} | "
        f"{times[0]} | {times[1]} | {case.goal:g} | {'equal' if same else 'differ'} |"
    )


def run_tokmill(
    case: Case, data: Path, given: argparse.Namespace, cache: Path, *more: str
) -> dict[str, Any]:
    """Time the whole command, which keeps what it learns of engines in `cache`."""
    options = [given.tagged if option == "TAGGED" else option for option in case.options]
    environment = os.environ | {"TOKMILL_CACHE_DIR": str(cache)}
    with tempfile.TemporaryDirectory(dir=data.parent) as out:
        command = [
            *(sys.executable, "-m", "tokmill", "sft", str(data), "-t", given.tokenizer),
            *(*options, *more, "-o", f"{out}/out", "--json"),
        ]
        start = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": json.loads(done.stdout)["totals"]["tokens"]}


def run_trl(case: Case, data: Path, given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Time trl's preparation in a process of its own, by its own clock."""
    template = given.tagged if case.template else ""
    call = f"prepared_by_trl({str(data)!r}, {given.tokenizer!r}, {template!r}, {str(out)!r})"
    code = f"from bench.sft_speed import prepared_by_trl; {call}"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def prepared_by_trl(data: str, tokenizer_dir: str, template: str, out: str) -> None:
    """Do what trl's SFTTrainer does to a dataset before training: tokenize, and mask.

    trl 1.16, trl/trainer/sft_trainer.py, `tokenize_fn`. Prints the seconds from opening the file to
    the dataset saved, imports and loading the tokenizer left out in its favour, and the tokens.
    """
    from datasets import disable_caching, load_dataset
    from transformers import PreTrainedTokenizerFast

    disable_caching()
    config = json.loads((Path(tokenizer_dir) / "tokenizer_config.json").read_bytes())
    named = {key: config[key] for key in ("bos_token", "eos_token", "pad_token") if config.get(key)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(Path(tokenizer_dir) / "tokenizer.json"), **named
    )
    source = Path(template).read_text(encoding="utf-8") if template else None
    start = time.perf_counter()
    rows = load_dataset("json", data_files=data, split="train", cache_dir=f"{out}/cache")
    done = rows.map(
        prepare,
        fn_kwargs={"tokenizer": tokenizer, "template": source},
        num_proc=machine.cores(),
        remove_columns=rows.column_names,
    )
    done.save_to_disk(f"{out}/dataset")
    seconds = time.perf_counter() - start
    tokens = sum(len(ids) for ids in done.with_format("arrow")["input_ids"])
    print(json.dumps({"seconds": seconds, "tokens": tokens, "samples": len(done)}))


def prepare(row: dict[str, Any], tokenizer: Any, template: str | None) -> dict[str, Any]:
    """Return ids and mask of a row: prompt and completion, to which eos is added, or messages."""
    if "prompt" in row:
        prompt = tokenizer(text=row["prompt"])["input_ids"]
        ids = tokenizer(text=row["prompt"] + row["completion"] + tokenizer.eos_token)["input_ids"]
        length = next(
            (i for i, pair in enumerate(zip(prompt, ids, strict=False)) if pair[0] != pair[1]), None
        )
        length = len(prompt) if length is None else length
        return {"input_ids": ids, "mask": [0] * length + [1] * (len(ids) - length)}
    tools = row.get("tools")
    found = tokenizer.apply_chat_template(
        json.loads(row["messages"]) if isinstance(row["messages"], str) else row["messages"],
        tools=json.loads(tools) if tools else None,
        chat_template=template,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return {"input_ids": found["input_ids"], "mask": found["assistant_masks"]}


def write_rows(data: Sequence[Path], work: Path, n_bytes: int) -> dict[str, Path]:
    """Write the sets as rows that both sides read, each row once, up to `n_bytes` of each kind.

    Kinds: `pairs` of prompt and completion, messages of a `single` turn, of several (`multi`), and
    with `tools`. A kind without rows has no file.
    """
    kinds: dict[str, dict[str, None]] = {}
    sizes: Counter[str] = Counter()
    for path in data:
        for kind, row in rows_of(path):
            line = json.dumps(row, ensure_ascii=False)
            rows = kinds.setdefault(kind, {})
            if sizes[kind] < n_bytes and line not in rows:
                rows[line] = None
                sizes[kind] += len(line.encode()) + 1
    files = {}
    for kind, rows in kinds.items():
        files[kind] = work / f"{kind}.jsonl"
        files[kind].write_text("".join(f"{line}\n" for line in rows), encoding="utf-8")
    return files


def rows_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each record of a set in the forms that it can have, with their kinds."""
    text = path.read_text(encoding="utf-8")
    lines = filter(None, text.split("\n"))  # `splitlines` would cut at U+2028 inside texts
    found = json.loads(text) if path.suffix == ".json" else map(json.loads, lines)
    records = [from_baize(record) for record in found]
    schema, settings = detect_schema(records), SftSettings()
    for record in records:
        try:
            chat = read_conversation(record, schema, settings)
        except ChatError:
            continue
        messages = chat.messages
        if chat.tools or any(len(message) > 2 for message in messages):
            # as text, since the rows of an Arrow table would gain keys that are null
            row = {"messages": json.dumps(messages, ensure_ascii=False)}
            yield "tools", row | {"tools": json.dumps(chat.tools, ensure_ascii=False)}
            continue
        if [message["role"] for message in messages] == ["user", "assistant"]:
            contents = (message["content"] for message in messages)
            yield "pairs", dict(zip(("prompt", "completion"), contents, strict=True))
        n_replies = sum(message["role"] == "assistant" for message in messages)
        yield "multi" if n_replies > 1 else "single", {"messages": messages}


def from_baize(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of Baize, one text with `[|Human|]` and `[|AI|]`, as messages."""
    text = record.get("input", "")
    if "output" in record or "[|Human|]" not in text:
        return record
    turns = re.split(r"\[\|(Human|AI)\|\]", text)[1:]
    roles = {"Human": "user", "AI": "assistant"}
    messages = [
        {"role": roles[who], "content": said.strip()}
        for who, said in zip(turns[::2], turns[1::2], strict=True)
        if said.strip()
    ]
    return {"messages": messages}


if __name__ == "__main__":
    main()
