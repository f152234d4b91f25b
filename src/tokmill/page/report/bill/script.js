"use strict";
// Shows the case that is chosen: every number is in `data`, every shape is in the page.
const { cases, serving, loading, words } = data;
const state = {};
const KEYS = ["model", "gpu", "spread", "batch", "sequence"];
const LISTS = { model: data.models, gpu: data.gpus, spread: data.spreads, batch: data.batches,
  sequence: data.sequences, weights: serving.weights, served: serving.batches };
KEYS.forEach((key, i) => { state[key] = data.start[i]; });
[state.weights, state.served] = serving.start;
if (loading) {
  LISTS.starts = loading.starts;
  LISTS.workers = loading.workers;
  [state.starts, state.workers] = loading.start;
}
const ADDRESS = "#bill:";

// Numbers as Python writes them: an exact half goes to the even digit.
const grouped = n => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
const fixed = (n, divisor, digits) => {
  const power = 10 ** digits, scaled = n * power;
  let whole = Math.floor(scaled / divisor);
  const twice = 2 * (scaled - whole * divisor);
  if (twice > divisor || (twice === divisor && whole % 2 === 1)) whole += 1;
  const text = String(whole).padStart(digits + 1, "0");
  return `${grouped(text.slice(0, -digits))}.${text.slice(-digits)}`;
};
const scale = n => n < 2 ** 30 ? [2 ** 20, "MiB", 1] : [2 ** 30, "GiB", 2];
const memory = n => {
  const [divisor, unit, digits] = scale(n);
  return `${fixed(n, divisor, digits)} ${unit}`;
};
const bounded = (low, n, high) => {
  const [divisor, unit, digits] = scale(high);
  const [least, text, most] = [low, n, high].map(each => fixed(each, divisor, digits));
  const bounds = least === text ? `up to ${most}` : `${least} to ${most}`;
  return least === most ? `${text} ${unit}` : `${text} ${unit} (${bounds})`;
};
const plural = (n, thing) => `${grouped(n)} ${thing}${n === 1 ? "" : "s"}`;
const sum = numbers => numbers.reduce((a, b) => a + b, 0);
const place = (...pairs) => pairs.reduce((found, [index, length]) => found * length + index, 0);
const on = gpu => `${gpu.name} (${memory(gpu.bytes)})`;

const N_ROWS = data.rows.length;
const chosen = key => [state[key], LISTS[key].length];
const caseNumber = () =>
  place(chosen("model"), chosen("spread"), chosen("batch"), chosen("sequence")) * N_ROWS;
const numbersOf = (list, number, n) => {
  const each = list.slice(number * (n + 2), (number + 1) * (n + 2));
  return { amounts: each.slice(0, n), low: each[n], high: each[n + 1] };
};
const trainingOf = number => {
  if (number in cases.why) return { why: cases.reasons[cases.why[number]] };
  const n = data.groups.length, found = numbersOf(cases.amounts, number, n);
  const amounts = found.amounts.map(at => cases.pool[at]);
  amounts[n - 2] += cases.workspaces[state.gpu];
  const digit = Number(cases.verdicts[number * data.gpus.length + state.gpu]);
  return { amounts, low: cases.pool[found.low], high: cases.pool[found.high], digit };
};
const isStart = () => KEYS.every((key, i) => state[key] === data.start[i]);
const durationOf = row => {
  if (!cases.times.length) return "";
  return cases.durations[cases.times[place(
    chosen("model"), chosen("spread"), chosen("sequence"), [row, N_ROWS], chosen("gpu"))]];
};
const verdictOf = (digit, n) => {
  const gpu = data.gpus[state.gpu], room = gpu.bytes - n;
  if (digit === 1) return `fits on ${on(gpu)} by the estimate, not by the upper bound`;
  if (digit > 2) return `at least ${memory(n)} on ${on(gpu)}; ${words.missing}`;
  const said = digit === 0 ? "fits" : "does not fit";
  return `${said} on ${on(gpu)}: ${memory(Math.abs(room))} ${room < 0 ? "missing" : "left"}`;
};
const remediesOf = (number, digit) => {
  if (digit === 0) return words.none_needed;
  const fitting = [];
  let unknown = digit > 2;
  for (let row = 1; row < N_ROWS; row++) {
    const found = trainingOf(number + row);
    if (!found.amounts) continue;
    unknown = unknown || found.digit > 2;
    if (found.digit === 0 || (digit === 2 && found.digit === 1))
      fitting.push(`${data.rows[row]} (${memory(sum(found.amounts))})`);
  }
  return fitting.join(", ") || (unknown ? words.missing : words.none_alone);
};

const put = (key, text) => {
  const there = element.querySelector(`[data-text="${key}"]`);
  if (there.textContent !== text) there.textContent = text;
  if (there.tagName === "DD") there.parentElement.hidden = !text;
};
const verdict = (key, text, kind) => {
  put(key, text);
  element.querySelector(`[data-text="${key}"]`).className = kind ? `verdict ${kind}` : "verdict ";
};
const set = (shape, values) => {
  for (const [name, value] of Object.entries(values)) shape.setAttribute(name, value);
};
const draw = (id, names, bars, limit) => {
  const figure = document.getElementById(id);
  const full = Math.max(limit ? limit.bytes : 0, ...bars.map(bar => bar.high)) || 1;
  const percent = n => `${(100 * n / full).toFixed(3)}%`;
  const drawn = figure.querySelectorAll("g.bar"), rows = figure.querySelectorAll("tbody tr");
  bars.forEach((bar, i) => {
    const shape = drawn[i];
    shape.querySelector("tspan.note").textContent = bar.note;
    const text = shape.querySelector("text.value");
    const [amount, ...word] = bar.text.split(", ");
    text.firstElementChild.textContent = amount;
    text.lastElementChild.textContent = word.length ? `, ${word.join(", ")}` : "";
    text.setAttribute("class", `value ${bar.kind}`);
    let start = 0;
    shape.querySelectorAll("rect[data-value]").forEach((rect, j) => {
      const n = bar.amounts[j];
      set(rect, { x: percent(start), width: percent(n), "data-value": n });
      rect.firstElementChild.textContent = `${names[j]}: ${memory(n)}`;
      start += n;
    });
    set(shape.querySelector("g.bounds"), { display: bar.high ? "inline" : "none" });
    const [span, low, high] = shape.querySelectorAll("g.bounds line");
    set(span, { x1: percent(bar.low), x2: percent(bar.high) });
    set(low, { x1: percent(bar.low), x2: percent(bar.low) });
    set(high, { x1: percent(bar.high), x2: percent(bar.high) });
    const cells = rows[i].querySelectorAll("td");
    [...bar.amounts, start, bar.low, bar.high].forEach((n, j) => {
      cells[j].textContent = bar.high ? memory(n) : "";
      if (j < names.length) cells[j].dataset.value = n;
    });
    cells[cells.length - 1].textContent = bar.why || word.join(", ");
  });
  const line = figure.querySelector("line.limit"), name = figure.querySelector("text.limit");
  const n = limit ? limit.bytes : 0, display = limit ? "inline" : "none";
  set(line, { x1: percent(n), x2: percent(n), "data-value": n, display });
  set(name, { x: percent(n), class: `limit ${2 * n > full ? "end" : "start"}`, display });
  name.textContent = limit ? limit.text : "";
};
const caption = (id, text) => {
  for (const each of [`${id}-title`]) document.getElementById(each).textContent = text;
  const figure = document.getElementById(id);
  figure.querySelector("summary .unseen").textContent = ` of ${text}`;
  figure.querySelector(".scroll").setAttribute("aria-label", text);
};
const nothing = n => ({ amounts: Array(n).fill(0), low: 0, high: 0, note: "", kind: "" });
const gpuLimit = () => {
  const gpu = data.gpus[state.gpu];
  return { bytes: gpu.bytes, text: `${gpu.name}, ${memory(gpu.bytes)}` };
};

const showTraining = () => {
  const model = data.models[state.model], gpu = data.gpus[state.gpu];
  const spread = data.spreads[state.spread], number = caseNumber();
  const batch = data.batches[state.batch], length = data.sequences[state.sequence];
  const bars = data.rows.map((name, row) => {
    const found = trainingOf(number + row);
    if (!found.amounts)
      return { ...nothing(data.groups.length), text: words.impossible, why: found.why };
    return { ...found, note: durationOf(row).split(", ")[0], kind: words.kinds[found.digit],
      text: `${memory(sum(found.amounts))}, ${words.fits[found.digit]}` };
  });
  const first = trainingOf(number);
  const command = [data.command, model.options, gpu.options, spread.options,
    `--micro-batch ${batch}`, `--sequence ${length}`].join(" ");
  put("command", `${command} --explain`);
  caption("bill-training", `${model.name} on ${gpu.name}: ${spread.label}, ` +
    `micro batch ${grouped(batch)}, sequence ${grouped(length)}`);
  draw("bill-training", data.groups, bars, gpuLimit());
  const notes = element.querySelector('[data-text="notes"]');
  notes.replaceChildren();
  for (const one of element.querySelectorAll(".own")) one.hidden = !isStart();
  if (!first.amounts) {
    verdict("verdict", `${model.name}: ${words.impossible}: ${first.why}`, "no");
    for (const key of ["memory", "remedies", "time"]) put(key, "");
    return;
  }
  const total = sum(first.amounts), digit = first.digit;
  const many = spread.gpus > 1;
  const each = many ? `, each of ${grouped(spread.gpus)} GPUs:` : digit > 2 ? ":" : "";
  verdict("verdict", `${model.name}${each} ${verdictOf(digit, total)}`, words.kinds[digit]);
  const moment = cases.moments[cases.peaks.charCodeAt(number) - 97];
  put("memory", bounded(first.low, total, first.high) + (many ? " per GPU" : "") +
    `; peak: ${moment}`);
  put("remedies", remediesOf(number, digit));
  const steps = cases.steps[place(chosen("spread"), chosen("batch"), chosen("sequence"))];
  const time = durationOf(0);
  put("time", data.trained && (time ? `${time} for ${data.trained} ${data.speed}; ${steps}`
    : `${data.trained}; ${steps}`));
  for (const text of [...model.warnings, ...model.notes[state.sequence],
    ...spread.notes[state.gpu], ...model.stored[state.spread]]) {
    const item = document.createElement("li");
    item.textContent = text;
    notes.append(item);
  }
};

const showServing = () => {
  const model = data.models[state.model], gpu = data.gpus[state.gpu];
  const many = plural(serving.batches[state.served], "sequence");
  const length = serving.contexts.length, n = serving.groups.length;
  let said = `${model.name} serves none of these contexts on ${on(gpu)}, ${many} at once`;
  let kind = "no";
  const bars = serving.contexts.map((tokens, context) => {
    const number =
      place(chosen("model"), chosen("weights"), chosen("served"), [context, length]);
    const found = numbersOf(serving.amounts, number, n);
    const isOver = model.positions > 0 && tokens > model.positions;
    if (!found.high)
      return { ...nothing(n), text: isOver ? words.no_context : words.impossible };
    const digit = Number(serving.verdicts[number * data.gpus.length + state.gpu]);
    if (digit !== 2) {
      const barely = digit % 3 === 1 ? " by the estimate, not by the upper bound" : "";
      said = `${model.name} serves ${many} of up to ${plural(tokens, "token")} on ${on(gpu)}${barely}`;
      if (digit > 2) said += ", if the rest fits";
      kind = words.kinds[digit];
    }
    return { ...found, note: "", kind: words.kinds[digit],
      text: `${memory(sum(found.amounts))}, ${words.fits[digit]}` };
  });
  verdict("served", said, kind);
  caption("bill-serving", `${model.name} on ${gpu.name}: memory by context`);
  draw("bill-serving", serving.groups, bars, gpuLimit());
};

const showLoading = () => {
  if (!loading) return;
  const n = loading.groups.length, notes = document.querySelectorAll("#bill-loading tspan.note");
  const bars = loading.strategies.map((_, strategy) => {
    const number = place(chosen("starts"), chosen("workers"),
      [strategy, loading.strategies.length]);
    const found = numbersOf(loading.amounts, number, n), digit = Number(loading.verdicts[number]);
    const word = words.host[digit] && `, ${words.host[digit]}`;
    return { ...found, note: notes[strategy].textContent, kind: words.host_kinds[digit],
      text: memory(sum(found.amounts)) + word };
  });
  const room = loading.usable_bytes, most = Math.max(...bars.map(bar => bar.high));
  const isNear = room > 0 && room <= loading.farthest * most;
  draw("bill-loading", loading.groups, bars,
    isNear ? { bytes: room, text: `${loading.machine}, ${memory(room)}` } : null);
};

// The address keeps the choice, by values: a link shows the same case in another report.
const named = {
  model: one => one.name, gpu: one => one.name, spread: one => `${one.gpus} ${one.sharding}`,
};
const valueOf = (key, at) => (named[key] || String)(LISTS[key][at]);
const initial = { ...state };
const write = () => {
  const changed = Object.keys(LISTS).filter(key => state[key] !== initial[key]);
  const found = new URLSearchParams(changed.map(key => [key, valueOf(key, state[key])]));
  try {
    history.replaceState(null, "", changed.length ? ADDRESS + found : "#bill");
  } catch { /* a page in a frame may have no address of its own */ }
};
const read = () => {
  if (!location.hash.startsWith(ADDRESS)) return false;
  const asked = new URLSearchParams(location.hash.slice(ADDRESS.length));
  Object.assign(state, initial);
  for (const key of Object.keys(LISTS)) {
    const at = LISTS[key].findIndex((_, i) => valueOf(key, i) === asked.get(key));
    if (at >= 0) state[key] = at;
  }
  return true;
};

const controls = [...element.querySelectorAll("[data-key]")];
const mark = () => {
  for (const one of controls) {
    if (one.type === "radio") one.checked = Number(one.value) === state[one.dataset.key];
    else one.value = String(state[one.dataset.key]);
  }
};
const show = () => { mark(); showTraining(); showServing(); showLoading(); };
for (const one of controls) {
  one.addEventListener("change", () => {
    state[one.dataset.key] = Number(one.value);
    show();
    write();
  });
}
addEventListener("hashchange", () => { if (read()) { show(); element.scrollIntoView(); } });
for (const group of element.querySelectorAll(".choices")) group.hidden = false;
const isLinked = read();
show();
if (isLinked) element.scrollIntoView();
