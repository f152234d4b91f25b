"""The plan of an array: one file with all that a task of a Slurm array or Kubernetes job needs.

It holds the resolved settings and the tokenizer itself, so that a thousand tasks neither list the
input nor ask the Hugging Face Hub. Files, parts and engine stand in `plan.json` in the output
directory, which every task must see; the array's plan names it by its fingerprint.
"""

from __future__ import annotations

import base64
import json
import platform
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tokmill.dataset.canonical import canonical_json, sha256_hex
from tokmill.dataset.layout import MANIFEST, PLAN
from tokmill.errors import StateError, UsageError
from tokmill.recipes.spec import Reading, RunSpec
from tokmill.run.array_place import FORMAT, check_plan_place
from tokmill.run.compare_plans import check_same
from tokmill.run.node_proof import (
    PATIENCE_S,
    NodeProof,
    check_node,
    has_relative_paths,
    versions_of,
)
from tokmill.run.plan import Plan, planned_parts, read_plan
from tokmill.run.prepare import extensions_of
from tokmill.run.probes import (
    ARRAY,
    array_nonce,
    has_file,
    is_nonce,
    probe_name,
    remove_array_probes,
)
from tokmill.run.resume import check_installed, planned_engine
from tokmill.run.store_part import check_plan, plan_stamp
from tokmill.run.store_plan import downloaded_plan
from tokmill.settings.load import build_config
from tokmill.settings.plain import plain
from tokmill.settings.schema import Config
from tokmill.storage import storage_errors, write_file
from tokmill.stores.staging import staging_directory
from tokmill.stores.store import Store
from tokmill.stores.urls import is_store, shown
from tokmill.tokenizer.tokenizer import Token, Tokenizer
from tokmill.version import __version__

_VERSION = 1

_KINDS = {
    "version": int,
    "tokmill_version": str,
    "written_in": str,
    "config": dict,
    "tokenizer": str,
    "template": str,
    "is_named": bool,
    "labels": list,
    "readings": list,
    "plan_fingerprint": str,
    "host": str,
    "nonce": str,
    "versions": dict,
}

_MOST_TOKENIZER_BYTES = 1 << 30
"""A tokenizer's text is some MB, thrice; a plan with more was not written by tokmill."""


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """The plan of an array, read on the machine of a task.

    `path`: of its file. `plan`: the whole run, as this machine will work; threads and memory are
    set for a share by `for_share`. `fingerprint`: of `plan.json` in the output. `proof`: what a
    machine must find as the one that planned has it; without an input, as shares have different
    ones.
    """

    path: Path
    plan: Plan
    fingerprint: str
    proof: NodeProof

    @property
    def directory(self) -> Path:
        """Return the output directory."""
        return Path(self.plan.spec.config.output.dir)

    @property
    def is_in_store(self) -> bool:
        """Return whether the output is in an object store."""
        return is_store(self.plan.spec.config.output.dir)

    def for_share(self, index: int, n_tasks: int) -> Plan:
        """Return the plan with the parts of task `index` of `n_tasks`: every `n_tasks`-th part."""
        return replace(self.plan, parts=self.plan.parts[index::n_tasks])

    def check_current(self) -> None:
        """Check that the run still goes on; the caller holds a lock, so no other one can begin.

        Raises:
            StateError: another run began in the output.
        """
        if self.is_in_store:
            check_plan(Store(self.plan.spec.config.output.dir), self.plan.spec)
            return
        found = read_plan(self.directory) or {}
        if found.get("fingerprint") != self.fingerprint:
            raise _another_run(str(self.directory), self.path)

    def is_finished(self) -> bool:
        """Return whether the manifest is there, and the probe is gone, as after `finish`."""
        place = self.plan.spec.config.output.dir
        return has_file(place, MANIFEST) and not has_file(place, self.proof.probe)

    def check_machine(self) -> None:
        """Check that this machine sees the output of the plan, can write there, has its versions.

        Raises:
            StateError: it does not; see `node_proof.check_node`.
        """
        otherwise = f"; if it is the same one, write {self.path} again"
        check_node(self.proof, patience_s=PATIENCE_S, otherwise=otherwise)


def write_array_plan(path: Path, plan: Plan) -> None:
    """Write the plan of an array; `plan` stands in its output directory or store already.

    A probe is written there first, by which tasks recognise it; see `run.probes`.

    Raises:
        UsageError: another file is there; see `check_plan_place`.
        StorageError: the file cannot be written.
    """
    spec = plan.spec
    check_plan_place(path, spec.config)  # again: planning took its time
    place = spec.config.output.dir
    found, nonce = _found_plan(place)[0] or {}, array_nonce(place)
    data = {
        "format": FORMAT,
        "version": _VERSION,
        "tokmill_version": __version__,
        "written_in": _here() if has_relative_paths(spec.config) else "",
        "config": plain(spec.config),
        "tokenizer": _packed(spec.tokenizer),
        "template": spec.template,
        "is_named": spec.is_named,
        "labels": sorted(spec.labels),
        "readings": [_reading_entry(reading) for reading in spec.readings],
        "plan_fingerprint": found["fingerprint"],
        "host": platform.node(),
        "nonce": nonce,
        "versions": versions_of(spec),
    }
    write_file(
        path, canonical_json({**data, "sha256": sha256_hex(canonical_json(data))}), replace=True
    )
    remove_array_probes(place, keep=nonce)


def read_array_plan(path: Path) -> ArrayPlan:
    """Read the plan of an array, and check that this machine can work on it.

    Raises:
        UsageError: there is no such file, or it is not the plan of an array, or it has relative
            paths and was written in another directory.
        StateError: the output directory holds another run or none, or another version of tokmill,
            of the engine, of the reference or of the parser is installed here.
    """
    data = _read(path)
    if data["tokmill_version"] != __version__:
        raise StateError(
            f"{path}: written by tokmill {data['tokmill_version']}, installed here is "
            f"{__version__}: install that version on every machine"
        )
    config = build_config(data["config"], where=str(path))
    directory = shown(config.output.dir)
    _check_place(path, data["written_in"], config)
    found, stamp = _found_plan(config.output.dir)
    if found is None:
        raise StateError(
            f"{directory}: has no {PLAN}: this machine does not see the output directory of {path} "
            "(mount it here), or it was removed (write the plan again)"
        )
    if found.get("fingerprint") != data["plan_fingerprint"]:
        raise _another_run(directory, path)
    engine = planned_engine(found, config.run.engine)
    try:
        tokenizer = _unpacked(data["tokenizer"])
    except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
        raise UsageError(
            f"{path}: its tokenizer cannot be read ({error}): write it again"
        ) from None
    check_installed(found, engine, tokenizer)
    readings = tuple(_reading(entry, str(path)) for entry in data["readings"])
    spec = RunSpec(
        config,
        tokenizer,
        engine,
        n_threads=1,
        template=data["template"],
        is_named=data["is_named"],
        labels=frozenset(data["labels"]),
        extensions=extensions_of(config, engine.name, {row[1] for row in found["files"]}, readings),
        plan_stamp=stamp,
        readings=readings,
    )
    plan = Plan(spec, planned_parts(found))
    check_same(found, plan, directory)
    return ArrayPlan(path, plan, data["plan_fingerprint"], _proof(data, config))


def _reading_entry(reading: Reading) -> dict[str, Any]:
    config = Config(input=reading.input, render=reading.render, sft=reading.sft)
    sections = {"input", "render" if reading.sft is None else "sft"}
    return {
        "source": reading.source,
        "files": reading.files,
        "settings": {name: values for name, values in plain(config).items() if name in sections},
        "is_named": reading.is_named,
        "labels": sorted(reading.labels),
    }


def _reading(entry: dict[str, Any], where: str) -> Reading:
    config = build_config(entry["settings"], where=where)
    settings = (config.input, config.render, config.sft)
    labels = frozenset(entry["labels"])
    return Reading(entry["source"], entry["files"], *settings, entry["is_named"], labels)


def _proof(data: dict[str, Any], config: Config) -> NodeProof:
    place, nonce = config.output.dir, data["nonce"]
    probe, written_in = probe_name(place, ARRAY, nonce), data["written_in"]
    return NodeProof(data["host"], place, probe, nonce, written_in, versions=data["versions"])


def _found_plan(place: str) -> tuple[dict[str, Any] | None, str]:
    """Return the plan of a dataset, None without one, and its stamp or that of an earlier one."""
    if not is_store(place):
        return read_plan(Path(place)), ""
    store = Store(place)
    stamp = plan_stamp(store)
    return downloaded_plan(store, staging_directory(store)), stamp


def _another_run(directory: str, path: Path) -> StateError:
    return StateError(f"{directory}: another run began here after {path}: write that again")


def _read(path: Path) -> dict[str, Any]:
    """Return the content of the file, which is as it was written."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file: it is written first, on one machine")
    with storage_errors(path):
        content = path.read_bytes()
    data: dict[str, Any]
    try:
        data = json.loads(content)
        written = data.pop("sha256")
        is_whole = written == sha256_hex(canonical_json(data)) and all(
            isinstance(data[key], kind) for key, kind in _KINDS.items()
        )
        is_whole &= all(isinstance(label, str) for label in data["labels"])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        data, is_whole = {}, False
    if not is_whole or data.get("format") != FORMAT or not is_nonce(data["nonce"]):
        raise UsageError(f"{path}: not the plan of an array, or damaged: write it again")
    if data["version"] > _VERSION:
        raise StateError(f"{path}: written by a newer tokmill: install a newer one")
    return data


def _here() -> str:
    with storage_errors(Path()):  # it may have been removed
        return str(Path.cwd())


def _check_place(path: Path, written_in: str, config: Config) -> None:
    """Check that relative paths mean the same as where the plan was written."""
    if has_relative_paths(config) and _here() != written_in:
        raise UsageError(
            f"{path}: its paths are relative to {written_in}, this is {_here()}: work in that "
            "directory, or write the plan with absolute paths"
        )


def _packed(tokenizer: Tokenizer) -> str:
    """Return a tokenizer as text: its plain values in JSON, compressed, in base64."""
    values = {part.name: getattr(tokenizer, part.name) for part in fields(tokenizer)}
    del values["spare"], values["child"]
    values["data"] = base64.b64encode(tokenizer.data).decode()
    for name in ("eos", "bos"):
        token = values[name]
        values[name] = None if token is None else [token.id, token.content]
    return base64.b64encode(zlib.compress(canonical_json(values))).decode()


def _unpacked(text: str) -> Tokenizer:
    inflate = zlib.decompressobj()
    values = json.loads(inflate.decompress(base64.b64decode(text), _MOST_TOKENIZER_BYTES))
    for name in ("eos", "bos"):
        values[name] = None if values[name] is None else Token(*values[name])
    for name in ("special_ids", "rewrites"):
        values[name] = tuple(values[name])
    values["named"] = tuple((key, content) for key, content in values["named"])
    values["data"] = base64.b64decode(values["data"])
    return Tokenizer(**values)
