// What tests ask of a page that is open in a browser.
(() => {
  const rgba = text => {
    const n = text.match(/[\d.]+/g).map(Number);
    return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1];
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = colour => {
    const [r, g, b] = colour.map(v => v / 255).map(v =>
      v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    const found = [];
    for (let one = element; one; one = one.parentElement) {
      found.push(rgba(getComputedStyle(one).backgroundColor));
    }
    return found.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const isShown = element => element.checkVisibility({ checkVisibilityCSS: true });

  window.contrasts = () => {
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const element = walker.currentNode.parentElement;
      if (!walker.currentNode.data.trim() || !isShown(element)) continue;
      if (["SCRIPT", "STYLE", "title", "desc"].includes(element.tagName)) continue;
      const style = getComputedStyle(element), back = ground(element);
      const colour = element instanceof SVGElement ? style.fill : style.color;
      const pair = [light(over(rgba(colour), back)), light(back)].sort((a, b) => b - a);
      const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
      found.push([ratio, element.tagName + "." + element.getAttribute("class"),
        walker.currentNode.data.trim().slice(0, 40)]);
    }
    return found;
  };

  window.charts = () => [...document.querySelectorAll("figure.chart")].map(chart => {
    const svg = chart.querySelector("svg[role=img]"), wide = svg.getBoundingClientRect().width;
    return {
      id: chart.id,
      width: wide,
      name: document.getElementById(svg.getAttribute("aria-labelledby")).textContent,
      about: document.getElementById(svg.getAttribute("aria-describedby")).textContent,
      cells: [...chart.querySelectorAll("td[data-value]")].map(cell => Number(cell.dataset.value)),
      bars: [...svg.querySelectorAll("rect[data-value]")].map(bar => {
        const box = bar.getBoundingClientRect();
        return { tone: bar.getAttribute("class"), value: Number(bar.dataset.value),
          width: box.width, height: box.height };
      }),
      overlaps: [...svg.querySelectorAll("g")].filter(row => {
        const names = [...row.querySelectorAll("svg.name text")];
        const name = names.find(isShown), value = row.querySelector("text.value");
        if (!name || !value) return false;
        const kept = row.querySelector("svg.name").style.width.match(/- (\d+)px/);
        const room = kept ? Number(kept[1]) : 0.36 * wide;
        const edge = svg.getBoundingClientRect().right - room;
        const right = Math.min(name.getBoundingClientRect().right, edge);
        return right > value.getBoundingClientRect().left + 1;
      }).map(row => row.textContent.slice(0, 80)),
    };
  });

  window.outside = () => [...document.querySelectorAll("body *")].filter(element => {
    if (!isShown(element) || element.closest(".scroll, .skip, nav ul, .unseen")) return false;
    if (element.closest("svg svg")) return false;
    const box = element.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
  }).map(element => `${element.tagName}.${element.getAttribute("class")}#${element.id}`);
})();
