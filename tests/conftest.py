"""Fixtures of the whole suite: a tiny tokenizer, and records made of Python rows."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as property_settings
from tokenizers import Tokenizer as Library
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from tokmill.dataset.checksum import canonical_json
from tokmill.machine.limits import usable_cores
from tokmill.run.plan import Plan, new_plan
from tokmill.run.prepare import prepare
from tokmill.settings.schema import Config, TokenizerSettings
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tokmill.values import RAW_LIMIT_BYTES, Records

# Every core has a worker of its own: more threads of torch wait for each other, and spin meanwhile.
# Set before torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

pytest_plugins = [
    "tests.fixtures.datasets",
    "tests.fixtures.recipes",
    "tests.fixtures.runs",
    "tests.fixtures.stores",
    "tests.fixtures.tokenizers",
    "tests.fixtures.written_datasets",
]

# No test of a property measures time: a machine may be busy with other tests. Every run draws other
# examples, so that fewer in one find as much over several.
property_settings.register_profile(
    "tokmill", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
property_settings.load_profile("tokmill")

TRAINING_TEXTS = ["hello world hello there", "the cat, the hat; 123 123", "猫猫 狗狗 维基百科"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the workers of `-n auto`: 0 (in-process) for one core, else one more than the cores.

    Cores are those that the cgroup grants. Some tests wait, for processes and for the disk.
    """
    n_cores = usable_cores()
    return n_cores + 1 if n_cores > 1 else 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a slow test that does not say why it is slow: `@pytest.mark.slow(reason="…")`."""
    for item in items:
        if any(not mark.kwargs.get("reason") for mark in item.iter_markers("slow")):
            raise pytest.UsageError(f"{item.nodeid}: a slow test needs a reason")


@pytest.fixture(autouse=True)
def answered_sigint() -> Iterator[None]:
    """Children answer Ctrl-C though these tests were started with it ignored (`make test &`)."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set what the environment of whoever runs the tests must not decide.

    Engine choices are remembered in a directory that all workers of pytest-xdist share, and not in
    the user's. The width of a terminal is unknown: readline exports it to the workers. Nobody has a
    wish about colours.
    """
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKMILL_CACHE_DIR", str(cache))
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE: <eos> 0, <bos> 1, <|im_start|> 2, 256 bytes, merges, and a plain <tool>."""
    library = Library(BPE())
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    library.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=290,
        special_tokens=["<eos>", "<bos>", "<|im_start|>"],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(TRAINING_TEXTS, trainer)
    library.add_tokens(["<tool>"])
    directory = tmp_path_factory.mktemp("tokenizer")
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return directory


@pytest.fixture(scope="session")
def tokenizer(tokenizer_dir: Path) -> Tokenizer:
    """The tiny tokenizer, as workers get it."""
    return load_tokenizer(TokenizerSettings(path=str(tokenizer_dir)))


@pytest.fixture(scope="session")
def records() -> Callable[[Sequence[Mapping[str, Any]], pa.Schema], Records]:
    """Make `Records` of dicts, with the columns of a schema; a key that a dict lacks is null.

    Row i is line i + 1, ten bytes further than the one before.
    """

    def make(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Records:
        wanted = [{name: row.get(name) for name in schema.names} for row in rows]
        return Records(
            pa.RecordBatch.from_pylist(wanted, schema),
            np.array([(row + 1, 10 * row) for row in range(len(rows))]).reshape(-1, 2),
            lambda row: json.dumps(rows[row], ensure_ascii=False).encode()[:RAW_LIMIT_BYTES],
            lambda row: list(rows[row]),
        )

    return make


SECTION_OF = {
    setting.name: section.name
    for section in dataclasses.fields(Config)
    if getattr(Config(), section.name) is not None
    for setting in dataclasses.fields(getattr(Config(), section.name))
}


@pytest.fixture(scope="session")
def configure(tokenizer_dir: Path) -> Callable[..., Config]:
    """Make the settings of a run: the tiny tokenizer, the reference, one thread, and what is given.

    `configure(directory, *paths, shard_tokens=10)`: every setting by its own name, but those of SFT
    together as `sft`.
    """

    def make(
        directory: Path, *paths: Path, sft: SftSettings | None = None, **settings: Any
    ) -> Config:
        chosen = {"engine": "reference", "threads": 1, "path": str(tokenizer_dir)} | settings
        sections: dict[str, dict[str, Any]] = {
            "input": {"paths": tuple(map(str, paths))},
            "output": {"dir": str(directory)},
        }
        for name, value in chosen.items():
            sections.setdefault(SECTION_OF[name], {})[name] = value
        default = Config()
        built = {
            name: dataclasses.replace(getattr(default, name), **values)
            for name, values in sections.items()
        }
        return dataclasses.replace(default, sft=sft, **built)

    return make


class Listener:
    """Keeps what a run tells about itself."""

    def __init__(self) -> None:
        self.plans: list[Any] = []
        self.n_done: list[int] = []
        self.heard: list[Any] = []
        self.warnings: list[str] = []

    def warned(self, text: str, *, always: bool = False) -> None:
        self.warnings.append(text)

    def noted(self, text: str) -> None:
        pass

    def started(self, plan: Any, n_done: int) -> None:
        self.plans.append(plan)
        self.n_done.append(n_done)

    def progressed(self, progress: Any) -> None:
        self.heard.append(progress)

    def peak_memory_bytes(self) -> int:
        return 12345


class Silent:
    """Hears of a run and keeps nothing."""

    def warned(self, text: str, *, always: bool = False) -> None:
        pass

    def noted(self, text: str) -> None:
        pass

    def started(self, plan: Any, n_done: int) -> None:
        pass

    def progressed(self, progress: Any) -> None:
        pass

    def peak_memory_bytes(self) -> int:
        return 0


@pytest.fixture(scope="session")
def silent() -> Silent:
    """Return an observer of runs for tests that look at what was written alone."""
    return Silent()


@pytest.fixture
def listener() -> Listener:
    """Return an observer of runs."""
    return Listener()


def read_files(directory: Path) -> dict[str, bytes]:
    """Return the files that must not depend on how a run went, by name.

    Without what depends on the engine: its name in the plan, and what was checked of its ids.
    """
    files = {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("manifest.json", ".lock")
    }
    plan = json.loads(files["plan.json"])
    plan.pop("engine")
    plan.pop("fingerprint")  # of all of it, the engine too
    plan.get("task", {"config": {}})["config"].pop("limits", None)  # they decide no byte
    parts = {name: _without_checks(data) for name, data in files.items() if "parts/" in name}
    return files | parts | {"plan.json": json.dumps(plan, sort_keys=True).encode()}


def _without_checks(record: bytes) -> bytes:
    if b'"checks":' not in record:
        return record
    data = json.loads(record)
    for counts in data["slices"]:
        counts.pop("checks", None)
    return canonical_json(data)


@pytest.fixture(scope="session")
def files_of() -> Callable[[Path], dict[str, bytes]]:
    """Return `read_files`."""
    return read_files


@pytest.fixture(scope="session")
def write_rows() -> Callable[[Path, Sequence[Any]], Path]:
    """Write rows as JSON Lines; bytes are lines as they stand."""

    def write(path: Path, rows: Sequence[Any]) -> Path:
        lines = [
            row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode()
            for row in rows
        ]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write


@pytest.fixture(scope="session")
def plan_of() -> Callable[[Config], Plan]:
    """Plan a run with the engine that its settings name, and make its directories."""
    from tests.fixtures.recipes import engine_asked_for  # a plugin: pytest imports it first

    def make(config: Config) -> Plan:
        prepared = prepare(config)
        engine = engine_asked_for(prepared)
        for name in ("parts", "rejects"):
            (Path(config.output.dir) / name).mkdir(parents=True, exist_ok=True)
        return new_plan(prepared.spec(engine), prepared.parts)[0]

    return make


@pytest.fixture(scope="session")
def make_manifest() -> Callable[..., dict[str, Any]]:
    """Make a manifest of the right shape from what is known of it: counts, shards, other keys."""

    def make(counts: Mapping[str, Any], **entries: Any) -> dict[str, Any]:
        zeros = dict.fromkeys(("records", "documents", "tokens", "text_bytes", "input_bytes"), 0)
        totals = {**zeros, "drops": {}, "rejects": {}, **counts}
        text = {"path": "t", "pattern": "", "control_tokens_in_text": "text"}
        token = {"id": 2, "token": "<eos>"}
        tokenizer = {"name": "t", "identity": "0" * 64, "vocab_size": 100}
        tokenizer |= {"eos": token, "bos": None}
        engine = {"name": "reference", "version": "1", "reason": "asked for"}
        engine |= {"mb_per_s": {}, "n_checked": 0, "refused": {}}
        run = {"wall_s": 1, "text_bytes_per_s": 1, "peak_memory_bytes": 1, "resumed_parts": 0}
        given = {"sources": [{"path": "a", **totals}], "tokenizer": tokenizer, **entries}
        return {
            "format_version": 1,
            "config": {
                "tokenizer": text,
                "input": {"paths": []},
                "output": {"dir": "", "shard_tokens": 100, "val_fraction": 0.0, "packing": 0},
                **given.pop("config", {}),
            },
            "engine": engine,
            "dtype": "uint16",
            "totals": totals,
            "length_histogram": [],
            "shards": [],
            "files": [],
            "run": run,
            **given,
        }

    return make
