"""What stands in the place of a run that goes on: foreign files, parts that are done.

Files are removed by name, one by one, and only those that the place's own plan explains. Hidden
files of others stay. What `--overwrite` removes: see `dataset.contents`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.contents import DATASET, foreign_message, is_hidden, is_note
from tokmill.dataset.counts import Increments
from tokmill.dataset.layout import KEPT_TOKENIZER, MANIFEST, PARTS, PLAN, part_name
from tokmill.dataset.made_by import IMPORT, MANIFEST_BEGINNING, RUN, held_by_other, maker_in
from tokmill.dataset.part_record import parse_record
from tokmill.dataset.reader import sound_manifest
from tokmill.errors import StateError, StorageError
from tokmill.interrupts import STDIN_STOPPED
from tokmill.run.stopped_rejects import is_stopped_rejects
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.dataset.plan_file import OwnedNames
    from tokmill.recipes.spec import Part

    Entries = Mapping[str, int | None]

_TIMES = 2
"""How often parts are made: again, if a file of one was removed while the run went on."""

_READERS = 16
"""Files of a place that are looked at at once: a request to a store takes 50 ms."""


class Planned(Protocol):
    """A plan: of a run, an import or a mix."""

    @property
    def parts(self) -> Sequence[Part]:
        """Return the parts, in order; those of a share of an array need not begin with 0."""

    def fingerprint_of(self, part: Part) -> str:
        """Return the sha256 of what decides the bytes of a part."""


class PlannedRun(Protocol):
    """What goes on in a place that is held."""

    @property
    def place(self) -> Place:
        """Return the place."""

    @property
    def plan(self) -> Planned:
        """Return the plan that stands there."""

    def check(self) -> None:
        """Check that no other run took the place over; raises `StateError`."""


def refuse_foreign(place: Place, entries: Entries, owned: OwnedNames | None) -> None:
    """Refuse to go on among files that do not belong to the run of a place.

    `owned`: the names of its plan; None without a plan: then every visible file is foreign.

    Raises:
        StateError: names the first such file; nothing was changed.
    """
    is_dataset = _is_manifest(place, entries)
    foreign = [
        name
        for name, n_bytes in entries.items()
        if not is_hidden(name)
        if owned is None
        or n_bytes is None
        or not owned.has(name)
        or (name == MANIFEST and not is_dataset)
    ]
    if not foreign:
        return
    if owned is None and (maker := maker_in(place)):
        raise held_by_other(place.where, maker, is_finished=is_dataset)
    raise StateError(foreign_message(place.where, DATASET if owned else "", foreign))


def refuse_other_makers(place: Place, entries: Entries) -> None:
    """Refuse to begin a run where a mix stands, though every file may be a run's.

    Raises:
        StateError: one does; nothing was changed.
    """
    maker = maker_in(place)
    if maker not in ("", RUN, IMPORT):
        raise held_by_other(place.where, maker, is_finished=_is_manifest(place, entries))


def _is_manifest(place: Place, entries: Entries) -> bool:
    """Return whether there is a manifest that begins like every one of tokmill."""
    if entries.get(MANIFEST) is None:
        return False
    return bytes(next(iter(place.chunks(MANIFEST)), b"")).startswith(MANIFEST_BEGINNING)


def remove_notes(place: Place) -> None:
    """Remove what the tasks of an array have left; none is working."""
    entries = place.entries()
    _remove(place, entries, filter(is_note, entries))


def _remove(
    place: Place, entries: Entries, names: Iterable[str], check: Callable[[], None] = lambda: None
) -> None:
    """Remove files by name; `check` may raise, and is called before each."""
    for name in names:
        check()
        if entries.get(name) is not None:  # a link or a directory is not ours
            place.remove(name)


def holds_only_plan(entries: Entries) -> bool:
    """Return whether a place holds no visible file of a run, but perhaps its plan and rejects."""
    of_plan = (PLAN, KEPT_TOKENIZER)
    return all(name in of_plan or is_hidden(name) or is_stopped_rejects(name) for name in entries)


def records_of_parts(
    plan: Planned, place: Place, entries: Entries | None, check: Callable[[], None] | None = None
) -> tuple[dict[int, PartRecord], dict[int, str]]:
    """Return the records of the parts that are done, and what the others lack; both by number.

    A part is done if its record stands in the place, and all files of it with their sizes. Another
    part lacks the file that is named. `entries`: of the place; None: each file is looked at, with
    the sum that a store keeps of it.

    With `check`, which may raise and is called before, records that are no use are removed with the
    files that differ, so that their parts can be made again: also those of an earlier plan that its
    late writer has left.

    Raises:
        StateError: a record is damaged.
    """

    def differs(entry: FileEntry) -> bool:
        if entries is None:
            return place.differs(entry)
        return entries.get(entry.name) != entry.n_bytes

    def look(part: Part) -> tuple[int, PartRecord | str]:
        """Return the record of a part, on a thread, or what it lacks."""
        name = f"{PARTS}/{part_name(part.index)}"
        try:
            where, n_slices = f"{place.where}/{name}", len(part.slices)
            record = parse_record(place.read(name), where, part.index, n_slices)
        except FileNotFoundError:
            return part.index, name
        wrong = [entry.name for entry in record.files() if differs(entry)]
        if record.fingerprint == plan.fingerprint_of(part) and not wrong:
            return part.index, record
        if check is not None:
            for file in (name, *wrong):
                check()
                if place.stamp(file):
                    place.remove(file)
        return part.index, wrong[0] if wrong else name

    missing = {part.index: f"{PARTS}/{part_name(part.index)}" for part in plan.parts}
    listed = [part for part in plan.parts if entries is None or missing[part.index] in entries]
    records: dict[int, PartRecord] = {}
    with ThreadPoolExecutor(_READERS, "tokmill") as pool:
        for index, outcome in pool.map(look, listed):
            if isinstance(outcome, str):
                missing[index] = outcome
            else:
                records[index] = outcome
                del missing[index]
    return records, missing


def make_parts(
    run: PlannedRun,
    warn: Callable[[str], None],
    make: Callable[[Sequence[Part]], None],
    report: Callable[[Increments], None],
    records: dict[int, PartRecord],
) -> dict[int, PartRecord]:
    """Make the parts that have no record yet; return the records of all, as the place holds them.

    `make` makes parts, in any order. `records` is emptied: they are read again, and may be large.
    Parts whose files were removed or changed meanwhile, as by the late writer of an earlier plan,
    are made again. `report` gets what earlier attempts have done.

    Raises:
        StorageError: they were again.
        KeyboardInterrupt: with a message about the parts that are kept.
    """
    place, plan = run.place, run.plan
    for record in records.values():
        done = record.total()
        numbers = done.input_bytes, done.text_bytes, done.records, done.documents, done.tokens
        report(Increments(*numbers, done.drops, done.rejects, resumed=True))
    for n_left in reversed(range(_TIMES)):
        left = [part for part in plan.parts if part.index not in records]
        records.clear()
        try:
            if left:
                make(left)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(plan, place)) from None
        run.check()
        records, missing = records_of_parts(plan, place, None, run.check)
        if not missing:
            break
        name = next(iter(missing.values()))
        told = f"{place.where}/{name}: changed or removed while the run went on"
        if not n_left:
            raise StorageError(f"{told}, twice: run the same command again to make it again")
        warn(f"{told}: {plural(len(missing), 'part')} {are(len(missing))} made again")
    return records


def _kept(plan: Planned, place: Place) -> str:
    """Return the message of an interrupt, about the parts that are kept.

    They are counted in the place: a worker may have written a record that it could not report.
    """
    if any(piece.file.path == "-" for part in plan.parts[:1] for piece in part.slices):
        return STDIN_STOPPED
    names = {f"{PARTS}/{part_name(part.index)}" for part in plan.parts}
    n_done = len(names & place.entries().keys())
    if not n_done:
        return "interrupted; no part was done, so nothing is kept: the same command begins again"
    return (
        f"interrupted; {n_done:,} of {plural(len(plan.parts), 'part')} {are(n_done)} kept: the "
        "same command continues"
    )


def are(n: int) -> str:
    """Return the verb of `n` things."""
    return "is" if n == 1 else "are"


def complete_manifest(
    place: Place,
    entries: Entries,
    owned: OwnedNames,
    warn: Callable[[str], None],
    check: Callable[[], None],
) -> Manifest | None:
    """Return the manifest of a complete dataset: each of its files is there, with its size.

    Otherwise warn, remove the manifest and the files of a wrong size, so that the run makes them
    again, and return None. Foreign files are allowed only beside a complete dataset.

    Raises:
        StateError: see `refuse_foreign`; nothing was changed.
    """
    wrong: list[str] = []
    problem = ""
    if MANIFEST in entries:
        try:
            manifest = sound_manifest(place.read(MANIFEST), place.where)
        except FileNotFoundError:
            manifest = None
        problem = f"{place.where}/{MANIFEST}: was changed: it is written again"
        if manifest is not None:
            wrong = [one.name for one in manifest.files if entries.get(one.name) != one.n_bytes]
            if not wrong:
                return manifest
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            problem = f"{place.where}: {wrong[0]}{more} was removed or cut: it is made again"
    refuse_foreign(place, entries, owned)
    if problem:
        warn(problem)
        _remove(place, entries, [MANIFEST, *(name for name in wrong if name != PLAN)], check)
    return None
