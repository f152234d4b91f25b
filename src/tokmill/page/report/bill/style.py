"""The style of the bill: controls, verdicts, bounds."""

STYLE = """
.choices { display: flex; flex-wrap: wrap; gap: .7rem 1.3rem; margin: .8rem 0 1rem; }
.choices[hidden] { display: none; }
.choice { border: 0; margin: 0; padding: 0; min-width: 0; max-width: 100%; }
.choice > label, .choice legend { display: block; padding: 0; color: var(--soft); font-size: .82rem;
  margin-bottom: .15rem; }
.choice select { max-width: 100%; min-height: 2.1rem; text-overflow: ellipsis; }
.segments { display: flex; flex-wrap: wrap; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--card); width: fit-content; max-width: 100%; overflow: hidden; }
.segments label { position: relative; cursor: pointer; }
.segments input { position: absolute; inset: 0; opacity: 0; margin: 0; padding: 0; width: 100%;
  height: 100%; cursor: pointer; }
.segments span { display: block; padding: .3rem .7rem; min-height: 2rem;
  font-variant-numeric: tabular-nums; }
.segments label + label span { border-left: 1px solid var(--line); }
.segments input:hover + span { color: var(--accent); }
.segments input:checked + span { background: var(--accent); color: var(--page); }
.segments input:focus-visible + span { outline: 2px solid var(--focus); outline-offset: -4px; }
.segments input:checked:focus-visible + span { outline-color: var(--page); }
.verdict { font-size: 1.12rem; font-weight: 600; line-height: 1.4; margin: .9rem 0 .5rem;
  padding-left: .8rem; border-left: 4px solid var(--soft); max-width: none; }
.verdict.yes { border-color: var(--trained-edge); }
.verdict.maybe { border-color: var(--s3); }
.verdict.no { border-color: var(--limit); }
.cases svg .bounds line { stroke: var(--ink); stroke-width: 1.5; }
.cases svg .value.yes { fill: var(--trained-edge); }
.cases svg .value.no { fill: var(--limit); }
.cases svg .value.maybe { fill: var(--ink); }
.cases svg .name { overflow: visible; }
.cases svg tspan.note { fill: var(--soft); }
.cases .keys .bounds { width: 1.1rem; height: .55rem; border-radius: 0; vertical-align: 0;
  background: linear-gradient(var(--ink), var(--ink)) center / 100% 1.5px no-repeat;
  border-left: 1.5px solid var(--ink); border-right: 1.5px solid var(--ink); }
@media (max-width: 40rem) {
  .cases svg .note { display: none; }
}
@media (max-width: 22rem) {
  .cases svg .word { display: none; }
}
@media print {
  .choices { display: none; }
  .cases svg line { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
@media (forced-colors: active) {
  .segments input:checked + span { background: Highlight; color: HighlightText;
    forced-color-adjust: none; }
  .verdict.yes, .verdict.maybe, .verdict.no { border-style: double; }
}
"""
