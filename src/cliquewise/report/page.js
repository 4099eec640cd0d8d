"use strict";
// User text enters the page only as text nodes, never as markup.

const REPORT = JSON.parse(document.getElementById("data").textContent);
const DRAW = {}; // a function for each kind of block: (block) => element
const HALF = new Set(["curves", "reliability", "bars"]);

function el(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, String(value));
  for (const child of children.flat()) {
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const round = (value, digits) => {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(digits - 1);
  return String(+value.toPrecision(digits));
};
const percent = (value) => (100 * value).toFixed(2);
const grouped = (value) => value.toLocaleString("en-US");
const SHOW = {
  text: (v) => v, prose: (v) => v, count: grouped, share: percent, number: (v) => round(v, 5),
};

const captionOf = (text) => el("caption", {}, el("span", {}, text));

DRAW.text = (block) => el(block.plain ? "pre" : "p", {}, block.text);

DRAW.badge = (block) => el("div", { class: "badge " + block.status, role: "status" },
  el("p", { class: "word" }, { proved: "✓ ", bounded: "≈ ", open: "? " }[block.status], block.word),
  el("p", { class: "claim" }, block.sentence),
  el("dl", { class: "facts" }, block.facts.map(([name, value]) =>
    el("div", {}, el("dt", {}, name), el("dd", {}, value)))));

DRAW.figures = (block) => el("dl", { class: "figures" }, block.items.map(([name, value, below]) =>
  el("div", {}, el("dt", {}, name), el("dd", {}, value, el("small", {}, below)))));

DRAW.table = (block) => {
  const body = el("tbody");
  const value = (cell) => (Array.isArray(cell) ? cell[0] : cell);
  const isTotal = (row) => row[0] === "all";
  let order = null;
  const fill = () => {
    const rows = block.rows.slice();
    if (order) {
      rows.sort((a, b) => {
        if (isTotal(a) !== isTotal(b)) return isTotal(a) ? 1 : -1;
        const [x, y] = [value(a[order.column]), value(b[order.column])];
        return (x < y ? -1 : x > y ? 1 : 0) * order.sign;
      });
    }
    body.replaceChildren(...rows.map((row) => el("tr", { class: isTotal(row) ? "total" : null },
      row.map((cell, j) => cellOf(cell, block.columns[j][1], j)))));
  };
  const cellOf = (cell, form, j) => {
    if (j === 0) return el("th", { scope: "row", class: "left", title: String(cell) }, cell);
    if (form === "text" || form === "prose") return el("td", { class: form === "prose" ? "prose" : "left" }, cell);
    const shown = SHOW[form](value(cell));
    return Array.isArray(cell) && cell.length > 1
      ? el("td", {}, shown, el("small", {}, `${SHOW[form](cell[1])}–${SHOW[form](cell[2])}`))
      : el("td", {}, shown);
  };
  const heads = block.columns.map(([name, form], column) => el("th", { scope: "col", class: form === "text" || form === "prose" ? "left" : null },
    el("button", { type: "button", title: "Sort by " + name, onclick: (event) => {
      order = { column, sign: order && order.column === column ? -order.sign : form === "text" || form === "prose" ? 1 : -1 };
      for (const head of event.target.closest("tr").children) head.removeAttribute("aria-sort");
      event.target.closest("th").setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
      fill();
    } }, name)));
  fill();
  return el("div", { class: "scroll" },
    el("table", {}, captionOf(block.caption), el("thead", {}, el("tr", {}, heads)), body));
};

function drawSections() {
  const main = document.getElementById("main"), contents = document.getElementById("contents");
  document.getElementById("subtitle").textContent = REPORT.subtitle;
  for (const part of REPORT.sections) {
    const head = el("h2", { id: part.id + "-title" }, part.title);
    const blocks = part.blocks.map((block) => el("div",
      { class: "block " + (HALF.has(block.kind) ? "half" : ["heatmap", "table"].includes(block.kind) ? "" : "wide") },
      DRAW[block.kind](block)));
    main.append(el("section", { id: part.id, "aria-labelledby": part.id + "-title" }, head,
      part.note ? el("p", { class: "note" }, part.note) : null, el("div", { class: "blocks" }, blocks)));
    contents.append(el("a", { href: "#" + part.id }, part.title));
  }
  const links = new Map([...contents.children].map((a) => [a.getAttribute("href").slice(1), a]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const part of main.querySelectorAll("section")) watch.observe(part);
}

function themeButton() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const set = (dark) => {
    root.classList.toggle("dark", dark);
    button.setAttribute("aria-pressed", String(dark));
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Switch to light colors" : "Switch to dark colors");
  };
  set(system.matches);
  system.addEventListener("change", (event) => set(event.matches));
  button.addEventListener("click", () => set(!root.classList.contains("dark")));
  window.addEventListener("beforeprint", () => root.classList.remove("dark"));
}
