"use strict";
// The page is complete without this script, which adds: the theme, pages of samples and a search
// among them, and opened details on paper.
(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  dark.addEventListener("change", show);
  show();
})();
(() => {
  const list = document.querySelector(".list"), pager = document.querySelector(".pager");
  if (!list || !pager) return;
  const rest = document.querySelector(".rest");
  if (rest) {
    list.append(...rest.querySelectorAll("article"));
    rest.remove();
  }
  const cards = [...list.children], search = pager.querySelector("input");
  const place = pager.querySelector("output"), [back, on] = pager.querySelectorAll("button");
  const atOnce = Number(list.dataset.page) || cards.length;
  const marks = typeof Highlight === "undefined" ? null : new Highlight();
  if (marks) CSS.highlights.set("found", marks);
  let first = 0;

  const mark = (card, words) => {
    const walker = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode, text = node.data.toLowerCase();
      for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
        if (at + words.length > node.length) break;  // lower case can be longer
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + words.length);
        marks.add(range);
      }
    }
  };
  const show = () => {
    const words = search.value.trim().toLowerCase();
    const found = cards.filter(card => card.textContent.toLowerCase().includes(words));
    first = Math.max(0, Math.min(first, found.length - 1));
    const shown = found.slice(first, first + atOnce);
    for (const card of cards) card.hidden = !shown.includes(card);
    list.classList.toggle("searched", words !== "");
    if (marks) marks.clear();
    if (marks && words) for (const card of shown) mark(card, words);
    back.disabled = first === 0;
    on.disabled = first + atOnce >= found.length;
    back.hidden = on.hidden = atOnce >= cards.length;
    const stop = first + shown.length;
    place.textContent = found.length ? `${first + 1} to ${stop} of ${found.length}` : "none found";
  };
  back.addEventListener("click", () => { first -= atOnce; show(); });
  on.addEventListener("click", () => { first += atOnce; show(); });
  search.addEventListener("input", () => { first = 0; show(); });
  pager.hidden = false;
  show();
})();
(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open], article *)")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
})();
