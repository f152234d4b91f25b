"""Pages link to what exists, and every command on them is run by a test or says why not."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for link in links(page):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), link
        if anchor:
            assert anchor in anchors(path.relative_to(ROOT).as_posix()), link


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {PurePosixPath(link).as_posix() for link in links("README.md")}
    assert [page for page in PAGES if page != "README.md" and page not in linked] == []
