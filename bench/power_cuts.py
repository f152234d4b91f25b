"""Cut the power at every moment of a command, in a model of a disk; count what is lost.

    python -m bench.power_cuts                            every kind of work, 22 disks a moment
    python -m bench.power_cuts --only mix --moments 40    a sample of the moments

strace records what a command writes, names, and syncs. For each prefix of that, disks are made as a
power cut may leave them: with nothing of what was not yet synced, with all of it, and with seeded
parts of it. A write may be there in whole, in some of its sectors (zeros in place of the others),
or not at all. Names are of two models: a journal, as ext4 and XFS keep it, where changes come in
their order, and a sync of anything makes all names before it durable; and one as POSIX promises,
where each change of a folder that was not synced may be lost by itself.

Each disk that differs from all others is asked: is what is there whole or incomplete, and never
"complete" with a hole? Does the same command, run again, end with the bytes of a run that nothing
stopped? After the command has ended well, is everything there? The last line is JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import faults
from bench.soak import INPUTS, READ, SAMPLES
from bench.system_calls import Cut, Names, Operation, Recording, Sync, Tree, Write, record

SEEDS = 20
SECTOR = 512


@dataclass(frozen=True)
class Work:
    """A kind of work: its command, and what comes before it; all write to `{out}`.

    `lost`: a file of the output that is missing, so that the command makes its part again.
    """

    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    lost: str = ""


_RUN = (
    "pretrain", "{samples}/records.jsonl", "-t", "{tokenizer}", "--part-bytes", "100kB",
    "--val-fraction", "0.2", "-o", "{out}", *READ,
)  # fmt: skip
_OTHER = (
    "pretrain", "{samples}/records.jsonl", "-t", "{tokenizer}", "--shard-tokens", "20k",
    "-o", "{out}", *READ,
)  # fmt: skip
_MIX = (
    "mix", "{inputs}/documents=2x", "{inputs}/records", "--shuffle", "7", "--dedup",
    "--workers", "1", "-o", "{out}",
)  # fmt: skip
WORKS = {
    "run": Work(_RUN),
    "run, over another": Work((*_RUN, "--overwrite"), (_OTHER,)),
    "run, a lost file": Work(_RUN, (_RUN,), lost="train-0000001-0000.idx"),
    "mix": Work(_MIX),
    "mix, a lost file": Work(_MIX, (_MIX,), lost="train-0000000-0000.bin"),
    "mix, linked": Work(("mix", "{inputs}/documents", "{inputs}/records", "-o", "{out}")),
    "mix, over a run": Work((*_MIX, "--overwrite"), (_OTHER,)),
    "pack": Work(("pack", "{out}", "--length", "512"), (_OTHER,)),
    "pack again": Work(
        ("pack", "{out}", "--length", "700"), (_OTHER, ("pack", "{out}", "--length", "512"))
    ),
    "import": Work(
        ("import", "{inputs}/exported", "--from", "nanogpt", "-t", "{tokenizer}", "-o", "{out}")
    ),
    "export": Work(("export", "{inputs}/documents", "--to", "megatron", "-o", "{out}")),
    "export, over another": Work(
        ("export", "{inputs}/documents", "--to", "megatron", "-o", "{out}", "--overwrite"),
        (("export", "{inputs}/records", "--to", "nanogpt", "-o", "{out}"),),
    ),
}


@dataclass
class Found:
    """What the cuts came to."""

    moments: int = 0
    disks: int = 0
    problems: list[str] = field(default_factory=list)


class Desk:
    """A folder in which all works are done; what each one makes when nothing stops it."""

    def __init__(self, folder: Path) -> None:
        # The disk is the folder around the output: its name is on the disk, too.
        self.disk = folder / "disk"
        self.out = self.disk / "out"
        self.places = {
            "samples": SAMPLES, "tokenizer": SAMPLES / "tokenizer", "inputs": folder / "inputs",
            "out": self.out,
        }  # fmt: skip
        self.disk.mkdir()
        for words in INPUTS:
            self.run(words)

    def words(self, command: Sequence[str]) -> tuple[str, ...]:
        """Return the words of a command with the places of its files."""
        return tuple(word.format_map(self.places) for word in command)

    def run(self, command: Sequence[str]) -> None:
        """Run a command to its end; raises `RuntimeError` if it fails."""
        ended = faults.run([self.words(command)], self.out)
        if ended.status:
            raise RuntimeError(f"{command}: {ended.errors}")

    def clear(self) -> None:
        """Empty the disk."""
        shutil.rmtree(self.disk)
        self.disk.mkdir()

    def write(self, tree: Tree) -> None:
        """Make the disk hold a tree."""
        self.clear()
        for name, data in sorted(tree.items()):
            path = self.disk / name
            if data is None:
                path.mkdir()
            else:
                path.write_bytes(data)


class WorkOnDesk:
    """A work that was recorded, with the files before it and after it."""

    def __init__(self, desk: Desk, work: Work) -> None:
        self.desk, self.work = desk, work
        desk.clear()
        for command in work.before:
            desk.run(command)
        if work.lost:
            (desk.out / work.lost).unlink()
        self.before = faults.sums(desk.out)
        words = (sys.executable, "-m", "tokmill", *desk.words(work.command))
        self.recording = record(words, desk.disk)
        self.after = faults.sums(desk.out)
        desk.clear()

    def problems(self, tree: Tree, *, has_ended: bool, runs_again: bool = True) -> list[str]:
        """Return what is wrong with a disk: as it is, and after the command was run again."""
        self.desk.write(tree)
        found = faults.sums(self.desk.out)
        problems = self._hole(found)
        if has_ended and found != self.after:
            problems.append("the command had ended, and not all is there")
        is_export = self.work.command[0] == "export"
        is_whole = bool(found) and not problems and found != self.before
        if runs_again and not (is_export and is_whole):  # a whole export is refused
            problems += self._next_run(is_export=is_export)
        return problems

    def _next_run(self, *, is_export: bool) -> list[str]:
        """Return what is wrong after the command was run again."""
        commands = [self.desk.words(self.work.command)]
        if not is_export:
            commands.append(self.desk.words(("verify", "{out}")))
        ended = faults.run(commands, self.desk.out, prepare=_start_machine_again)
        if ended.status or ended.has_traceback:
            return [f"the next run ended with {ended.status}: {ended.errors.strip()}"]
        found, problems = faults.sums(self.desk.out), []
        other = [name for name in found | self.after if found.get(name) != self.after.get(name)]
        if other:
            problems.append(f"other bytes after the next run: {', '.join(sorted(other))}")
        left = [name for name in faults.hidden(self.desk.disk) if name != "out/.lock"]
        if left:
            problems.append(f"left behind: {', '.join(left)}")
        return problems

    def _hole(self, found: dict[str, str]) -> list[str]:
        """Return a line if the output looks complete, and is neither the old one nor the new."""
        is_complete = "manifest.json" in found or (self.work.command[0] == "export" and found)
        if not is_complete or found in (self.before, self.after):
            return []
        whole = self.after
        if self.before and found.get("manifest.json") == self.before.get("manifest.json"):
            whole = self.before
        wrong = [name for name, digest in whole.items() if found.get(name) != digest]
        return [f"complete, with holes: {', '.join(sorted(wrong))}"] if wrong else []


def _start_machine_again() -> None:
    """Let a mix see another number of the machine's start, as after a power cut."""
    from tokmill.mixing import begin

    begin._boot = lambda: "another start"


def durable_from(operations: Sequence[Operation]) -> list[int]:
    """Return after how many operations each is durable: when a sync of its file or folder ended."""
    never = len(operations) + 1
    found = [never] * len(operations)
    waiting: dict[int, list[int]] = {}
    for number, operation in enumerate(operations):
        match operation:
            case Write(file) | Cut(file):
                waiting.setdefault(file, []).append(number)
            case Names(changes):
                for folder, _, _ in changes:
                    waiting.setdefault(folder, []).append(number)
            case Sync(node, since):
                synced = [one for one in waiting.get(node, []) if one < since]
                waiting[node] = [one for one in waiting.get(node, []) if one >= since]
                for one in synced:
                    found[one] = min(found[one], number + 1)
    return found


def disks(recording: Recording, durable: Sequence[int], moment: int, seeds: int) -> Iterator[Tree]:
    """Yield the disks that a power cut after `moment` operations may leave."""
    operations = recording.operations[:moment]
    is_durable = [durable[number] <= moment for number in range(moment)]
    yield recording.tree([one for one, stays in zip(operations, is_durable, strict=True) if stays])
    yield recording.tree(operations)
    for seed in range(seeds):
        chance = random.Random(f"{moment}-{seed}")
        in_journal = seed % 2 == 0
        yield recording.tree(list(_some(operations, is_durable, chance, in_journal=in_journal)))


def _some(
    operations: Sequence[Operation],
    is_durable: Sequence[bool],
    chance: random.Random,
    *,
    in_journal: bool,
) -> Iterator[Operation]:
    """Yield what is on a disk that has a part of what was not synced."""
    likely = chance.choice((0.2, 0.5, 0.8))
    synced = [operation.since for operation in operations if isinstance(operation, Sync)]
    journal_end = chance.randint(max(synced, default=0), len(operations))
    for number, operation in enumerate(operations):
        if is_durable[number]:
            yield operation
        elif in_journal and isinstance(operation, Names):
            if number < journal_end:
                yield operation
        elif chance.random() < likely:
            yield _torn(operation, chance) if isinstance(operation, Write) else operation


def _torn(write: Write, chance: random.Random) -> Write:
    """Return a write of which some sectors are zeros, or the end is missing; or the whole one."""
    how = chance.choice(("whole", "short", "holes"))
    if how == "whole":
        return write
    if how == "short":
        return Write(write.file, write.offset, write.data[: chance.randint(0, len(write.data))])
    data = bytearray(write.data)
    for start in range(0, len(data), SECTOR):
        if chance.random() < 0.5:
            data[start : start + SECTOR] = bytes(len(data[start : start + SECTOR]))
    return Write(write.file, write.offset, bytes(data))


def cut_everywhere(
    work: WorkOnDesk, *, seeds: int = SEEDS, moments: int = 0, runs_again: bool = True
) -> Found:
    """Cut the power at all moments of a work, or at some of them, and look at each disk."""
    operations = work.recording.operations
    durable, found, seen = durable_from(operations), Found(), set[bytes]()
    chosen: Sequence[int] = range(len(operations) + 1)
    if moments:
        chosen = sorted({*random.Random(1).sample(chosen, moments), len(operations)})
    for moment in chosen:
        found.moments += 1
        has_ended = moment == len(operations)
        for number, tree in enumerate(disks(work.recording, durable, moment, seeds)):
            digest = hashlib.sha256(repr((has_ended, sorted(tree.items()))).encode()).digest()
            if digest in seen:
                continue
            seen.add(digest)
            found.disks += 1
            for problem in work.problems(tree, has_ended=has_ended, runs_again=runs_again):
                found.problems.append(f"after {moment} operations, disk {number}: {problem}")
    return found


def main() -> None:
    """Cut the power; exit with 1 if there was a problem."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append", choices=WORKS)
    parser.add_argument("--moments", type=int, default=0, help="this many of each work; 0: all")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="disks with a part, each moment")
    options = parser.parse_args()
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        for name in options.only or WORKS:
            work = WorkOnDesk(desk, WORKS[name])
            found = cut_everywhere(work, seeds=options.seeds, moments=options.moments)
            result[name] = vars(found)
            for problem in found.problems:
                print(f"{name}, {problem}", file=sys.stderr, flush=True)
            print(
                f"{name}: {len(work.recording.operations)} operations, {found.moments} moments, "
                f"{found.disks} disks, {len(found.problems)} problems",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    print(json.dumps(result))
    sys.exit(1 if any(one["problems"] for one in result.values()) else 0)


if __name__ == "__main__":
    main()
