"""One training step on a CPU by a trainer's own code, of all rows of an export; prints its loss.

    python -m tests.oracles.one_step MODEL ROWS FOLDER TRAINER=EXPORT …

In a process of its own, since trainers change the packages that they import, and of several
trainers, since importing them takes seconds. MODEL: a folder of a tiny model; ROWS: all of an
export are in one batch; FOLDER: for what trainers write.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRAINING = {
    "max_steps": 1, "logging_steps": 1, "save_strategy": "no", "report_to": "none",
    "use_cpu": True, "seed": 1,
}  # fmt: skip


def llama_factory(export: Path, model: Path, rows: int, folder: Path) -> float:
    """Return the loss of `llamafactory-cli train` with the lines that the export prints."""
    import trl
    import yaml

    from tokmill.trainers.llama_factory import without_torchaudio

    # Releases of trl after 0.24 lack this class, which other stages need.
    trl.AutoModelForCausalLMWithValueHead = type("Missing", (), {})
    with without_torchaudio():
        from llamafactory.hparams import get_train_args
        from llamafactory.train.sft.workflow import run_sft

    printed = yaml.safe_load(printed_lines(export))
    own = {
        "finetuning_type": "full", "template": "empty", "bf16": False, "flash_attn": "sdpa",
        "model_name_or_path": str(model), "output_dir": str(folder),
        "per_device_train_batch_size": rows, "disable_gradient_checkpointing": True,
    }  # fmt: skip
    run_sft(*get_train_args(TRAINING | printed | own))
    state = json.loads((folder / "trainer_state.json").read_text())
    return float(state["log_history"][0]["loss"])


def ms_swift(export: Path, model: Path, rows: int, folder: Path) -> float:
    """Return the loss of `swift sft` with the options that the export prints."""
    from swift.pipelines.train import sft

    options = TRAINING | {
        "model_type": "llama", "template": "dummy", "tuner_type": "full",
        "torch_dtype": "float32", "output_dir": folder, "add_version": False,
        "per_device_train_batch_size": rows,
        "gradient_checkpointing": False, "attn_impl": "eager", "check_model": False,
    }  # fmt: skip
    losses: list[float] = []
    plain = sft.SwiftSft.train

    def train(self: Any, trainer: Any) -> Any:
        compute = trainer.compute_loss

        def compute_loss(*args: Any, **kwargs: Any) -> Any:
            found = compute(*args, **kwargs)
            losses.append(float(found[0] if isinstance(found, tuple) else found))
            return found

        trainer.compute_loss = compute_loss  # its log has four digits
        return plain(self, trainer)

    sft.SwiftSft.train = train
    words = shlex.split(printed_lines(export).replace("\\\n", " "))[2:]
    words[words.index("MODEL")] = str(model)
    for name, value in options.items():
        words += [f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)]
    sft.sft_main(words)
    return losses[0]


def printed_lines(export: Path) -> str:
    """Return the lines that an export printed, which stand beside it."""
    return export.with_suffix(".txt").read_text()


STEPS: dict[str, Callable[[Path, Path, int, Path], float]] = {
    "llamafactory": llama_factory,
    "ms-swift": ms_swift,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    os.environ |= {"DISABLE_VERSION_CHECK": "1", "HF_HUB_OFFLINE": "1", "USE_HF": "1"}
    model, n_rows, folder, *exports = sys.argv[1:]
    losses = []
    for number, named in enumerate(exports):
        trainer, _, export = named.partition("=")
        output = Path(folder) / str(number)
        losses.append(STEPS[trainer](Path(export), Path(model), int(n_rows), output))
    print(json.dumps(losses))
