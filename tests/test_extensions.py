from __future__ import annotations

import dataclasses
from importlib.metadata import version

import pytest

from tokmill.errors import StateError, UsageError
from tokmill.extensions import check_extensions, check_name, find, find_path, source_sha256
from tokmill.settings.load import build_config
from tokmill.tables import ENGINES, FORMATS, RENDERERS, TRAINERS


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that lays out a distribution with entry points on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def lay_out(name: str, entry_points: str, **modules: str) -> None:
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        (information / "METADATA").write_text(metadata)
        (information / "entry_points.txt").write_text(entry_points)
        for module, code in modules.items():
            (tmp_path / f"{module}.py").write_text(code)

    return lay_out


@pytest.mark.parametrize(("table", "name"), [(ENGINES, "auto"), (RENDERERS, "a:b")])
def test_a_value_of_a_setting_that_names_no_object_is_one_line(table, name):
    with pytest.raises(UsageError, match=f"{table.kind} '{name}': this value does not name one"):
        find(table, name)


def test_a_package_that_cannot_be_imported_is_named(install):
    install("broken", "[tokmill.engines]\nbad = broken_one:ENGINE\n", broken_one="1 / 0\n")
    with pytest.raises(UsageError) as caught:
        find(ENGINES, "bad")
    assert str(caught.value) == (
        "engine bad: broken 1.0 cannot be loaded (broken_one:ENGINE): "
        "ZeroDivisionError: division by zero (broken_one.py:1)"
    )


def test_a_name_of_two_packages_is_an_error_that_names_both(install):
    for name in ("one", "two"):
        install(name, "[tokmill.formats]\ntwice = json:dumps\n")
    with pytest.raises(UsageError) as caught:
        find(FORMATS, "twice")
    assert str(caught.value).startswith("format twice: two packages have it, ")
    assert {"one", "two"} <= set(str(caught.value).split())


def test_the_identity_of_a_package_is_over_all_its_source_files(install, tmp_path):
    sums = set()
    for name in ("pack_one", "pack_two", "pack_three"):
        (tmp_path / name / "inner").mkdir(parents=True)
        for file in ("__init__.py", "inner/__init__.py", "inner/code.py"):
            (tmp_path / name / file).write_text("a = 1\n")
        (tmp_path / name / "data.json").write_text(name)
    (tmp_path / "pack_three/inner/code.py").write_text("a = 2\n")
    install("demo", "[tokmill.formats]\n")
    sums = [source_sha256(f"{n}.inner.code") for n in ("pack_one", "pack_two", "pack_three")]
    assert sums[0] == sums[1] != sums[2]


def test_an_installed_module_is_found_before_one_in_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("dumps = 1\n")
    (tmp_path / "beside.py").write_text("value = 2\n")
    monkeypatch.chdir(tmp_path)
    assert callable(find_path("renderer", "json:dumps").value)
    assert find_path("renderer", "beside:value").value == 2
    with pytest.raises(UsageError, match=r"renderer a:: expected package.module:function"):
        find_path("renderer", "a:")


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("my.py:render", "my:render"),
        ("code/my.py:render", "my:render, in the directory code or with PYTHONPATH=code"),
        ("/a b/my.py:f", "my:f, in the directory /a b or with PYTHONPATH=/a b"),
    ],
)
def test_a_file_in_place_of_a_module_is_told_how_to_name_it(target, advice):
    with pytest.raises(UsageError) as caught:
        find_path("renderer", target)
    said = f"renderer {target}: expected a module, found a file: name it as {advice}"
    assert str(caught.value) == said


def test_a_dotted_path_has_the_distribution_that_installed_its_package(tmp_path, monkeypatch):
    def release(target: str) -> tuple[str, str]:
        extension = find_path("renderer", target).extension
        return extension.distribution, extension.version

    (tmp_path / "beside.py").write_text("value = 2\n")
    monkeypatch.chdir(tmp_path)
    assert release("numpy.linalg:norm") == ("numpy", version("numpy"))
    assert release("click:echo") == ("click", version("click"))
    assert release("json:dumps") == release("sys:exit") == release("beside:value") == ("", "")


def test_another_source_than_the_planned_one_stops_a_worker(tmp_path, monkeypatch):
    (tmp_path / "planned.py").write_text("value = 2\n")
    monkeypatch.chdir(tmp_path)
    extension = find_path("renderer", "planned:value").extension
    check_extensions([extension])
    with pytest.raises(StateError, match=r"^renderer planned:value: its source changed since"):
        check_extensions([dataclasses.replace(extension, sha256="0" * 64)])


@pytest.mark.parametrize(
    ("section", "key", "table"),
    [
        ("input", "format", FORMATS),
        ("render", "renderer", RENDERERS),
        ("run", "engine", ENGINES),
    ],
)
def test_a_setting_takes_every_built_in_name_and_refuses_another(section, key, table):
    for name in table.choices:
        config = build_config({section: {key: name}}, where="run.toml")
        assert getattr(getattr(config, section), key) == name
    with pytest.raises(UsageError) as caught:
        build_config({section: {key: "no-such"}}, where="run.toml")
    assert str(caught.value) == (
        f"run.toml: {section}.{key}: expected one of {', '.join(table.choices)}; found 'no-such'"
    )


@pytest.mark.parametrize("name", ["nanoGPT", "TRL", "Llm.c"])
def test_a_name_in_other_capitals_is_proposed(name):
    with pytest.raises(UsageError, match=rf"; found '{name}': did you mean {name.lower()}\?$"):
        check_name(TRAINERS, name, "trainer")


def test_every_row_names_an_object_that_came_with_tokmill():
    for name in ENGINES.rows:
        value, extension = find(ENGINES, name)
        assert extension is None
        assert value.distribution
