"""Makes a folder of datasets with the installed version of tokmill; see README.md beside it.

Inputs are small, and named relative to the folder, so that they can be read from a copy of it.
The half-finished datasets have a finished part, a part of which some steps are committed, and parts
that have not begun. They have the settings of the finished ones, and so the same bytes in the end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from tokmill.config_values import build_config, read_toml

from tokmill.executors.run import run

MTIME_NS = 1_700_000_000_000_000_000
TEXTS = ["hello world hello there", "the cat, the hat; 123 123", "猫猫 狗狗 维基百科"]
RECORDS: list[Any] = [{"text": f"hello {i} 猫 the cat " * (i % 9)} for i in range(160)]
RECORDS[60:60] = ["{bad", {"text": 7}]
CHATS: list[Any] = [
    {
        "messages": [
            {"role": "user", "content": f"the cat {i}?"},
            {"role": "assistant", "content": "hello 猫 " * (i % 7 + 1)},
        ]
    }
    for i in range(90)
]
CHATS[40:40] = ["{bad", {"messages": [{"role": "bot", "content": "?"}]}]

COMMON = """\
[tokenizer]
path = "tokenizer"

[run]
engine = "tokenizers"
threads = 1
batch_bytes = 400
"""
SETTINGS = {
    "pretrain": """
[input]
paths = ["corpus.jsonl"]

[output]
part_bytes = 6000
shard_tokens = 700
val_fraction = 0.1

[limits]
max_reject_fraction = 0.5
""",
    "sft": """
[input]
paths = ["chats.jsonl"]

[output]
part_bytes = 5000
shard_tokens = 300
val_fraction = 0.1

[limits]
max_reject_fraction = 0.5
max_tokens = 64

[sft]
template = "chatml"
packing = 64
packed_rows = true
""",
}
STEPS_OF_PART_1 = 2


class Stopper:
    """An observer that interrupts a run as soon as enough of its second part is committed."""

    def __init__(self, parts: Path | None) -> None:
        self._parts = parts

    def warned(self, text: str) -> None:
        pass

    def noted(self, text: str) -> None:
        pass

    def started(self, plan: Any, n_done: int, ignored: Sequence[str] = ()) -> None:
        pass

    def progressed(self, progress: Any) -> None:
        if self._parts and len(list(self._parts.glob("0000001-*.json"))) == STEPS_OF_PART_1:
            raise KeyboardInterrupt

    def peak_memory_bytes(self) -> int:
        return 0


def write_inputs() -> None:
    """Write corpus, chats, settings and tokenizer into the current directory."""
    for kind, text in SETTINGS.items():
        Path(f"{kind}.toml").write_text(COMMON + text)
    for name, rows in (("corpus.jsonl", RECORDS), ("chats.jsonl", CHATS)):
        lines = (r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in rows)
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.utime(name, ns=(MTIME_NS, MTIME_NS))
    library = Tokenizer(BPE())
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    library.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=290,
        special_tokens=["<eos>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(TEXTS, trainer)
    Path("tokenizer").mkdir()
    library.save("tokenizer/tokenizer.json", pretty=False)
    config = json.dumps({"eos_token": "<eos>"})
    Path("tokenizer/tokenizer_config.json").write_text(config + "\n")


def make(kind: str) -> None:
    """Make the finished and the half-finished dataset of one kind in the current directory."""
    for name, is_whole in ((kind, True), (f"{kind}-half", False)):
        out = Path(name)
        values = read_toml(Path(f"{kind}.toml"))
        values["output"]["dir"] = name
        try:
            run(build_config(values, where="make.py"), Stopper(None if is_whole else out / "parts"))
        except KeyboardInterrupt:
            if is_whole:
                raise
        if (out / "manifest.json").exists() != is_whole:
            raise SystemExit(f"{out}: not stopped where it should be")
        (out / ".lock").unlink()


def main() -> None:
    """Make the folder that the command line names, anew."""
    folder = Path(__file__).parent / sys.argv[1]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chdir(folder)
    os.environ["TOKMILL_CACHE_DIR"] = str(folder / "cache")
    write_inputs()
    for kind in SETTINGS:
        make(kind)
    shutil.rmtree("cache", ignore_errors=True)


if __name__ == "__main__":
    main()
