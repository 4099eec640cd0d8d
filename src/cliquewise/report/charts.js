// Charts: curves, reliability diagrams, heat maps, bars.

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}

DRAW.curves = (block) => {
  const picture = el("div"), names = block.steps.map(([name]) => name);
  const choose = el("select", { "aria-label": "What " + block.caption + " is drawn over",
    onchange: () => picture.replaceChildren(curvesOver(block, choose.selectedIndex)) },
    names.map((name) => el("option", {}, name)));
  picture.append(curvesOver(block, 0));
  const keys = block.lines.map(([name], i) => el("span", {}, el("i", { class: "s" + i }), name));
  if (block.target) keys.push(el("span", {}, el("i", { class: "target" }), "tolerance"));
  return el("figure", {}, el("figcaption", {}, block.caption, names.length > 1 ? el("label", {}, el("small", {}, "over "), choose) : null),
    picture, el("div", { class: "key" }, keys));
};

function curvesOver(block, which) {
  const width = 560, height = 260, left = 58, right = 10, top = 10, bottom = 34;
  const steps = block.steps[which][1], scale = block.logarithmic ? Math.log10 : (v) => v;
  const usable = (v) => v !== null && (!block.logarithmic || v > 0);
  let values = block.lines.flatMap(([, line]) => line.filter(usable)).map(scale);
  if (!block.logarithmic && values.length > 8) { // the first values may be far away: they leave the frame
    const sorted = values.slice().sort((a, b) => a - b), at = (q) => sorted[Math.round(q * (sorted.length - 1))];
    const last = block.lines.map(([, line]) => line[line.length - 1]).filter(usable);
    const room = 3 * Math.max(at(0.85) - at(0.15), 1e-12);
    values = values.filter((v) => v >= Math.min(at(0.15), ...last) - room && v <= Math.max(at(0.85), ...last) + room);
  }
  if (block.target) values.push(scale(block.target));
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (!values.length) [low, high] = [0, 1];
  if (high === low) { high += Math.abs(high) * 0.05 || 1; low -= Math.abs(low) * 0.05 || 1; }
  if (block.logarithmic) { low = Math.floor(low); high = Math.ceil(high); }
  const known = steps.filter((v) => v !== null), begin = Math.min(0, ...known), end = Math.max(...known, begin + 1e-9);
  const x = (v) => left + ((v - begin) / (end - begin)) * (width - left - right);
  const y = (v) => height - bottom - ((v - low) / (high - low)) * (height - top - bottom);
  const out = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label":
    `${block.caption} over ${block.steps[which][0]}; at the end ` + block.lines.map(([name, line]) => `${name} ${round(line[line.length - 1], 5)}`).join(", ") });
  const marks = block.logarithmic ? ticks(low, high, Math.min(high - low, 6)).filter((v) => Number.isInteger(v)) : ticks(low, high, 5);
  for (const v of marks) {
    out.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(v), y2: y(v) }),
      svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, block.logarithmic ? round(10 ** v, 1) : round(v, 5)));
  }
  for (const v of ticks(begin, end, 6)) out.append(svg("text", { x: x(v), y: height - bottom + 18, "text-anchor": "middle" }, round(v, 4)));
  out.append(svg("text", { x: width - right, y: height - 2, "text-anchor": "end" }, block.steps[which][0]));
  out.append(svg("line", { class: "base", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  if (block.target) out.append(svg("line", { class: "target", x1: left, x2: width - right, y1: y(scale(block.target)), y2: y(scale(block.target)) }));
  const clip = "frame" + (curvesOver.count = (curvesOver.count || 0) + 1);
  out.append(svg("clipPath", { id: clip }, svg("rect", { x: left, y: top - 5, width: width - left - right + 6, height: height - top - bottom + 10 })));
  block.lines.forEach(([, line], i) => {
    const points = line.map((v, t) => (usable(v) && steps[t] !== null ? `${x(steps[t]).toFixed(1)},${y(scale(v)).toFixed(1)}` : null)).filter(Boolean);
    if (points.length <= 40) for (const point of points) { const [cx, cy] = point.split(","); out.append(svg("circle", { class: "dot s" + i, cx, cy, r: 3.5, "clip-path": `url(#${clip})` })); }
    out.append(svg("polyline", { class: "line s" + i, points: points.join(" "), "clip-path": `url(#${clip})` }));
  });
  return out;
}

DRAW.reliability = (block) => {
  const side = 400, left = 48, bottom = 40, size = side - left - 12, most = Math.max(...block.bins.map((b) => b[2]), 1);
  const x = (v) => left + v * size, y = (v) => side - bottom - v * size;
  const out = svg("svg", { viewBox: `0 0 ${side} ${side + 4}`, role: "img", "aria-label": `Reliability of ${block.caption}: expected calibration error ${percent(block.error)} %` });
  for (const v of [0, 0.25, 0.5, 0.75, 1]) {
    out.append(svg("line", { class: "grid", x1: x(0), x2: x(1), y1: y(v), y2: y(v) }),
      svg("text", { x: x(0) - 6, y: y(v) + 4, "text-anchor": "end" }, v), svg("text", { x: x(v), y: y(0) + 16, "text-anchor": "middle" }, v));
  }
  for (const [p, , n] of block.bins) { // square roots: most tokens are certain
    const tall = 0.3 * Math.sqrt(n / most), at = Math.min(Math.floor(p * 10), 9) / 10;
    out.append(svg("rect", { class: "count", x: x(at) + 1, width: size / 10 - 2, y: y(tall), height: Math.max(y(0) - y(tall), 0.5) }));
  }
  out.append(svg("line", { class: "ideal", x1: x(0), x2: x(1), y1: y(0), y2: y(1) }),
    svg("polyline", { class: "line s0", points: block.bins.filter((b) => b[2] >= 20).map(([p, share]) => `${x(p)},${y(share)}`).join(" ") }));
  for (const [p, share, n] of block.bins) {
    out.append(svg("circle", { class: n < 20 ? "dot few" : "dot", cx: x(p), cy: y(share), r: 4 }, svg("title", {}, `probability ${round(p, 3)}: ${percent(share)} % of ${grouped(n)} correct`)));
  }
  out.append(svg("text", { x: x(0.5), y: side + 2, "text-anchor": "middle" }, "probability"),
    svg("text", { transform: `translate(11 ${y(0.5)}) rotate(-90)`, "text-anchor": "middle" }, "accuracy"));
  const figure = el("figure", {}, el("figcaption", {}, block.caption, el("small", {}, `expected calibration error ${percent(block.error)} %, of ${grouped(block.n)}`)), out,
    el("div", { class: "key" }, el("span", {}, "On the dashed line, probabilities equal accuracies. Columns show counts (square root); pale dots have fewer than 20.")));
  figure.style.maxWidth = "30rem";
  return figure;
};

DRAW.heatmap = (block) => {
  const flat = block.values.flat().filter((v) => v !== null), most = Math.max(...flat.map(Math.abs), 1e-12);
  const small = block.columns.length > 14;
  const total = (row) => row.reduce((sum, v) => sum + (v || 0), 0) || 1;
  const cell = (v, i, j, row) => {
    const where = `${block.axes[0]} ${block.rows[i]}, ${block.axes[1]} ${block.columns[j]}: `;
    if (v === null) return el("td", { class: "never", title: where + "never" }, "×");
    const td = el("td", { title: where + (block.signed ? round(v, 4) : grouped(v)), class: v === 0 && !block.signed ? "zero" : null },
      block.signed ? (small ? "" : v.toFixed(1).replace(/^-(0\.0)$/, "$1")) : small && v > 999 ? round(v / 1000, 2) + "k" : grouped(v));
    const diagonal = block.share && block.rows[i] === block.columns[j];
    const strength = block.share ? (v ? Math.max(Math.sqrt(v / total(row)), 0.08) : 0) : Math.sqrt(Math.abs(v) / most);
    const hue = (block.share && !diagonal) || (block.signed && v < 0) ? "--wrong" : "--heat";
    td.style.background = `rgba(var(${hue}), ${(0.75 * strength).toFixed(3)})`;
    return td;
  };
  const head = el("tr", {}, el("th", { class: "axis" }, `${block.axes[0]} ↓ ${block.axes[1]} →`), block.columns.map((name) => el("th", { scope: "col", title: name }, name)));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": block.caption }, el("table", { class: "heat" + (small ? " small" : "") }, captionOf(block.caption), el("thead", {}, head),
    el("tbody", {}, block.values.map((row, i) => el("tr", {}, el("th", { scope: "row", title: block.rows[i] }, block.rows[i]), row.map((v, j) => cell(v, i, j, row)))))));
};

function barRows(items, scale, show) {
  const most = scale || Math.max(...items.map(([, v]) => Math.abs(v)), 1e-12), two = items.some(([, v]) => v < 0);
  return el("div", { class: "bars", role: "list" }, items.map(([name, v]) => {
    const bar = el("i", { class: v < 0 ? "minus" : null }), part = Math.abs(v) / most;
    bar.style.left = `${two ? (v < 0 ? 50 - 50 * part : 50) : 0}%`;
    bar.style.width = `${(two ? 50 : 100) * part}%`;
    const value = (show || ((n) => (n > 0 ? "+" : "") + round(n, 3)))(v);
    const row = el("div", { role: "listitem", "aria-label": `${name}: ${value}` }, el("div", { class: "name", title: name }, name), el("div", { class: "track" }, bar), el("div", { class: "value" }, value));
    row.style.display = "contents";
    return row;
  }));
}

DRAW.bars = (block) => {
  const picture = el("div", { "aria-live": "polite" });
  const most = Math.max(...block.groups.flatMap(([, items]) => items.map(([, v]) => Math.abs(v))), 1e-12);
  const choose = el("select", { "aria-label": block.caption, onchange: () => show(choose.selectedIndex) }, block.groups.map(([name]) => el("option", {}, name)));
  const show = (i) => picture.replaceChildren(block.groups[i][1].length ? barRows(block.groups[i][1], most) : el("p", {}, "All of its weights are zero."));
  if (block.groups.length) show(0);
  return el("figure", {}, el("figcaption", {}, block.caption), el("div", { class: "choice" }, el("span", {}, "label"), choose), picture);
};
