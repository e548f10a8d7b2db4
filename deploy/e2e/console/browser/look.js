// Looks at a page as people do, and returns its faults as text. It is an expression, so that
// any driver of the browser can evaluate it.
(() => {
  const wrong = [];
  const screen = document.documentElement.clientWidth;
  const named = (e) => `<${e.localName}${e.className?.length ? ` class="${e.className}"` : ""}> "${e.textContent.trim().replace(/\s+/g, " ").slice(0, 40)}"`;
  const hidden = (e) => !e.checkVisibility({ visibilityProperty: true }) || e.closest(".unseen, .hid, .skip");
  const scrolls = (e) => e.closest(".scroll, pre, .spark") !== null;

  const wide = document.documentElement.scrollWidth;
  if (wide > screen) wrong.push(`the page is ${wide} px wide on a screen of ${screen}`);
  if (document.querySelector("main").innerText.trim().length < 20) wrong.push("the page says nothing");

  // Every piece of text, with the places of its lines.
  const texts = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode, e = node.parentElement;
    if (!node.data.trim() || /^(script|style|title|option)$/.test(e.localName) || hidden(e)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const at of range.getClientRects()) if (at.width > 1 && at.height > 1) texts.push({ e, at });
  }
  for (const { e, at } of texts) {
    if (!scrolls(e) && (at.right > screen + 1 || at.left < -1)) wrong.push(`out of sight: ${named(e)}`);
    const svg = e.ownerSVGElement;
    if (svg) {
      const frame = svg.getBoundingClientRect(), size = parseFloat(getComputedStyle(e).fontSize) * svg.getScreenCTM().a;
      if (size < 10) wrong.push(`${size.toFixed(1)} px small: ${named(e)}`);
      if (at.left < frame.left - 1 || at.right > frame.right + 1 || at.bottom > frame.bottom + 1) wrong.push(`cut by its drawing: ${named(e)}`);
    }
  }

  // No line of text lies on another line.
  texts.sort((a, b) => a.at.top - b.at.top);
  texts.forEach((one, i) => {
    for (let k = i + 1; k < texts.length && texts[k].at.top < one.at.bottom - 3; k++) {
      const other = texts[k];
      if (other.e !== one.e && Math.min(one.at.right, other.at.right) - Math.max(one.at.left, other.at.left) > 2 && Math.min(one.at.bottom, other.at.bottom) - other.at.top > 3 && !(scrolls(one.e) && scrolls(other.e) && one.e.closest(".scroll, pre") !== other.e.closest(".scroll, pre")))
        wrong.push(`${named(one.e)} and ${named(other.e)} overlap`);
    }
  });

  // Nothing is cut by its container.
  for (const e of document.querySelectorAll("button, .button, summary, .state, .phase, nav a, input, select, dt, dd, th, td, h1, h2, h3")) {
    if (hidden(e) || e.localName === "input" && !e.value) continue;
    if (e.clientWidth && e.scrollWidth > e.clientWidth + 1) wrong.push(`${e.scrollWidth} px of text in ${e.clientWidth}: ${named(e)}`);
  }

  // The buttons of a row are within the screen, without scrolling its table sideways.
  for (const e of document.querySelectorAll("td button, td summary, td a")) {
    if (!hidden(e) && /^(change|delete|revoke|rotate|forget|edit|remove|end|reset)\b/i.test(e.textContent.trim()) && e.getBoundingClientRect().right > screen + 1) wrong.push(`out of reach: ${named(e)}`);
  }

  // Text stands out from its ground by 4.5, large text by 3 (WCAG 2, level AA).
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
  const light = (c) => c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { if (!e) return [255, 255, 255]; const c = rgba(getComputedStyle(e).backgroundColor); return c[3] === 1 ? c.slice(0, 3) : over(c, ground(e.parentElement)); };
  const told = new Set();
  const stand = (e, style, what) => {
    const under = ground(e), colour = over(rgba(e.ownerSVGElement ? style.fill : style.color), under);
    const [a, b] = [light(colour), light(under)].sort((x, y) => y - x), contrast = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize), least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    const words = `contrast ${contrast.toFixed(2)}: ${what}`;
    if (contrast < least && !told.has(words)) { told.add(words); wrong.push(words); }
  };
  for (const e of new Set(texts.map((t) => t.e))) stand(e, getComputedStyle(e), named(e));
  for (const e of document.querySelectorAll("input[placeholder]")) {
    if (hidden(e)) continue;
    const style = getComputedStyle(e);
    stand(e, getComputedStyle(e, "::placeholder"), `placeholder "${e.placeholder}"`);
    canvas.font = style.font;
    const needs = canvas.measureText(e.placeholder).width, has = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (!e.value && needs > has + 1) wrong.push(`${needs.toFixed()} px of text in ${has}: placeholder "${e.placeholder}"`);
  }
  return [...new Set(wrong)].slice(0, 20);
})()
