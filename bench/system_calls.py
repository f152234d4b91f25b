"""What a command does to the files below a directory, as strace sees it: for `bench.power_cuts`.

strace notes the system calls of all processes and threads of the command, with the bytes of each
write. They become operations on a tree of nodes (files and folders), in the order in which they
ended. Calls whose effect cannot be told from the notes are refused, and the tree that all
operations give is compared with the disk: a recording is right, or there is none.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "open", "openat", "creat", "write", "pwrite64", "writev", "pwritev", "lseek", "truncate",
    "ftruncate", "fallocate", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
    "symlinkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "fsync", "fdatasync", "msync",
    "sync", "syncfs", "sync_file_range", "sendfile", "copy_file_range", "ioctl", "mmap", "dup",
    "dup2", "dup3", "fcntl", "clone", "clone3", "fork", "vfork",
)  # fmt: skip

Tree = dict[str, bytes | None]
"""The bytes of each file, and None for each folder, by path below the directory."""


@dataclass(frozen=True)
class Write:
    """Bytes of a file from an offset on."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class Cut:
    """Another length of a file."""

    file: int
    length: int


@dataclass(frozen=True)
class Names:
    """Names that change together: a folder, a name in it, and its node from now on, or None."""

    changes: tuple[tuple[int, str, int | None], ...]


@dataclass(frozen=True)
class Sync:
    """A file or folder that is made durable, as it was after the first `since` operations."""

    node: int
    since: int


Operation = Write | Cut | Names | Sync


@dataclass
class Recording:
    """The operations of a command, and the tree before them.

    Attributes:
        folders: the names in each folder at the beginning, by node; the directory is node 0.
        files: the bytes of each file at the beginning, by node.
    """

    folders: dict[int, dict[str, int]] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)

    def tree(self, operations: Sequence[Operation]) -> Tree:
        """Return the tree after some operations on the tree of the beginning."""
        names = {node: dict(entries) for node, entries in self.folders.items()}
        content = {node: bytearray(data) for node, data in self.files.items()}
        for operation in operations:
            match operation:
                case Write(file, offset, data):
                    content.setdefault(file, bytearray())
                    _write(content[file], offset, data)
                case Cut(file, length):
                    content.setdefault(file, bytearray())
                    _cut(content[file], length)
                case Names(changes):
                    for folder, name, node in changes:
                        entries = names.setdefault(folder, {})
                        entries.pop(name, None)
                        if node is not None:
                            entries[name] = node
        is_folder = self.is_folder
        found: Tree = {}
        waiting = [("", 0)]
        while waiting:
            path, folder = waiting.pop()
            for name, node in names.get(folder, {}).items():
                below = f"{path}/{name}" if path else name
                if is_folder(node):
                    found[below] = None
                    waiting.append((below, node))
                else:
                    found[below] = bytes(content.get(node, b""))
        return found

    def is_folder(self, node: int) -> bool:
        """Return whether a node is a folder; files have negative numbers."""
        return node >= 0


def _write(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _cut(content: bytearray, length: int) -> None:
    del content[length:]
    content.extend(bytes(length - len(content)))


def read_tree(directory: Path) -> Tree:
    """Return what stands below a directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def record(command: Sequence[str], directory: Path) -> Recording:
    """Run a command under strace; return what it did below `directory`.

    Raises:
        RuntimeError: strace is missing, the command failed, or a call cannot be followed.
    """
    if shutil.which("strace") is None:
        raise RuntimeError("strace is missing: apt install strace")
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "calls"
        calls = Calls(directory)
        words = ["strace", "-f", "-y", "-xx", "-s", str(1 << 28), "--seccomp-bpf", "-o", str(notes)]
        traced = [*words, "-e", f"trace={','.join(CALLS)}", *command]
        done = subprocess.run(traced, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        with notes.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                calls.add(line)
    recording = calls.recording
    found, expected = recording.tree(recording.operations), read_tree(directory)
    if found != expected:
        wrong = [name for name in found | expected if found.get(name) != expected.get(name)]
        raise RuntimeError(f"the recording differs from the disk: {', '.join(sorted(wrong))}")
    return recording


class Calls:
    """Turns the lines of strace into operations below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = os.fspath(directory)
        self.recording = Recording({0: {}})
        self._n_nodes = 0
        self._names: dict[int, dict[str, int]] = {0: {}}
        self._begun: dict[str, tuple[str, int]] = {}
        self._process: dict[str, str] = {}
        self._places: dict[tuple[str, str], list[int]] = {}
        for path, data in sorted(read_tree(directory).items()):
            folder, name = self._folder_of(f"{self._directory}/{path}")
            node = self._new_node(is_folder=data is None)
            self._names[folder][name] = self.recording.folders[folder][name] = node
            if data is None:
                self.recording.folders[node] = {}
            else:
                self.recording.files[node] = data

    def add(self, line: str) -> None:
        """Add the call of a line, when it has ended without an error."""
        thread, _, text = line.rstrip("\n").partition(" ")
        text, since = text.lstrip(), len(self.recording.operations)
        if text.endswith("<unfinished ...>"):
            self._begun[thread] = text.removesuffix("<unfinished ...>").rstrip(), since
            return
        if resumed := re.match(r"<\.\.\. \w+ resumed>", text):
            begun, since = self._begun.pop(thread)
            text = begun + text[resumed.end() :]
        call = re.fullmatch(r"(\w+)\((.*)\)\s+= (-?\w+)(<.*>)?.*", text)
        if call is None or call[3].startswith("-"):
            return
        name, arguments = call[1], _arguments(call[2])
        process = self._process.setdefault(thread, thread)
        method: Callable[..., None] | None = getattr(self, f"_{name}", None)
        if name in ("clone", "clone3", "fork", "vfork"):
            self._fork(process, call[3], is_thread="CLONE_THREAD" in call[2])
        elif name in ("fsync", "fdatasync"):
            if (node := self._node(_path(arguments[0]))) is not None:
                self._do(Sync(node, since))
        elif method is not None:
            method(process, arguments, call[3])
        elif any(self._is_inside(_path(argument)) for argument in arguments):
            raise RuntimeError(f"a call that cannot be followed: {text[:200]}")

    # Descriptors

    def _fork(self, process: str, child: str, *, is_thread: bool) -> None:
        self._process[child] = process if is_thread else child
        for (owner, number), place in list(self._places.items()):
            if is_thread and owner == child:  # it ran before the call that made it had ended
                self._places[process, number] = self._places.pop((child, number))
            elif not is_thread and owner == process:
                self._places.setdefault((child, number), place)

    def _openat(self, process: str, arguments: list[str], number: str) -> None:
        path = self._at(arguments[0], arguments[1])
        self._opened(process, path, arguments[2], number)

    def _open(self, process: str, arguments: list[str], number: str) -> None:
        self._opened(process, _text(arguments[0]), arguments[1], number)

    def _creat(self, process: str, arguments: list[str], number: str) -> None:
        self._opened(process, _text(arguments[0]), "O_CREAT|O_TRUNC", number)

    def _opened(self, process: str, path: str, flags: str, number: str) -> None:
        if not self._is_inside(path):
            return
        node = self._node(path)
        if node is None and "O_CREAT" in flags:
            node = self._new_node(is_folder=False)
            self._do(Names(((*self._folder_of(path), node),)))
        elif node is not None and "O_TRUNC" in flags:
            self._do(Cut(node, 0))
        if "O_APPEND" in flags:
            raise RuntimeError(f"a file that is appended to: {path}")
        self._places[process, number] = [0]

    def _dup(self, process: str, arguments: list[str], number: str) -> None:
        place = self._places.get((process, arguments[0].partition("<")[0]))
        if place is not None:
            self._places[process, number] = place

    _dup2 = _dup3 = _dup

    def _fcntl(self, process: str, arguments: list[str], number: str) -> None:
        if arguments[1].startswith("F_DUPFD"):
            self._dup(process, arguments, number)

    def _lseek(self, process: str, arguments: list[str], place: str) -> None:
        known = self._places.get((process, arguments[0].partition("<")[0]))
        if known is not None:
            known[0] = int(place)

    # Bytes

    def _write(self, process: str, arguments: list[str], count: str) -> None:
        if (node := self._node(_path(arguments[0]))) is not None:
            place = self._places[process, arguments[0].partition("<")[0]]
            self._do(Write(node, place[0], _bytes(arguments[1])[: int(count)]))
            place[0] += int(count)

    def _writev(self, process: str, arguments: list[str], count: str) -> None:
        if (node := self._node(_path(arguments[0]))) is not None:
            data = b"".join(_bytes(text) for text in re.findall(r'"[^"]*"', arguments[1]))
            place = self._places[process, arguments[0].partition("<")[0]]
            self._do(Write(node, place[0], data[: int(count)]))
            place[0] += int(count)

    def _pwrite64(self, _process: str, arguments: list[str], count: str) -> None:
        if (node := self._node(_path(arguments[0]))) is not None:
            self._do(Write(node, int(arguments[3]), _bytes(arguments[1])[: int(count)]))

    def _sendfile(self, process: str, arguments: list[str], count: str) -> None:
        if (node := self._node(_path(arguments[0]))) is not None:
            place = self._places[process, arguments[0].partition("<")[0]]
            start = int(arguments[2].strip("[]")) if arguments[2] != "NULL" else place[0]
            with Path(_path(arguments[1])).open("rb") as file:
                file.seek(start)
                self._do(Write(node, place[0], file.read(int(count))))
            place[0] += int(count)

    def _ftruncate(self, _process: str, arguments: list[str], _result: str) -> None:
        if (node := self._node(_path(arguments[0]))) is not None:
            self._do(Cut(node, int(arguments[1])))

    def _truncate(self, _process: str, arguments: list[str], _result: str) -> None:
        if (node := self._node(_text(arguments[0]))) is not None:
            self._do(Cut(node, int(arguments[1])))

    def _mmap(self, _process: str, arguments: list[str], _result: str) -> None:
        path = _path(arguments[4])
        writes = "PROT_WRITE" in arguments[2] and "MAP_SHARED" in arguments[3]
        if writes and self._is_inside(path) and "/.mix/" not in path:
            # What a mix writes so is never synced: after a power cut it is made again.
            raise RuntimeError(f"a file that is written through memory: {path}")

    def _ioctl(self, _process: str, arguments: list[str], _result: str) -> None:
        if "FICLONE" in arguments[1] and self._is_inside(_path(arguments[0])):
            raise RuntimeError("a file that shares blocks: record on another file system")

    # Names

    def _mkdirat(self, _process: str, arguments: list[str], _result: str) -> None:
        self._made(self._at(arguments[0], arguments[1]))

    def _mkdir(self, _process: str, arguments: list[str], _result: str) -> None:
        self._made(_text(arguments[0]))

    def _made(self, path: str) -> None:
        if self._is_inside(path):
            self._do(Names(((*self._folder_of(path), self._new_node(is_folder=True)),)))

    def _linkat(self, _process: str, arguments: list[str], _result: str) -> None:
        old = self._at(arguments[0], arguments[1])
        self._linked(old, self._at(arguments[2], arguments[3]))

    def _link(self, _process: str, arguments: list[str], _result: str) -> None:
        self._linked(_text(arguments[0]), _text(arguments[1]))

    def _linked(self, old: str, new: str) -> None:
        if not self._is_inside(new):
            return
        node = self._node(old)
        if node is None:  # a file from elsewhere, which nobody changes
            node = self._new_node(is_folder=False)
            self.recording.files[node] = Path(old).read_bytes()
        self._do(Names(((*self._folder_of(new), node),)))

    def _unlinkat(self, _process: str, arguments: list[str], _result: str) -> None:
        self._removed(self._at(arguments[0], arguments[1]))

    def _unlink(self, _process: str, arguments: list[str], _result: str) -> None:
        self._removed(_text(arguments[0]))

    _rmdir = _unlink

    def _removed(self, path: str) -> None:
        if self._is_inside(path):
            self._do(Names(((*self._folder_of(path), None),)))

    def _renameat(self, _process: str, arguments: list[str], _result: str) -> None:
        old, new = self._at(arguments[0], arguments[1]), self._at(arguments[2], arguments[3])
        self._renamed(old, new, "".join(arguments[4:]))

    _renameat2 = _renameat

    def _rename(self, _process: str, arguments: list[str], _result: str) -> None:
        self._renamed(_text(arguments[0]), _text(arguments[1]), "")

    def _renamed(self, old: str, new: str, flags: str) -> None:
        if self._is_inside(old) != self._is_inside(new):
            raise RuntimeError(f"a rename into or out of the directory: {old} to {new}")
        if self._is_inside(old):
            there = self._node(new) if "RENAME_EXCHANGE" in flags else None
            moved = *self._folder_of(old), there
            self._do(Names((moved, (*self._folder_of(new), self._node(old)))))

    # The tree

    def _do(self, operation: Operation) -> None:
        self.recording.operations.append(operation)
        if isinstance(operation, Names):
            for folder, name, node in operation.changes:
                self._names[folder].pop(name, None)
                if node is not None:
                    self._names[folder][name] = node

    def _new_node(self, *, is_folder: bool) -> int:
        self._n_nodes += 1
        if is_folder:
            self._names[self._n_nodes] = {}
            return self._n_nodes
        return -self._n_nodes

    def _is_inside(self, path: str) -> bool:
        return path.startswith(f"{self._directory}/")

    def _at(self, folder: str, name: str) -> str:
        """Return the path of a name in the folder of a descriptor."""
        return os.path.normpath(Path(_path(folder)) / _text(name))

    def _folder_of(self, path: str) -> tuple[int, str]:
        """Return the node of the folder in which a path stands, and the name there."""
        above, _, name = path.rpartition("/")
        folder = self._node(above)
        if folder is None:
            raise RuntimeError(f"{path}: in no folder that is known")
        return folder, name

    def _node(self, path: str) -> int | None:
        """Return the node of a path now; None: there is none, or it is elsewhere."""
        if path == self._directory:
            return 0
        if not self._is_inside(path):
            return None
        node: int | None = 0
        for name in path.removeprefix(f"{self._directory}/").split("/"):
            node = self._names.get(node or 0, {}).get(name)
            if node is None:
                return None
        return node


def _arguments(text: str) -> list[str]:
    """Return the arguments of a call."""
    return list(_split(text))


def _split(text: str) -> Iterator[str]:
    depth, start, is_quoted = 0, 0, False
    for place, letter in _marks(text):
        if letter == '"':
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        elif not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def _marks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the letters that part arguments; strings are hexadecimal, and hold none of them."""
    return ((found.start(), found[0]) for found in re.finditer(r'["\[\]{},]', text))


def _text(argument: str) -> str:
    """Return the text of an argument in quotes."""
    return os.fsdecode(_bytes(argument))


def _bytes(argument: str) -> bytes:
    """Return the bytes of an argument in quotes, written in hexadecimal."""
    if argument.endswith("..."):
        raise RuntimeError("a write that is too long for a recording")
    return bytes.fromhex(argument.strip('"').replace("\\x", ""))


def _path(argument: str) -> str:
    """Return the path that strace gives of a descriptor, such as `3</tmp/out>`."""
    path = argument.partition("<")[2].removesuffix(">")
    if "\\x" in path:
        return os.fsdecode(bytes.fromhex(path.replace("\\x", "")))
    return path
