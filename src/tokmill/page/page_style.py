"""The style of web pages: both colour schemes, any width, print, forced colours."""

_BASE = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1c2128; --soft: #5b6470; --line: #d9dde3;
  --trained: #c9efcf; --trained-edge: #1a7f37;
  --control: #8250df; --control-back: #f1eafd;
  --both: #ffe08a; --both-ink: #5c3d00;
  --odd: #b3261e; --mark: #57606a;
  --mono: ui-monospace, "SF Mono", SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono",
    "Noto Sans Mono", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Noto Sans Mono CJK SC",
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Naskh Arabic", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Color Emoji", monospace;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "PingFang SC",
    "Microsoft YaHei", "Noto Sans CJK SC", sans-serif;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1116; --card: #161b22; --ink: #dfe5ec; --soft: #98a3b0; --line: #303842;
    --trained: #12452a; --trained-edge: #46c46a;
    --control: #c9a7ff; --control-back: #2b2140;
    --both: #6b4d00; --both-ink: #ffe3a0;
    --odd: #ff8a80; --mark: #98a3b0;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 var(--sans); }
header.page, main { max-width: 110rem; margin: 0 auto; padding: 0 clamp(.75rem, 3vw, 2.5rem); }
h1 { font-size: 1.5rem; margin: 1.5rem 0 .75rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 0; }
h3 { font-size: 1rem; margin: 0; white-space: nowrap; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; margin: 0 0 1rem; }
dl div { min-width: 0; max-width: 100%; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; overflow-wrap: anywhere; }
ul { list-style: none; margin: 0; padding: 0; }
.bar { position: sticky; top: 0; z-index: 1; background: var(--page); padding: .6rem 0;
  border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .4rem 1.5rem;
  align-items: baseline; }
.cards { display: grid; gap: 1rem; padding: 1rem 0 3rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 46rem), 1fr)); }
"""

SAMPLE_STYLE = """
.legend { display: flex; flex-wrap: wrap; gap: .3rem .9rem; font-family: var(--mono);
  font-size: .85rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  min-width: 0; overflow: hidden; }
article header { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline;
  padding: .6rem 1rem; }
.facts { display: flex; flex-wrap: wrap; gap: 0 .9rem; color: var(--soft); font-size: .85rem; }
.facts > li { min-width: 0; overflow-wrap: anywhere; }
.strip { display: flex; height: .35rem; background: var(--line); }
.strip .on { background: var(--trained-edge); }
.strip i { min-width: 0; flex-basis: 0; }
.text { padding: .8rem 1rem; font: .9rem/1.65 var(--mono); white-space: pre-wrap;
  overflow-wrap: anywhere; tab-size: 4; unicode-bidi: plaintext; text-align: start; }
mark { background: none; color: inherit; }
.t { background: var(--trained); color: var(--ink); padding: .08em 0; border-radius: .15em;
  box-shadow: inset 0 -1px 0 var(--trained-edge);
  -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.c { color: var(--control); background: var(--control-back); border-radius: .25em;
  padding: .05em .2em; font-weight: 600; unicode-bidi: isolate; }
.t .c { color: var(--both-ink); background: var(--both); }
.t[data-weight]::after { content: attr(data-weight); color: var(--odd); font-size: .75em;
  vertical-align: super; margin-left: .15em; }
.nl::before, .tab::before { color: var(--trained-edge); }
.nl::before { content: "\\23CE"; }
.tab::before { content: "\\21E5"; }
.sp { background: radial-gradient(circle, var(--mark) .09em, transparent .11em) center no-repeat; }
.k { box-shadow: inset 1px 0 0 var(--mark); padding-left: 1px; }
.x { color: var(--odd); border: 1px solid; border-radius: .2em; padding: 0 .15em; font-size: .8em; }
.o::before { content: attr(data-code); color: var(--odd); border: 1px solid; border-radius: .2em;
  padding: 0 .15em; font-size: .7em; }
.note { color: var(--soft); font-size: .85rem; margin: 0; padding: .4rem 1rem .7rem; }
details { padding: 0 1rem .7rem; font-size: .85rem; color: var(--soft); }
details code { font-family: var(--mono); overflow-wrap: anywhere; }
code { font-family: var(--mono); }
@media (max-width: 40rem) {
  article header, .text, .note, details { padding-left: .7rem; padding-right: .7rem; }
}
@media print {
  .t, .c, .strip i { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  article { break-inside: avoid-page; }
}
@media (forced-colors: active) {
  .t { forced-color-adjust: none; }
  .c { border: 1px solid; }
}
"""
"""Samples with their legend; colours and fonts are variables of the page."""

STYLE = f"{_BASE}{SAMPLE_STYLE}@media (max-width: 40rem) {{ .bar {{ position: static; }} }}\n"
