"""The style of the report: one accent colour, system fonts, two themes, telephone and paper."""

from __future__ import annotations

from tokmill.page.page_style import SAMPLE_STYLE

LIGHT = {
    "page": "#fbfbf9", "card": "#ffffff", "ink": "#1b2026", "soft": "#59626c", "line": "#e1e3e0",
    "track": "#eeefec", "accent": "#0b6870", "focus": "#0b6870",
    "trained": "#cdeedb", "trained-edge": "#1a7f4e", "control": "#6f42b5",
    "control-back": "#f1eafb", "both": "#ffe08a", "both-ink": "#5c3d00", "odd": "#b3261e",
    "mark": "#59626c",
    "s1": "#0b6870", "s2": "#8a949e", "s3": "#c27c1f", "s4": "#7a5bb0", "s5": "#58a7a0",
    "s6": "#b8506a", "s7": "#4f74b8", "s8": "#98a06a", "limit": "#b3261e",
}  # fmt: skip
"""Colours of the light theme; text is `ink`, `soft`, `accent`, `odd`, `limit` on page and card."""

DARK = {
    "page": "#101417", "card": "#171c20", "ink": "#e3e7ea", "soft": "#9ca7b0", "line": "#2b3237",
    "track": "#222a2f", "accent": "#5cc4c9", "focus": "#5cc4c9",
    "trained": "#12432f", "trained-edge": "#46c486", "control": "#c9a7ff",
    "control-back": "#2b2140", "both": "#6b4d00", "both-ink": "#ffe3a0", "odd": "#ff8f86",
    "mark": "#9ca7b0",
    "s1": "#3fb0b6", "s2": "#6f7b85", "s3": "#d99a45", "s4": "#a88be0", "s5": "#8fd6cf",
    "s6": "#e08098", "s7": "#7fa3e6", "s8": "#b5bd83", "limit": "#ff8f86",
}  # fmt: skip
"""Colours of the dark theme."""

_FONTS = """
:root {
  --mono: ui-monospace, "SF Mono", SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
    "Noto Sans Mono", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Noto Sans Mono CJK SC",
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Naskh Arabic", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Color Emoji", monospace;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial,
    "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif;
}
"""

_RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; scroll-padding-top: 1.5rem; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 var(--sans);
  display: grid; grid-template-columns: 13rem minmax(0, 1fr); }
a { color: var(--accent); }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 2px; border-radius: .2rem; }
main:focus { outline: none; }
.skip { position: absolute; left: -99rem; top: .5rem; z-index: 3; background: var(--card);
  padding: .5rem .8rem; border: 1px solid var(--line); }
.skip:focus { left: .5rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
nav { position: sticky; top: 0; align-self: start; height: 100vh; padding: 2.6rem 1rem 1rem 1.75rem;
  display: flex; flex-direction: column; gap: 1.25rem; font-size: .87rem; overflow-y: auto; }
nav ul, .keys, .legend, .facts, .list { list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: .22rem .7rem; color: var(--soft); text-decoration: none;
  border-left: 2px solid var(--line); }
nav a:hover { color: var(--ink); }
nav a[aria-current] { color: var(--accent); border-left-color: var(--accent); font-weight: 600; }
button { font: inherit; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: .4rem; padding: .25rem .7rem; }
button { cursor: pointer; }
button:hover { border-color: var(--accent); }
#theme { align-self: start; font-size: .8rem; color: var(--soft); }
#theme[aria-pressed="true"] { color: var(--accent); border-color: var(--accent); }
main { min-width: 0; max-width: 58rem; padding: 2.4rem clamp(1rem, 4vw, 3rem) 4rem; }
main > header { padding-bottom: .5rem; }
.kind { margin: 0; color: var(--accent); font-size: .82rem; font-weight: 600; }
h1 { font-size: clamp(1.6rem, 4.5vw, 2.2rem); line-height: 1.2; font-weight: 650; margin: .15rem 0;
  letter-spacing: -.015em; overflow-wrap: anywhere; }
.lead { font-size: 1.06rem; color: var(--soft); margin: 0 0 1.4rem; }
main > section { border-top: 1px solid var(--line); padding: 1.7rem 0 1.2rem; margin-top: 1.2rem; }
h2 { font-size: 1.25rem; font-weight: 650; letter-spacing: -.01em; margin: 0 0 .6rem; }
h3 { font-size: 1rem; font-weight: 600; margin: 1.4rem 0 .5rem; }
p { max-width: 46rem; margin: .5rem 0; }
.remark { color: var(--soft); font-size: .9rem; overflow-wrap: anywhere; }
code { font-size: .92em; }
dl { margin: .6rem 0; }
dt { color: var(--soft); font-size: .82rem; }
dd { margin: 0; overflow-wrap: anywhere; }
dl.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.2rem, 1fr));
  gap: 1.1rem 1.5rem; margin: 0 0 1.6rem; }
dl.numbers div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
dl.numbers dd { font-size: 1.32rem; font-weight: 600; letter-spacing: -.01em; line-height: 1.3; }
dl.facts { display: block; font-size: .92rem; color: inherit; }
dl.facts div { display: grid; grid-template-columns: 9.5rem minmax(0, 1fr); gap: 0 1rem;
  padding: .22rem 0; }
dl, table, .chart { font-variant-numeric: tabular-nums; }
.chart { margin: 1.1rem 0 1.5rem; }
figcaption { font-weight: 600; font-size: .93rem; }
.keys { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: .82rem; color: var(--soft);
  margin-top: .2rem; }
.keys i { display: inline-block; width: .7rem; height: .7rem; border-radius: .15rem;
  margin-right: .4rem; vertical-align: -.05rem; }
.keys i.dashed { width: 0; border-left: 2px dotted var(--soft); border-radius: 0; }
.chart > svg { display: block; margin-top: .7rem; overflow: visible; }
.chart svg text { fill: var(--ink); font: 13px var(--sans); unicode-bidi: plaintext; }
.chart svg .name { overflow: hidden; }
.chart svg .narrow { display: none; }
.chart svg .value { text-anchor: end; fill: var(--soft); }
.chart svg .tick { text-anchor: middle; fill: var(--soft); font-size: 11.5px; }
.chart svg .track { fill: var(--track); }
.chart svg .hit { fill: transparent; }
.chart svg g:hover .hit { fill: var(--track); }
.chart svg .axis { stroke: var(--line); }
.chart svg line.mark { stroke: var(--soft); stroke-dasharray: 2 3; }
.chart svg line.limit { stroke: var(--limit); stroke-width: 1.5; }
.chart svg text.limit { fill: var(--limit); font-size: 12px; }
.chart svg line.mean { stroke: var(--ink); stroke-width: 1.5; }
.chart svg text.mean { fill: var(--soft); font-size: 12px; }
.chart svg text.end { text-anchor: end; }
.chart svg text.middle { text-anchor: middle; }
details { padding: 0; font-size: .88rem; color: inherit; margin-top: .5rem; }
.chart details { margin-top: .15rem; }
.chart summary { font-size: .8rem; }
summary { cursor: pointer; color: var(--soft); width: fit-content; }
summary:hover { color: var(--accent); }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .88rem; margin: .4rem 0; }
caption { text-align: left; color: var(--soft); padding-bottom: .2rem; }
details caption { display: none; }
th, td { text-align: left; vertical-align: top; padding: .28rem .9rem .28rem 0; font-weight: 400;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-size: .82rem; white-space: nowrap; }
tbody th { max-width: 26rem; overflow-wrap: anywhere; }
.n { text-align: right; white-space: nowrap; }
.legend { font-size: .82rem; margin: .3rem 0; }
.legend small { font: .82rem var(--sans); color: var(--soft); }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr));
  gap: .8rem; align-items: start; margin: .6rem 0 1.2rem; }
.reject { padding-bottom: .7rem; }
.reject header { border: 0; padding-bottom: 0; }
.reject .place { color: var(--soft); font: .82rem var(--mono); overflow-wrap: anywhere;
  flex-basis: 100%; }
.reject .remark { margin: .2rem 1rem; }
.reject pre { margin: .4rem 1rem 0; background: var(--page); }
.reject h3 { white-space: normal; overflow-wrap: anywhere; min-width: 0; }
.cards { display: grid; gap: 1rem; grid-template-columns: minmax(0, 1fr); margin-top: .8rem; }
article h3 { margin: 0; }
pre { font: .84rem/1.6 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0;
  padding: .7rem .9rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .4rem; max-width: 100%; }
footer { color: var(--soft); font-size: .82rem; border-top: 1px solid var(--line);
  margin-top: 2rem; padding-top: 1rem; }
"""

_NARROW = """
@media screen and (max-width: 56rem) {
  html { scroll-padding-top: 3.6rem; }
  body { display: block; }
  nav { height: auto; flex-direction: row; align-items: center; gap: .6rem; padding: .45rem 1rem;
    background: var(--page); border-bottom: 1px solid var(--line); z-index: 2;
    overflow: visible; }
  nav ul { display: flex; overflow-x: auto; scrollbar-width: none; flex: 1; min-width: 0;
    padding-right: 1.2rem; mask-image: linear-gradient(to right, #000 88%, transparent); }
  nav li { flex: none; }
  nav a { border: 0; border-bottom: 2px solid transparent; padding: .3rem .55rem; }
  #theme { align-self: center; }
  main { padding-top: 1.4rem; }
  dl.facts div { grid-template-columns: minmax(0, 1fr); padding: .3rem 0; }
  dl.numbers { grid-template-columns: repeat(auto-fit, minmax(7.6rem, 1fr)); }
  .chart svg text { font-size: 12px; }
  .chart svg .wide { display: none; }
  .chart svg .narrow { display: inline; }
  .chart svg .tick { font-size: 10px; }
}
@media (prefers-reduced-motion: reduce) {
  html { scroll-behavior: auto; }
}
@page { margin: 14mm; }
@media print {
  body { display: block; background: #fff; }
  nav, .skip, footer { display: none; }
  .scroll { overflow: visible; }
  thead .n { white-space: normal; vertical-align: bottom; }
  tbody th { overflow-wrap: normal; }
  th, td { padding-right: .5rem; }
  main { max-width: none; padding: 0; }
  details::details-content { content-visibility: visible; block-size: auto; }
  summary { display: none; }
  .chart > svg, article, tr { break-inside: avoid; }
  main > section { margin-top: .6rem; padding: 1rem 0 .4rem; }
  table, pre { font-size: .78rem; }
  td, th { padding-top: .12rem; padding-bottom: .12rem; }
  h2, h3, figcaption, .keys, .remark { break-after: avoid; }
  .chart rect, .keys i { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
@media (forced-colors: active) {
  .chart rect, .keys i { forced-color-adjust: none; }
}
"""


def report_style() -> str:
    """Return the style of the page.

    The system chooses the theme unless the root element has `data-theme`; paper is light.
    """
    dark = ":root:not([data-theme=light])"
    series = "".join(
        f"rect.s{i} {{ fill: var(--s{i}); }} i.s{i} {{ background: var(--s{i}); }}\n"
        for i in range(1, 9)
    )
    return (
        f"{_FONTS}:root {{ color-scheme: light; {_variables(LIGHT)} }}\n"
        f"@media screen {{ :root[data-theme=dark] {{ color-scheme: dark; {_variables(DARK)} }} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ {dark} {{ color-scheme: dark; "
        f"{_variables(DARK)} }} }}\n{SAMPLE_STYLE}{_RULES}{series}{_NARROW}"
    )


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
