"""Files for MaxText: those of each split in the order of its mix file."""

from __future__ import annotations

import numpy as np
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def test_the_files_of_a_mix_hold_the_split(pretrained: Dataset, tmp_path) -> None:
    made = export(pretrained.directory, "maxtext", tmp_path / "e", ExportOptions(), check=True)
    for name in ("train", "val"):
        split = pretrained.split(name)
        lines = (tmp_path / "e" / f"{name}.txt").read_text().splitlines()
        labels, paths = zip(*(line.split(",") for line in lines), strict=True)
        assert set(labels) == {name}
        parts = [np.fromfile(tmp_path / "e" / path, pretrained.manifest["dtype"]) for path in paths]
        documents = [split[i] for i in range(len(split))]
        assert np.concatenate(parts).tolist() == np.concatenate(documents).tolist()
    assert made.checked is not None
    assert made.checked.compared == f"{pretrained.n_tokens:,} tokens"
    assert "dataset_type: olmo_grain" in made.usage
    assert f"--dtype {pretrained.manifest['dtype']} " in made.usage


def test_check_finds_a_token_that_differs(pretrained: Dataset, tmp_path) -> None:
    from tokmill.extensions import find
    from tokmill.tables import TRAINERS
    from tokmill.trainers.trainer import ExportSource

    export(pretrained.directory, "maxtext", tmp_path / "e", ExportOptions(copy=True))
    path = next((tmp_path / "e" / "train").glob("*.npy"))
    path.chmod(0o600)
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    trainer, source = find(TRAINERS, "maxtext").value, ExportSource(pretrained.directory)
    with pytest.raises(VerifyError, match="token 0 is"):
        trainer.check(source, ExportOptions(), tmp_path / "e")


def test_chats_are_refused(chats: Dataset, tmp_path) -> None:
    with pytest.raises(UsageError, match="would train every token"):
        export(chats.directory, "maxtext", tmp_path / "e", ExportOptions())
