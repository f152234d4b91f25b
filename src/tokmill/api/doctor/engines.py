"""Whether each installed engine works: it encodes a few texts like the reference, in a child."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa

from tokmill.api.doctor.findings import EngineFound
from tokmill.api.doctor.packages import version
from tokmill.engines.engine import REFERENCE, engine_row, is_installed, load_engine
from tokmill.engines.trial.engine_process import EngineProcess
from tokmill.engines.trial.tasks import EngineToLoad
from tokmill.tables import ENGINES
from tokmill.tokenizer.tokenizer import Token, Tokenizer
from tokmill.tokenizer.tokenizer_json import bpe_text, byte_characters

TEXTS = ("hello, world: 12 cats\n", "猫 и кошка — 🐈")
TIMEOUT_S = 30
_EOS = Token(256, "<|endoftext|>")


def tiny_tokenizer() -> Tokenizer:
    """Return a byte-level BPE of 256 bytes, two merges and eos; it needs no file."""
    characters = byte_characters()
    vocab = {characters[byte]: byte for byte in range(256)} | {
        _EOS.content: 256,
        "ca": 257,
        "cat": 258,
    }
    steps = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    text = bpe_text(
        vocab,
        [("c", "a"), ("ca", "t")],
        [(_EOS.id, _EOS.content)],
        ignore_merges=False,
        normalizer=None,
        pre_tokenizer={"type": "ByteLevel", **steps},
        decoder={"type": "ByteLevel", **steps},
    )
    return Tokenizer(
        name="a tiny tokenizer", kind="json", data=text.encode(), json=text, sha256="",
        vocab_size=259, eos=_EOS, bos=None, special_ids=(_EOS.id,), chat_template=None,
        max_emittable_id=258,
    )  # fmt: skip


def try_engines() -> tuple[EngineFound, ...]:
    """Return every installed engine, the reference first; the others run side by side in children.

    Raises:
        TokenizerError: the reference does not load.
    """
    tokenizer = tiny_tokenizer()
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    batch = reference.encode(pa.array(TEXTS, pa.large_string()))
    bounds = batch.offsets
    expected = [batch.ids[bounds[i] : bounds[i + 1]] for i in range(len(TEXTS))]
    names = [name for name in ENGINES.rows if name != REFERENCE and is_installed(name)]
    with ExitStack() as stack:
        trials = [
            stack.enter_context(EngineProcess(EngineToLoad(name, tokenizer, "text", 1)))
            for name in names
        ]
        for trial in trials:
            trial.begin("differences", TEXTS, expected)
        found = [EngineFound(trial.name, _version(trial.name), _broken(trial)) for trial in trials]
    return (EngineFound(REFERENCE, version("tokenizers")), *found)


def _broken(trial: EngineProcess) -> str:
    differences = trial.result(TIMEOUT_S)
    if trial.refused:
        return trial.refused
    return "; ".join(differences.values())


def _version(name: str) -> str:
    row, _ = engine_row(name)
    return version(row.distribution)
