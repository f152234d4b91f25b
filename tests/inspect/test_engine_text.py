from __future__ import annotations

import pytest

from tokmill.dataset.manifest import EngineEntry
from tokmill.dataset.typed_json import from_json
from tokmill.inspect.summary import describe_engine, engine_line

ENGINE = {
    "name": "gigatoken",
    "version": "0.10.0",
    "reason": "fastest on a sample",
    "n_checked": 1234,
    "mb_per_s": {"gigatoken": 195.4, "fastokens": 171.0},
    "refused": {},
}


def engine(**changes: object) -> EngineEntry:
    return from_json(EngineEntry, {**ENGINE, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"reason": "asked for", "mb_per_s": {}, "n_checked": 0},
            "gigatoken 0.10.0 (asked for)",
        ),
        (
            {"reason": "first exact", "mb_per_s": {}, "n_checked": 184},
            "gigatoken 0.10.0 (first exact; same ids as the reference on 184 texts)",
        ),
        (
            {
                "name": "reference",
                "version": "sentencepiece 0.2.1",
                "reason": "no fast engine gives its ids here",
                "mb_per_s": {},
                "n_checked": 0,
                "refused": {"gigatoken": "not installed", "fastokens": "ids differ"},
            },
            "reference sentencepiece 0.2.1 (no fast engine gives its ids here)\n"
            "gigatoken not used: not installed\n"
            "fastokens not used: ids differ",
        ),
    ],
)
def test_an_engine_is_described_with_its_proof_and_the_others_refusal(changes, expected):
    assert describe_engine(engine(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "checks", "expected"),
    [
        ({}, None, "gigatoken 0.10.0, ids equal to the reference's (checked)"),
        ({}, {"routed": 3}, "gigatoken 0.10.0, ids equal to the reference's (checked)"),
        (
            {"n_checked": 0},
            {"checked": 1},
            "gigatoken 0.10.0, ids equal to the reference's (checked)",
        ),
        ({"n_checked": 0}, {}, "gigatoken 0.10.0, ids not checked"),
        (
            {
                "name": "mix",
                "reason": "documents of datasets, encoded by reference",
                "n_checked": 0,
            },
            {},
            "mix: documents of datasets, encoded by reference",
        ),
        (
            {"name": "mix", "reason": "documents of datasets, encoded by gigatoken"},
            {},
            "mix: documents of datasets, encoded by gigatoken, "
            "ids equal to the reference's (checked)",
        ),
        (
            {"name": "reference", "version": "sentencepiece 0.2.1", "n_checked": 0},
            {},
            "reference: sentencepiece 0.2.1",
        ),
    ],
)
def test_the_line_of_the_summary_names_the_engine_and_whether_its_ids_were_checked(
    changes, checks, expected
):
    assert engine_line(engine(**changes), checks) == expected


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        (None, ""),
        ({"checked": 52, "checked_bytes": 99_999}, " before the run and 52 documents during it"),
        ({"checked": 1}, " before the run and 1 document during it"),
    ],
)
def test_the_report_says_how_much_was_compared(checks, expected):
    text = describe_engine(engine(**{"mb_per_s": {}}), checks)
    reason = "fastest on a sample; same ids as the reference on 1,234 texts"
    assert text == f"gigatoken 0.10.0 ({reason}{expected})"


def test_the_report_says_why_picked_documents_were_not_compared():
    checks = {"checked": 5, "routed": 1, "skipped: too long": 1, "skipped: other": 2}
    assert describe_engine(engine(**{"refused": {"fastokens": "ids differ"}}), checks) == (
        "gigatoken 0.10.0 (fastest on a sample: gigatoken 195 MB/s, fastokens 171 MB/s; "
        "same ids as the reference on 1,234 texts before the run and 5 documents during it)\n"
        "1 document encoded by the reference\n"
        "1 sampled document not compared: too long\n"
        "2 sampled documents not compared: other\n"
        "fastokens not used: ids differ"
    )


@pytest.mark.parametrize(
    ("scan", "kept", "expected"),
    [
        ({}, False, "1,112,064 characters"),
        ({"uncompared": []}, False, "1,112,064 characters"),
        ({"differs": [[0x88F, 0x88F], [0x323B0, 0x33479]]}, False, "1,112,064 characters except "
         "4,299 (the reference encodes their documents)"),
        ({"uncompared": [[0x20000, 0x20001]], "n_characters": 67_584}, False, "67,584 characters "
         "(the reference encodes documents with others)"),
        ({"differs": [[0x88F, 0x88F]], "uncompared": [[0x20000, 0x20001]]}, False, "1,112,064 "
         "characters except 1 (the reference encodes documents with these or others)"),
        ({}, True, "1,112,064 characters (compared in an earlier run)"),
    ],
)  # fmt: skip
def test_the_report_says_on_which_characters_ids_were_compared_and_when(scan, kept, expected):
    scan = {"differs": [], "refused": "", "n_characters": 1_112_064, "n_sequences": 9} | scan
    text = describe_engine(engine(**{"scan": scan, "scan_kept": kept}), {"checked": 2})
    assert text.endswith(f"on 1,234 texts before the run and 2 documents during it, {expected})")
    bare = describe_engine(engine(**{"scan": scan, "scan_kept": kept, "n_checked": 0}))
    assert bare.endswith(f"; same ids as the reference on {expected})")
