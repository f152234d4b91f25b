"""The files that a mix reads of its inputs: watched from its beginning on, and summed.

Indexes, origins and kept fields are small, and no reader must follow damaged ones: they are summed
first. The bodies of a shard are summed by the worker that reads them, if one reads all in order;
else by a task behind those that read the shard, so that a disk reads it once where memory holds a
shard. A mix that goes on after a stop compares with the stamps of its first beginning: what it has
made since then counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokmill.dataset.checked import CheckedFiles, Stamp
from tokmill.dataset.layout import ORIGIN, REJECTS, SPLITS
from tokmill.dataset.sidecars import METADATA
from tokmill.mixing.settings import TRAINED
from tokmill.urls import is_store, local_path, store_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.manifest import ShardRow
    from tokmill.mixing.inputs import Chunk, Input, Inputs
    from tokmill.mixing.settings import MixSettings
    from tokmill.mixing.temporary import Temporary

CHECK = "check"
"""The name of the task that sums a file."""

STAMPS = "stamps.json"


class InputFile(NamedTuple):
    """A file of an input, as a task gets it."""

    directory: Path
    entry: FileEntry

    @property
    def path(self) -> Path:
        """Return where it stands."""
        return self.directory / self.entry.name


class InputFiles:
    """The files of all inputs; what goes from a store to a store is copied there, and not read.

    Attributes:
        files: those of the shards, as tasks number them.
    """

    def __init__(self, inputs: Inputs, settings: MixSettings) -> None:
        self._inputs, self._settings = inputs, settings
        self._datasets = {
            dataset.directory: CheckedFiles.of(dataset.directory, dataset.manifest.files)
            for dataset in inputs.datasets
            if not (store_url(dataset.directory) and is_store(local_path(settings.output)))
        }
        self.files = [
            InputFile(directory, entry)
            for directory, checked in self._datasets.items()
            for entry in checked.entries.values()
            if entry.name.startswith(SPLITS)
        ]
        self._numbers = {file.path: number for number, file in enumerate(self.files)}
        self._in_tasks: set[int] = set()

    def were_written_to(self, temporary: Temporary) -> bool:
        """Return whether files of shards were written to, or made again, since a mix was stopped.

        What it has made of them may be made of other bytes: a file that was damaged then, say.

        Raises:
            VerifyError: a file is missing, or has another size than its manifest says.
        """
        if not temporary.has(STAMPS):
            return False
        for number, written, _ in json.loads(temporary.read(STAMPS)):
            file = self.files[number]
            checked = self._datasets[file.directory]
            checked.watch([file.path])
            if checked.stamps[file.path].written != tuple(written):
                return True
        return False

    def watch(self, temporary: Temporary) -> None:
        """Keep the stamps of the files of all shards, or take those that a stopped mix has kept.

        Raises:
            VerifyError: a file is missing, or has another size than its manifest says.
        """
        if temporary.has(STAMPS):
            for number, written, changed in json.loads(temporary.read(STAMPS)):
                file = self.files[number]
                self._datasets[file.directory].stamps[file.path] = Stamp(tuple(written), changed)
            return
        rows = []
        for number, file in enumerate(self.files):
            checked = self._datasets[file.directory]
            checked.watch([file.path])
            rows.append([number, *checked.stamps[file.path]])
        with temporary.new(STAMPS, is_durable=True) as file_of_stamps:
            file_of_stamps.write(json.dumps(rows).encode())

    def check_all(self) -> None:
        """Check everything that a mix reads or links."""
        for checked in self._datasets.values():
            checked.check(
                path
                for path, entry in checked.entries.items()
                if entry.name.startswith((*SPLITS, f"{REJECTS}/"))
            )

    def check_first(self) -> None:
        """Check what must be sound before anything else is read."""
        self._check(self._first())

    def check_packed(self) -> None:
        """Check what the packs of linked shards are made of."""
        self._check(self._packed())

    def check_linked(self, algorithm: str, *, has_shards: bool) -> None:
        """Check files that are linked, and were written after their manifest: rejects, shards.

        Rejects with sums of another algorithm than that of the mix are always checked.
        """
        for checked in self._datasets.values():
            rejects = [path for path in checked.entries if path.parent.name == REJECTS]
            is_own = {path: checked.entries[path].algorithm == algorithm for path in rejects}
            checked.check_newer(path for path in rejects if is_own[path])
            checked.check(path for path in rejects if not is_own[path])
        if has_shards:
            for file in self.files:
                self._datasets[file.directory].check_newer([file.path])

    def tasks(self, chunk: Chunk) -> Iterator[tuple[str, int]]:
        """Yield the tasks that sum the bodies of a chunk, but those that were yielded before."""
        for number in self._bodies(chunk):
            if number not in self._in_tasks:
                self._in_tasks.add(number)
                yield CHECK, number

    def finish(self) -> None:
        """Check that no file was written to since the mix began; raises `VerifyError`."""
        for number in self._in_tasks:
            file = self.files[number]
            self._datasets[file.directory].summed.add(file.path)
        for checked in self._datasets.values():
            checked.finish()

    def bytes_to_check(self, chunks: Sequence[Chunk], *, is_linked: bool) -> int:
        """Return the bytes of the files that a mix sums.

        `chunks`: those that are looked at or copied. `is_linked`: files are linked, too.
        """
        numbers = set(self._first()) if chunks else set()
        for chunk in chunks:
            numbers.update(self._bodies(chunk))
        if is_linked:
            numbers.update(self._packed())
            for checked in self._datasets.values():
                newer = checked.newer(checked.entries)
                numbers.update(self._numbers[path] for path in newer if path in self._numbers)
        return sum(self.files[number].entry.n_bytes for number in numbers)

    def _check(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            file = self.files[number]
            self._datasets[file.directory].check([file.path])

    def _first(self) -> Iterator[int]:
        masks = ("mask",) if self._settings.count == TRAINED else ()  # they say what is chosen
        return self._of_shards(("idx", ORIGIN, METADATA, *masks))

    def _packed(self) -> Iterator[int]:
        if self._inputs.packing:
            bodies = ("bin", *self._inputs.sidecars) if self._inputs.has_packed_rows else ()
            yield from self._of_shards(("idx", *bodies))

    def _bodies(self, chunk: Chunk) -> Iterator[int]:
        endings = ("bin", *self._inputs.sidecars)
        return self._of_shard(self._inputs.datasets[chunk.input], chunk.entry, endings)

    def _of_shards(self, endings: Sequence[str]) -> Iterator[int]:
        for dataset in self._inputs.datasets:
            for entry in dataset.manifest.shards:
                yield from self._of_shard(dataset, entry, endings)

    def _of_shard(self, dataset: Input, entry: ShardRow, endings: Sequence[str]) -> Iterator[int]:
        """Yield the numbers of the files of a shard that have some endings, and are there."""
        for ending in endings:
            number = self._numbers.get(dataset.directory / f"{entry.name}.{ending}")
            if number is not None:
                yield number
