"""The page as a file: one script of ours, data that ends no element, anchors, and its sections."""

from __future__ import annotations

import base64
import hashlib
import json
import re

from tokmill.page.report.report_page import assembled
from tokmill.page.report.section import Section

EVIL = "</script><script>window.evil=1</script><!--\u2028<img src=x onerror=window.evil=1>"


def page(*sections: Section) -> str:
    return assembled("a <dataset>", [Section("overview", "Overview", "<h1>x</h1>"), *sections])


def data_of(html: str) -> dict[str, dict]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(found[1])


def test_data_of_sections_is_read_back_as_it_was_and_ends_no_element():
    html = page(Section("a", "A", "", {"text": EVIL, "n": 1.5}), Section("b", "B", ""))
    assert data_of(html) == {"a": {"text": EVIL, "n": 1.5}}
    assert html.count("</script>") == 2
    assert "<img" not in html


def test_one_script_runs_and_the_policy_has_its_hash():
    html = page(Section("a", "A", "", {"n": 1}))
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "beforeprint" in script
