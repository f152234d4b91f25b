"""The script of the page: theme, place in the contents, print. The page is complete without it."""

from __future__ import annotations

PAGE_SCRIPT = """
"use strict";
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
  const list = document.querySelector("nav ul");
  const links = new Map([...list.querySelectorAll("a")].map(a => [a.hash.slice(1), a]));
  const parts = [...links.keys()].map(id => document.getElementById(id));
  const mark = () => {
    const edge = innerHeight / 3;
    let now = parts[0];
    for (const part of parts) if (part.getBoundingClientRect().top <= edge) now = part;
    if (innerHeight + scrollY >= document.body.scrollHeight - 2) now = parts[parts.length - 1];
    for (const [id, link] of links) {
      if (id !== now.id) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "location");
        list.scrollLeft = link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2;
      }
    }
  };
  let waits = false;
  addEventListener("scroll", () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; mark(); });
  }, { passive: true });
  mark();
})();
(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
})();
"""
