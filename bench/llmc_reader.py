"""Reads an export with llm.c's own loader in C, and compares every token with the dataset.

    git clone https://github.com/karpathy/llm.c
    python -m bench.llmc_reader llm.c out

Exports the dataset, compiles a program against llmc/dataloader.h of the checkout with gcc, and
compares the inputs and targets of every batch with eos and the documents of the dataset. Prints
what was compared, and what the loader leaves out at the end of each file; exits 1 on a difference.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

from tokmill.api.dataset import open_dataset
from tokmill.trainers.exporting.export import export
from tokmill.trainers.options import ExportOptions

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "dataloader.h"

/* PATTERN B T: write every input and every target of one epoch to standard output as int32. */
int main(int argc, char **argv) {
    DataLoader loader;
    size_t n = (size_t)atoi(argv[2]) * (size_t)atoi(argv[3]);
    dataloader_init(&loader, argv[1], (size_t)atoi(argv[2]), (size_t)atoi(argv[3]), 0, 1, 0);
    for (size_t shard = 0; shard < loader.glob_result.gl_pathc; shard++) {
        size_t batches = loader.shard_num_samples;
        for (size_t i = 0; i < batches; i++) {
            dataloader_next_batch(&loader);
            fwrite(loader.inputs, sizeof(int), n, stdout);
            fwrite(loader.targets, sizeof(int), n, stdout);
        }
        if (shard + 1 < loader.glob_result.gl_pathc) {
            dataloader_advance_(&loader);
        }
    }
    dataloader_free(&loader);
    return 0;
}
"""


def compile_reader(checkout: Path, folder: Path) -> Path:
    """Compile the program against the headers of a checkout of llm.c; return its path."""
    source, program = folder / "reader.c", folder / "reader"
    source.write_text(PROGRAM)
    headers = checkout / "llmc" if (checkout / "llmc").is_dir() else checkout
    # llm.c's functions are `extern inline`, as its own test program takes them
    command = ["gcc", "-O2", "-I", str(headers), "-o", str(program), str(source), "-lm"]
    subprocess.run(command, check=True)
    return program


def read_batches(program: Path, pattern: str, b: int, t: int) -> np.ndarray:
    """Return what the loader returned in an epoch: (n_batches, 2, B x T) int32."""
    done = subprocess.run([program, pattern, str(b), str(t)], check=True, capture_output=True)
    return np.frombuffer(done.stdout, "<i4").reshape(-1, 2, b * t)


def expected_files(directory: Path, split: str, ends: list[int]) -> list[np.ndarray]:
    """Return the tokens of each file from the documents: eos before each, none at the end."""
    dataset = open_dataset(directory)
    eos = dataset.manifest["tokenizer"]["eos"]["id"]
    stream: list[np.ndarray] = []
    number = 0
    for shard in dataset.shards:
        if shard.split == split:
            documents = range(number, number + shard.documents)
            stream += [np.append([eos], dataset[i][:-1]).astype(np.int32) for i in documents]
        number += shard.documents
    return np.split(np.concatenate(stream), ends[:-1])


def differences(files: list[np.ndarray], batches: np.ndarray) -> tuple[int, int]:
    """Return the tokens that differ, and those that the loader left out at the ends of files."""
    n_different = n_left = at = 0
    size = batches.shape[2]
    for tokens in files:
        count = (len(tokens) - 1) // size
        inputs, targets = batches[at : at + count].transpose(1, 0, 2).reshape(2, -1)
        n_different += int((inputs != tokens[: len(inputs)]).sum())
        n_different += int((targets != tokens[1 : len(targets) + 1]).sum())
        n_left += len(tokens) - count * size
        at += count
    return n_different + abs(len(batches) - at) * size, n_left


@click.command()
@click.argument("checkout", type=click.Path(exists=True, path_type=Path))
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option("-b", "b", default=2, help="Rows of a batch.")
@click.option("-t", "t", default=64, help="Tokens of a row.")
@click.option("--file-tokens", default=ExportOptions().file_tokens)
def main(checkout: Path, directory: Path, b: int, t: int, file_tokens: int) -> None:
    """Compare an export with its dataset; exit 1 on a difference."""
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compile_reader(checkout, folder)
        options = ExportOptions(file_tokens=file_tokens)
        made = export(directory, "llm.c", folder / "export", options)
        for split in ("train", "val"):
            paths = sorted(made.output.glob(f"*_{split}_*.bin"))
            if not paths:
                continue
            ends = np.cumsum([(path.stat().st_size - 1024) // 2 for path in paths]).tolist()
            batches = read_batches(program, f"{made.output}/*_{split}_*.bin", b, t)
            wrong, left = differences(expected_files(directory, split, ends), batches)
            print(
                f"{split}: {len(paths)} files, {ends[-1]:,} tokens, {len(batches):,} batches of "
                f"{b} x {t}: {wrong} differences; left out at the ends of files: {left:,}"
            )
            failed = failed or wrong > 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
