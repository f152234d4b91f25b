"""Pages link to what exists, and every page is found from a front page."""

from __future__ import annotations

from tests.docs.pages import PAGES, ROOT, anchors, links


def target(page: str, link: str) -> str:
    """Return the file that a link of a page leads to, relative to the repository."""
    path, _, _ = link.partition("#")
    where = (ROOT / page).parent / path if path else ROOT / page
    return where.resolve().relative_to(ROOT).as_posix()


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    for page in PAGES:
        for link in (link for link in links(page) if "://" not in link):
            path, anchor = target(page, link), link.partition("#")[2]
            assert (ROOT / path).exists(), (page, link)
            assert not anchor or anchor in anchors(path), (page, link)


def test_every_page_is_found_from_the_readme_or_the_front_page_of_the_site() -> None:
    new = [page for page in ("README.md", "docs/index.md") if page in PAGES]
    found = set(new)
    while new:
        page = new.pop()
        linked = {target(page, link) for link in links(page) if "://" not in link}
        more = (linked & set(PAGES)) - found
        found |= more
        new += more
    assert [page for page in PAGES if page not in found] == []
