"""Samples on pages, `<pre><code>` with the trained text in `<mark>`, and those of datasets."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import tokmill
from tests.docs.pages import read

Runs = list[tuple[str, bool]]
"""Texts of a sample, and whether each is trained."""

_COMMAND = re.compile(r"^tokmill sft [^`]+", re.MULTILINE)
_SHOWN = re.compile(r"^<pre><code>(.*?)</code></pre>$", re.MULTILINE | re.DOTALL)


def shown(page: str) -> list[tuple[str, str, Runs]]:
    """Return each sample that a page shows, behind the output and the tokenizer of its command.

    `<br>` breaks a line only on the page.
    """
    text, found = read(page), []
    for sample in _SHOWN.finditer(text):
        *_, command = _COMMAND.finditer(text, 0, sample.start())
        parts = re.split(r"</?mark>", sample[1].replace("<br>", ""))
        runs = [(html.unescape(part), i % 2 == 1) for i, part in enumerate(parts) if part]
        words = command[0].split()
        output, tokenizer = (words[words.index(o) + 1] for o in ("--output", "--tokenizer"))
        found.append((output, tokenizer, runs))
    return found


def written(dataset: Path, tokenizer: Path) -> list[Runs]:
    """Return the samples of a dataset, as the tokenizers library decodes them."""
    opened = tokmill.open(str(dataset))
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    samples = []
    for number in range(len(opened)):
        ids, mask = opened[number], opened.mask(number)
        cuts = np.flatnonzero(np.diff(mask)) + 1
        pieces = zip(np.split(ids, cuts), np.split(mask, cuts), strict=True)
        samples.append(
            [(library.decode(i.tolist(), skip_special_tokens=False), bool(m[0])) for i, m in pieces]
        )
    return samples


def differences(page: str, desk: Path) -> list[str]:
    """Return the samples on a page that its commands have not written to a directory."""
    return [
        f"{page}: no sample of {output} is\n{runs}"
        for output, tokenizer, runs in shown(page)
        if runs not in written(desk / output, desk / tokenizer)
    ]
