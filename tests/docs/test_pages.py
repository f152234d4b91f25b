"""Pages are short, link to what exists, and every page is found from a front page."""

from __future__ import annotations

from bench.pages import built
from tests.docs.pages import PAGES, ROOT, anchors, links, read

MOST_WORDS = 55_500
"""What people wrote in all pages together; a page that grows makes another one shorter."""

OTHERS = ("CHANGELOG.md", "SECURITY.md", "data_samples/README.md")
BUILT = {f"docs/{path}": text for path, text in built().items()}
"""Pages that only the site has. They are linked from `docs/index.md` alone: elsewhere than on the
site, such a link leads nowhere."""


def test_all_pages_together_are_short() -> None:
    words = {page: len(read(page).split()) for page in (*PAGES, *OTHERS)}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])


def target(page: str, link: str) -> str:
    """Return the file that a link of a page leads to, relative to the repository."""
    path, _, _ = link.partition("#")
    where = (ROOT / page).parent / path if path else ROOT / page
    return where.resolve().relative_to(ROOT).as_posix()


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    for page in PAGES:
        for link in (link for link in links(page) if "://" not in link):
            path, anchor = target(page, link), link.partition("#")[2]
            if path in BUILT:
                assert page == "docs/index.md", (page, link)
                continue
            assert (ROOT / path).exists(), (page, link)
            assert not anchor or anchor in anchors(read(path)), (page, link)


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
