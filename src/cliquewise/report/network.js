// Graphical models: the drawn graph, and the marginals of its variables.

const stateName = (block, v, s) => (block.states ? block.states[v][s] : String(s));

function chancesOf(block, v) {
  return barRows(block.chances[v].map((p, s) => [(block.best[v] === s ? "★ " : "") + stateName(block, v, s), p]), 1, (p) => p.toFixed(4));
}

function variableCard(block, v, seen) {
  return el("div", {}, el("h4", {}, block.names[v], " ", seen.has(v) ? el("small", {}, "observed") : null), chancesOf(block, v));
}

DRAW.network = (block) => {
  const seen = new Set(block.seen), count = block.places.length;
  const xs = block.places.map((p) => p[0]), ys = block.places.map((p) => p[1]);
  const [left, top] = [Math.min(...xs), Math.min(...ys)], [wide, high] = [Math.max(...xs) - left, Math.max(...ys) - top];
  const step = Math.max(14, Math.min(72, 1100 / (wide + 1))), r = Math.max(4, Math.min(15, step * 0.21));
  const cut = new Set(block.around), margin = cut.size ? 0.85 : 0.6;
  const at = (v) => [(block.places[v][0] - left + margin) * step, (block.places[v][1] - top + margin) * step];
  const width = (wide + 2 * margin) * step, height = (high + 2 * margin) * step;
  const out = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "network" + (wide > 7 ? " dense" : ""), role: "group", "aria-label": `Graph of ${block.n} variables` });
  out.style.maxHeight = "80vh";
  out.style.maxWidth = `${Math.max(width * 1.4, 320)}px`;
  const line = (a, b) => { const [[x1, y1], [x2, y2]] = [at(a), at(b)]; out.append(svg("line", { class: "edge", x1, y1, x2, y2 })); };
  const end = (a, b) => { const [[x1, y1], [x2, y2]] = [at(a), at(b)], far = Math.hypot(x2 - x1, y2 - y1) || 1; out.append(svg("line", { class: "edge around", x1, y1, x2: x1 - 0.6 * step * (x2 - x1) / far, y2: y1 - 0.6 * step * (y2 - y1) / far })); };
  block.edges.forEach(([a, b], i) => { if (cut.has(i)) { end(a, b); end(b, a); } else line(a, b); });
  block.scopes.forEach((scope, f) => scope.forEach((v) => line(block.n + f, v)));
  for (let f = block.n; f < count; f += 1) { const [x, y] = at(f), h = r * 0.45; out.append(svg("rect", { class: "factor", x: x - h, y: y - h, width: 2 * h, height: 2 * h })); }
  const card = el("div", { class: "card", "aria-live": "polite" }, el("p", { class: "note" }, "Choose a variable of the graph to see its marginals."));
  let on = null;
  const choose = (v, node) => { if (on) on.classList.remove("on"); on = node; node.classList.add("on"); card.replaceChildren(variableCard(block, v, seen)); };
  for (let v = 0; v < block.n; v += 1) {
    const [cx, cy] = at(v), state = block.chances[v].indexOf(Math.max(...block.chances[v])), p = block.chances[v][state];
    const node = svg("g", { class: "node" + (seen.has(v) ? " seen" : ""), tabindex: 0, role: "button", "aria-label": `${block.names[v]}${seen.has(v) ? ", observed" : ""}: ${stateName(block, v, state)} ${round(p, 3)}` },
      svg("title", {}, `${block.names[v]}: ${stateName(block, v, state)} ${round(p, 3)}${seen.has(v) ? " (observed)" : ""}`), svg("circle", { cx, cy, r, fill: `var(--paper)` }), pie(block.chances[v], cx, cy, r));
    if (step >= 34) node.append(svg("text", { x: cx, y: cy + r + 11 }, block.names[v].length > 9 ? block.names[v].slice(0, 8) + "…" : block.names[v]));
    node.addEventListener("click", () => choose(v, node));
    node.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(v, node); } });
    out.append(node);
  }
  const most = Math.min(Math.max(...block.chances.map((c) => c.length)), 10);
  const named = new Set((block.states || []).map((s) => s.join("\u0000"))).size === 1 ? block.states[0] : null;
  const keys = Array.from({ length: most }, (_, s) => el("span", {}, swatch(s), named ? named[s] : `state ${s}`));
  return el("div", {}, el("div", { class: "key" }, keys, el("span", {}, "slices: marginals"), el("span", {}, "★ best labeling"), seen.size ? el("span", {}, "thick ring: observed") : null, cut.size ? el("span", {}, "dotted: joins the opposite side") : null, block.scopes.length ? el("span", {}, "square: a factor of three or more") : null), el("div", { class: "drawing" }, out, card));
};

function swatch(s) {
  return svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true", class: "swatch" }, svg("circle", { cx: 5, cy: 5, r: 5, fill: `var(--t${s % 10})` }));
}

function pie(chances, cx, cy, r) {
  const group = svg("g", {});
  let turn = -Math.PI / 2;
  chances.forEach((p, s) => {
    if (p <= 0.001) return;
    const fill = `var(--t${s % 10})`;
    if (p >= 0.999) { group.append(svg("circle", { cx, cy, r, fill })); return; }
    const end = turn + 2 * Math.PI * p, point = (a) => `${(cx + r * Math.cos(a)).toFixed(2)} ${(cy + r * Math.sin(a)).toFixed(2)}`;
    group.append(svg("path", { d: `M ${cx} ${cy} L ${point(turn)} A ${r} ${r} 0 ${p > 0.5 ? 1 : 0} 1 ${point(end)} Z`, fill }));
    turn = end;
  });
  const ring = svg("circle", { cx, cy, r, fill: "none" });
  group.append(ring);
  return group;
}

DRAW.marginals = (block) => {
  const seen = new Set(block.seen), cards = el("div", { class: "marginals" }), more = el("button", { type: "button" }, "Show more");
  const count = el("p", { class: "legend", role: "status" });
  let found = [], shown = 0;
  const extend = () => {
    for (const v of found.slice(shown, shown + 48)) cards.append(variableCard(block, v, seen));
    shown = Math.min(shown + 48, found.length);
    more.hidden = shown === found.length;
    count.textContent = `${grouped(shown)} of ${grouped(found.length)} variables; ★ the best labeling`;
  };
  const filter = { text: "", order: "file" };
  const apply = () => {
    const wanted = filter.text.trim().toLowerCase(), doubt = (v) => Math.max(...block.chances[v]);
    found = block.names.map((_, v) => v).filter((v) => block.names[v].toLowerCase().includes(wanted));
    if (filter.order === "doubt") found.sort((a, b) => doubt(a) - doubt(b) || a - b);
    if (filter.order === "seen") found = found.filter((v) => seen.has(v));
    shown = 0;
    cards.replaceChildren();
    extend();
  };
  more.addEventListener("click", extend);
  const orders = [["file", "as in the file"], ["doubt", "least certain first"], ...(seen.size ? [["seen", "observed only"]] : [])];
  const tools = el("div", { class: "tools", role: "search" },
    el("label", {}, "order", el("select", { "data-filter": "order", onchange: (event) => { filter.order = event.target.value; apply(); } }, orders.map(([value, text]) => el("option", { value }, text)))),
    el("label", { class: "search" }, "name", el("input", { type: "search", "data-filter": "text", oninput: (event) => { filter.text = event.target.value; apply(); } })));
  apply();
  return el("div", {}, tools, count, cards, el("p", { class: "more" }, more));
};
