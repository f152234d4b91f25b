"""datatrove and nanotron: `X.ds`, with `.index`, `.metadata` and, for chats, `.loss` beside it.

| file            | content                                                                       |
|-----------------|-------------------------------------------------------------------------------|
| `X.ds`          | ids end to end, uint16 or uint32                                              |
| `X.ds.index`    | end of each document in tokens, u64, without a leading 0                      |
| `X.ds.metadata` | `tokenizer|token bytes`, tokens, tokens in short form; three lines            |
| `X.ds.loss`     | one byte a token, 1 = a target                                                |

Source of the layout: datatrove, pipeline/tokens/tokenizer.py and utils/dataset.py; nanotron,
config/config.py.
"""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.errors import VerifyError
from tokmill.trainers.trainer import Checked, Layout, Linked, Written
from tokmill.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource

SEQ_LEN = 1023
"""Of the windows that are compared; they hold one token more."""

_BLOCK = 1 << 20
_PREFIXES = "kMGTPEZYRQ"


class Datatrove:
    """The files that datatrove's datasets read; nanotron reads them too, but for masks."""

    title = "datatrove"
    kinds = frozenset({"pretrain", "sft"})
    options: frozenset[str] = frozenset()
    reader = ("datatrove", "torch", "humanize", "tqdm")

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return four or three files for each shard, in a folder for each split."""
        files: list[Linked | Written] = []
        name, notes = _tokenizer_name(source)
        for split in source.splits:
            for index, entry in enumerate(source.entries(split)):
                stem = f"{split}/{entry.name}.ds"
                text = metadata(name, source.dtype.itemsize, entry.tokens).encode()
                files += [
                    Linked(stem, source.path(entry.name, "bin")),
                    Written(
                        f"{stem}.index",
                        8 * entry.documents,
                        partial(_write_index, source, split, index),
                    ),
                    Written.of(f"{stem}.metadata", text),
                ]
                if source.kind == "sft":
                    files.append(Linked(f"{stem}.loss", source.path(entry.name, "mask")))
        notes += self._notes(source)
        return Layout(files, self._usage(source, output.absolute()), source.alignment, notes)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every window and document, read with datatrove; see `Trainer.check`."""
        from datatrove.utils.dataset import DatatroveFolderDataset

        n_windows = n_documents = left_out = 0
        for split in source.splits:
            folder = output / split
            theirs: Any = None
            if any(entry.tokens > SEQ_LEN for entry in source.entries(split)):
                theirs = DatatroveFolderDataset(
                    str(folder.absolute()),
                    seq_len=SEQ_LEN,
                    filename_pattern="*.ds",
                    recursive=False,
                    token_size=source.dtype.itemsize,
                )
            first = n_windows
            for shard in source.shards(split):
                _compare_documents(folder / f"{shard.name}.ds", shard)
                n_documents += len(shard.lengths)
                n = len(shard.tokens) // (SEQ_LEN + 1)
                for window in range(n):
                    found = theirs[n_windows - first + window]["input_ids"].numpy()
                    start = window * (SEQ_LEN + 1)
                    if not np.array_equal(found, shard.tokens[start : start + SEQ_LEN + 1]):
                        raise VerifyError(f"{shard.name}.ds: input_ids of window {window} differ")
                n_windows += n
                left_out += len(shard.tokens) - n * (SEQ_LEN + 1)
            if (0 if theirs is None else len(theirs)) != n_windows - first:
                raise VerifyError(f"{folder}: expected {plural(n_windows - first, 'window')}")
        masks = ", loss" if source.kind == "sft" else ""
        compared = (
            f"{plural(n_documents, 'document')}{masks}, {plural(n_windows, 'window')} of "
            f"{SEQ_LEN + 1:,} tokens"
        )
        return Checked(f"datatrove {version('datatrove')}", compared, left_out)

    def _notes(self, source: ExportSource) -> list[str]:
        notes = [
            "windows hold seq_len + 1 tokens, and the rest of each file is left out: "
            "--check counts it for seq_len=1023",
        ]
        if source.kind == "sft":
            notes.append(
                "a loss byte stands at its own token, so the loss of window[1:] is masked by "
                "loss[1:]; datatrove's dataset does not read .loss, your dataset class must"
            )
        return notes

    def _usage(self, source: ExportSource, place: Path) -> str:
        lines = ["from datatrove.utils.dataset import DatatroveFolderDataset", ""]
        for split in source.splits:
            lines += [
                f"{split} = DatatroveFolderDataset(",
                f"    {str(place / split)!r},",
                '    seq_len=2048, filename_pattern="*.ds", recursive=False,',
                f"    token_size={source.dtype.itemsize}, return_positions=True,",
                ")",
            ]
        if source.kind == "sft":
            name = f"{source.splits[0]}/{source.entries(source.splits[0])[0].name}.ds.loss"
            lines += [
                "",
                "# The loss of the first file: window i has loss[i * 2049 : (i + 1) * 2049].",
                f"loss = numpy.fromfile({str(place / name)!r}, dtype=bool)",
            ]
            lines.insert(0, "import numpy")
        return "\n".join(lines)


class Nanotron(Datatrove):
    """nanotron, which reads the files with a dataset of datatrove."""

    title = "nanotron"
    kinds = frozenset({"pretrain"})

    def _notes(self, source: ExportSource) -> list[str]:
        name, _ = _tokenizer_name(source)
        return [
            *super()._notes(source),
            f"nanotron loads the tokenizer {name} that .metadata names: it must be a path there, "
            "or a name of the Hub; the model's vocab_size must be that tokenizer's size, or -1",
        ]

    def _usage(self, source: ExportSource, place: Path) -> str:
        folder = json.dumps(str(place / source.splits[0]), ensure_ascii=False)
        return "\n".join(
            [
                "data_stages:",
                "- name: tokmill",
                "  start_training_step: 1",
                "  data:",
                "    dataset:",
                f"      dataset_folder: [{folder}]",
                "    num_loading_workers: 1",
                "    seed: 42",
            ]
        )


def metadata(name: str, token_bytes: int, n_tokens: int) -> str:
    """Return the text of a `.metadata`: three lines, without a newline at the end."""
    return f"{name}|{token_bytes}\n{n_tokens}\n{short_form(n_tokens)}"


def short_form(n_tokens: int) -> str:
    """Return a number of tokens with three digits and the unit T, as datatrove writes it: 1.39 kT.

    Equal to `humanize.metric(n_tokens, unit="T")` of humanize 4.17, which datatrove calls.
    """
    exponent = len(str(n_tokens)) - 1
    value = n_tokens / 10 ** (exponent // 3 * 3)
    if round(value, 2 - exponent % 3) >= 10 ** (exponent % 3 + 1):  # 999,999 is 1.00 MT
        value /= 1000 if exponent % 3 == 2 else 1
        exponent += 1
    prefix = _PREFIXES[exponent // 3 - 1] if exponent >= 3 else ""
    return f"{value:.{2 - exponent % 3}f} {prefix}T"


def _tokenizer_name(source: ExportSource) -> tuple[str, list[str]]:
    """Return the tokenizer's name as `.metadata` can hold it, and a note if it is another one."""
    name = str(source.manifest.tokenizer.name)
    found = "_".join(name.replace("|", "_").splitlines()) or "unknown"
    if found == name:
        return name, []
    return found, [f".metadata names the tokenizer {found}: it cannot hold {name!r}"]


def _write_index(source: ExportSource, split: str, index: int, file: BinaryIO) -> None:
    shard = source.documents(split).shard(index)
    for start in range(0, len(shard.lengths), _BLOCK):
        some = slice(start, start + _BLOCK)
        ends = shard.offsets[some] // shard.tokens.itemsize + shard.lengths[some]
        file.write(ends.astype("<u8").data)


def _compare_documents(path: Path, shard: Shard) -> None:
    """Compare every document and its loss bytes, read as datatrove's check_dataset reads."""
    from datatrove.tools.check_dataset import load_dataset_bytes, load_doc_ends

    ends = load_doc_ends(path.with_name(f"{path.name}.index").open("rb"))
    if len(ends) != len(shard.lengths):
        raise VerifyError(f"{path}.index: {plural(len(ends), 'document')}")
    bodies: dict[str, Any] = {"": shard.tokens}
    bodies |= {} if shard.mask is None else {".loss": shard.mask}
    for ending, body in bodies.items():
        file = path.with_name(path.name + ending).open("rb")
        try:
            for number, data in enumerate(load_dataset_bytes(file, ends, body.itemsize)):
                if not np.array_equal(np.frombuffer(data, body.dtype), body[shard.span(number)]):
                    raise VerifyError(f"{path}{ending}: document {number} differs")
        except AssertionError as error:  # the file is shorter or longer than its index says
            raise VerifyError(f"{path}{ending}: {error}") from None


TRAINER = Datatrove()
NANOTRON = Nanotron()
