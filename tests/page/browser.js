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
      if (["SCRIPT", "STYLE"].includes(element.tagName) || element.closest(":disabled")) continue;
      const style = getComputedStyle(element), back = ground(element);
      const pair = [light(over(rgba(style.color), back)), light(back)].sort((a, b) => b - a);
      const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
      found.push([ratio, element.tagName + "." + element.getAttribute("class"),
        walker.currentNode.data.trim().slice(0, 40)]);
    }
    return found;
  };

  window.bars = () => [...document.querySelectorAll("td.bar span")].map(place => ({
    table: place.closest("table").getAttribute("aria-label"),
    column: [...place.closest("tr").cells].indexOf(place.closest("td")),
    full: place.getBoundingClientRect().width,
    parts: [...place.querySelectorAll("i")].map(part => ({
      value: Number(part.dataset.value), width: part.getBoundingClientRect().width })),
  })).filter(bar => bar.full > 0);

  window.columns = () => [...document.querySelectorAll(".histogram i")].map(one => ({
    series: one.className, value: Number(one.dataset.value),
    height: one.getBoundingClientRect().height }));

  window.outside = () => [...document.querySelectorAll("body *")].filter(element => {
    if (!isShown(element) || element.closest(".scroll, .skip, nav ul, .low .text")) return false;
    const box = element.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
  }).map(element => `${element.tagName}.${element.getAttribute("class")}#${element.id}`);
})();
