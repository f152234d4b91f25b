from __future__ import annotations

import pickle
import re

import pytest

from tokmill import errors

EXIT_CODES = {
    "VerifyError": 1,
    "UsageError": 2,
    "RecordError": 3,
    "UnreadInputError": 3,
    "TokenizerError": 4,
    "ParityError": 4,
    "StorageError": 5,
    "StateError": 6,
    "WorkerError": 7,
    "TemplateLimitError": 7,
    "TokmillError": 70,
}


def tree() -> dict[str, type[errors.TokmillError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.TokmillError)
    }


def test_every_error_has_its_documented_exit_code():
    assert {name: error.exit_code for name, error in tree().items()} == EXIT_CODES


def drawn(error: type[errors.TokmillError], indent: str = "") -> list[str]:
    """Return the lines of the picture below an error."""
    lines = []
    classes = [one for one in error.__subclasses__() if one.__module__ == errors.__name__]
    for one in classes:
        corner, below = ("└── ", "    ") if one is classes[-1] else ("├── ", "│   ")
        lines += [f"{indent}{corner}{one.__name__} {one.exit_code}", *drawn(one, indent + below)]
    return lines


def test_the_tree_of_errors_is_drawn_in_the_docstring():
    assert errors.__doc__
    picture = [
        line.removeprefix("    ") for line in errors.__doc__.splitlines() if re.search("├|└", line)
    ]
    assert [re.sub(r" +(?=\d)", " ", line) for line in picture] == drawn(errors.TokmillError)


@pytest.mark.parametrize("name", EXIT_CODES)
def test_an_error_survives_the_way_between_processes(name):
    sent = tree()[name]("corpus.jsonl:3: broken")
    received = pickle.loads(pickle.dumps(sent))
    assert type(received) is type(sent)
    assert str(received) == "corpus.jsonl:3: broken"
    assert received.exit_code == sent.exit_code


@pytest.mark.parametrize("name", EXIT_CODES)
def test_an_error_of_a_worker_of_torch_is_one_line(name):
    utils = pytest.importorskip("torch._utils", reason="needs torch")
    message = f"Caught a: b\nin {name}/tokmill.errors.{name}: 3 bytes"
    try:
        raise tree()[name](message)
    except errors.TokmillError:
        wrapped = pickle.loads(pickle.dumps(utils.ExceptionWrapper(where="in DataLoader worker")))
    with pytest.raises(tree()[name]) as found:
        wrapped.reraise()
    assert (type(found.value), str(found.value)) == (tree()[name], message)


def test_unread_input_keeps_its_files_between_processes():
    sent = errors.UnreadInputError("why", ("a.gz: byte 3", "b.gz: byte 4"))
    assert pickle.loads(pickle.dumps(sent)).files == sent.files
