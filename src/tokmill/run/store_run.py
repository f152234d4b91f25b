"""Make a dataset in an object store: lease, plan or resume, parts, manifest.

Every object appears whole and under its final name: the plan first, a part's record after its
files, the manifest last. One listing says what earlier runs have left.
"""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.layout import FOLDERS, MANIFEST, PLAN
from tokmill.dataset.manifest_shape import shape_problem
from tokmill.dataset.reader import is_intact
from tokmill.engines.engine import engine_threads
from tokmill.errors import RecordError, StateError
from tokmill.interrupts import STDIN_STOPPED
from tokmill.run.array_status import is_failure
from tokmill.run.finish import Files, Usage, check_all_read, check_sizes, finish
from tokmill.run.part import as_resumed
from tokmill.run.probes import remove_array_probes
from tokmill.run.reject_limits import RejectLimit
from tokmill.run.resume import NOTHING_KEPT
from tokmill.run.staging_lock import clear_staging, locked_staging
from tokmill.run.store_part import check_plan, in_directory, stored_record
from tokmill.run.store_plan import plan_in_store
from tokmill.run.whole_run import cpu_seconds, mask_entry
from tokmill.storage import make_directory, storage_errors
from tokmill.stores.lease import TASKS, leased, refuse_held
from tokmill.stores.store import Store, remove_all
from tokmill.timing import StageSeconds
from tokmill.tokenizer.manifest_entry import PROBE_TEXT
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tokmill.dataset.commit_record import PartRecord
    from tokmill.engines.engine import Engine
    from tokmill.run.plan import Plan
    from tokmill.run.whole_run import Executor, Observer
    from tokmill.settings.schema import Config
    from tokmill.stores.lease import Lease

READERS = 16
"""Records of parts that are read at once."""

_MOST_REJECTS = 20


def make_store_dataset(
    config: Config, observer: Observer, execute: Executor, *, overwrite: bool = False
) -> dict[str, Any]:
    """Make a dataset in an object store, or continue one, and return its manifest.

    Raises:
        TokmillError: see `errors`; parts that are done stay.
        KeyboardInterrupt: with a message about the work that is kept.
    """
    start_s, start_cpu_s = time.perf_counter(), cpu_seconds()
    store = Store(config.output.dir)
    with (
        locked_staging(store) as staging,
        leased(store, staging / ".lease") as lease,
    ):
        refuse_held(store, TASKS)
        begun = plan_in_store(config, observer, store, staging, lease, overwrite=overwrite)
        with engine_threads(begun.n_threads):
            plan, sizes = begun.plan, begun.sizes
            run = StoreRun(store, staging, lease, plan, observer, begun.n_workers, begun.reference)
            run.started(sizes)
            prepare_s = StageSeconds(
                time.perf_counter() - start_s, cpu_seconds() - start_cpu_s, start_s
            )
            manifest = run.complete(sizes) or run.work(execute, start_s, start_cpu_s, prepare_s)
        end_array(store, config.output.dir, lease)
        clear_staging(staging)
    return manifest


def end_array(store: Store, place: str, lease: Lease) -> None:
    """Remove what tasks of an array left in a store whose dataset is complete; `place`: its URL."""
    left = [name for name in store.sizes() if name.startswith(f"{TASKS}/") or is_failure(name)]
    remove_all(store, left, lease.check)
    lease.check()
    remove_array_probes(place)


class StoreRun:
    """A run from its plan, which stands in the store, to its manifest."""

    def __init__(
        self,
        store: Store,
        staging: Path,
        lease: Lease,
        plan: Plan,
        observer: Observer,
        n_workers: int,
        reference: Callable[[], Engine],
    ) -> None:
        self._store = store
        self._staging = staging
        self._lease = lease
        self._plan = plan
        self._observer = observer
        self._n_workers = n_workers
        self._reference = reference
        self._records: dict[int, PartRecord] = {}

    def started(self, sizes: Mapping[str, int]) -> None:
        """Find the parts that earlier runs finished, and tell the observer."""
        spec, parts = self._plan.spec, self._plan.parts
        with ThreadPoolExecutor(READERS, "tokmill") as pool:
            found = pool.map(
                lambda part: stored_record(self._store, part, part.fingerprint(spec), sizes), parts
            )
            self._records = {record.part: record for record in found if record is not None}
        self._observer.started(self._plan, len(self._records))

    def complete(self, sizes: Mapping[str, int]) -> dict[str, Any] | None:
        """Return the manifest, if all of its objects are there with their sizes; else remove it."""
        if MANIFEST not in sizes:
            return None
        try:
            manifest: dict[str, Any] = json.loads(self._store.read(MANIFEST))
            is_sound = is_intact(manifest) and not shape_problem(manifest)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            manifest, is_sound = {}, False
        entries = [FileEntry.from_json(entry) for entry in manifest["files"]] if is_sound else []
        wrong = [entry.name for entry in entries if sizes.get(entry.name) != entry.n_bytes]
        if is_sound and not wrong and len(self._records) == len(self._plan.parts):
            return manifest
        what = f"{wrong[0]} was removed or cut" if wrong else f"{MANIFEST} was changed"
        self._observer.warned(f"{self._store.url}: {what}: it is made again")
        self._check_place()
        self._store.remove(MANIFEST)  # the dataset is incomplete from here on
        return None

    def work(
        self, execute: Executor, start_s: float, start_cpu_s: float, prepare_s: StageSeconds
    ) -> dict[str, Any]:
        """Run the parts that are not done, and finish."""
        plan, n_resumed = self._plan, len(self._records)
        limit = RejectLimit(plan, self._observer.progressed)
        for record in self._records.values():
            limit.progressed(as_resumed(record.counts()))
        with self._explained():
            self._make_parts(execute, limit)
            records = [self._records[part.index] for part in plan.parts]
            try:
                limit.check_at_end()
            except RecordError:
                check_all_read(plan, records)  # a broken file explains its rejects
                raise
            usage = Usage(
                time.perf_counter() - start_s,
                cpu_seconds() - start_cpu_s,
                self._observer.peak_memory_bytes(),
                n_resumed,
                limit.text_bytes,
                self._n_workers,
                {"prepare": prepare_s, **limit.stage_s},
            )
            return self._finish(records, usage)

    def _make_parts(self, execute: Executor, limit: RejectLimit) -> None:
        plan = self._plan
        left = [part for part in plan.parts if part.index not in self._records]
        if not left:
            return
        report, reference = limit.progressed, self._reference
        for record in execute(plan.spec, left, report, self._n_workers, reference, lambda: plan):
            self._records[record.part] = record
            self._lease.check()

    def _finish(self, records: list[PartRecord], usage: Usage) -> dict[str, Any]:
        """Write packs and manifest into the staging directory, and upload them; manifest last."""
        store, plan = self._store, self._plan
        directory = self._staging / "finish"
        shutil.rmtree(directory, ignore_errors=True)
        for name in FOLDERS:
            make_directory(directory / name)
        with storage_errors(directory):
            (directory / PLAN).write_bytes(b"".join(plan.chunks()))
        sizes = store.sizes()
        if sizes.get(PLAN) != (directory / PLAN).stat().st_size:
            raise StateError(f"{store.url}/{PLAN}: changed while the run went on: run again")

        def check(record: PartRecord) -> None:
            check_sizes(record, sizes.get, store.url)

        def fetch(names: Iterable[str]) -> None:
            with storage_errors(directory):
                for name in names:
                    store.download(name, sizes[name], directory / name)

        # The manifest names the output; a URL may hold a password.
        shown = replace(plan, spec=in_directory(plan.spec, store.url))
        probe = pa.array([PROBE_TEXT], pa.large_string())
        probe_ids = self._reference().encode(probe).ids.tolist()
        mask = mask_entry(plan, self._reference)
        files = Files(directory, check, fetch, _MOST_REJECTS)
        manifest = finish(shown, records, probe_ids, usage, mask, files)
        written = [entry["name"] for entry in manifest["files"] if entry["name"].startswith("pack")]
        for name in written:
            self._check_place()
            store.upload(directory / name, name)
        self._check_place()
        store.upload(directory / MANIFEST, MANIFEST)
        return manifest

    def _check_place(self) -> None:
        """Check that the place in the store is still that of this run; raises `StateError`."""
        self._lease.check()
        check_plan(self._store, self._plan.spec)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Add to an interrupt a message about the work that is kept."""
        try:
            yield
        except KeyboardInterrupt:
            plan = self._plan
            if any(piece.file.path == "-" for part in plan.parts[:1] for piece in part.slices):
                raise KeyboardInterrupt(STDIN_STOPPED) from None
            n_done, n_parts = len(self._records), plural(len(plan.parts), "part")
            is_kept = f"{n_done:,} of {n_parts} {'is' if n_done == 1 else 'are'} kept"
            message = f"interrupted; {is_kept}: the same command continues"
            raise KeyboardInterrupt(message if n_done else NOTHING_KEPT) from None
