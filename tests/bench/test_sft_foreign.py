"""Foreign source is run without what it imports for other things."""

from __future__ import annotations

import sys

import pytest

from bench.sft_references.foreign import load_file, stubbed
from bench.values import NotMeasured


def test_a_stub_has_whatever_is_asked_of_it(tmp_path):
    path = tmp_path / "source.py"
    path.write_text(
        "from absent.deep.module import Base, logging, Generic\n"
        "import absent.other\n"
        "log = logging.get_logger(__name__)\n"
        "Alias = Generic[int]\n"
        "class Mine(Base):\n"
        "    def answer(self):\n"
        "        return 42\n"
    )
    module = load_file(path, ["absent"])
    assert module.Mine("any", thing=1).answer() == 42
    assert not any(name.startswith("absent") for name in sys.modules)


def test_a_package_that_is_missing_is_named(tmp_path):
    path = tmp_path / "source.py"
    path.write_text("import absent_package_of_tests\n")
    with pytest.raises(NotMeasured, match="needs absent_package_of_tests"):
        load_file(path, ["another"])


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(NotMeasured, match=r"gone\.py: no such file"):
        load_file(tmp_path / "gone.py", [])


def test_a_package_is_imported_from_without_its_own_init(tmp_path):
    folder = tmp_path / "foreign_of_tests"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('not to be run')\n")
    (folder / "part.py").write_text("from . import heavy\nVALUE = 7\n")
    with stubbed(["foreign_of_tests.heavy"], {"foreign_of_tests": folder}):
        from foreign_of_tests import part

    assert part.VALUE == 7
    for name in [name for name in sys.modules if name.startswith("foreign_of_tests")]:
        del sys.modules[name]
