// "Try it": the model itself, in the page. Attributes, scores, the best labels and probabilities.

class LiveModel {
  constructor(block) {
    this.block = block;
    this.K = block.labels.length;
    const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
    const counts = new Uint32Array(bytes(block.counts));
    this.cells = new Uint32Array(bytes(block.cells));
    this.weights = new Float64Array(bytes(block.weights));
    this.start = new Uint32Array(counts.length + 1);
    counts.forEach((count, i) => { this.start[i + 1] = this.start[i] + count; });
    this.index = new Map(block.names.map((name, i) => [name, i]));
    this.reach = block.marks.length / 2;
    this.transitions = block.transitions.map((row) => Float64Array.from(row, (v) => (v === null ? -Infinity : v)));
    this.digits = new Set(block.digits);
  }

  // What a rule asks of a word, as Python's str sees it: letters are code points.
  changed(word, change) {
    if (word === null || change === "") return word;
    const letters = Array.from(word), part = /^(prefix|suffix)(\d)$/.exec(change);
    if (part) {
      const n = +part[2];
      if (letters.length < n) return null;
      return (part[1] === "prefix" ? letters.slice(0, n) : letters.slice(letters.length - n)).join("");
    }
    if (change === "lower") return word.toLowerCase();
    if (change === "type") return this.type(letters);
    const shape = letters.map((c) => this.shape(c));
    return (change === "shape" ? shape : shape.filter((c, i) => i === 0 || c !== shape[i - 1])).join("");
  }

  isDigit(c) { return /\p{Nd}/u.test(c) || this.digits.has(c); }

  shape(c) {
    if (/\p{Uppercase}/u.test(c)) return "U";
    if (/\p{Lowercase}/u.test(c)) return "L";
    if (this.isDigit(c)) return "D";
    const kinds = [[".,", "."], [";:?!", ";"], ["+-*/=|_", "-"], ["({[<", "("], [")}]>", ")"]];
    const found = kinds.find(([some]) => some.includes(c));
    return found ? found[1] : c;
  }

  type(letters) {
    const some = (test) => letters.some(test), first = letters[0] || "";
    const upper = some((c) => /\p{Uppercase}/u.test(c)), lower = some((c) => /\p{Lowercase}/u.test(c));
    const digit = some((c) => this.isDigit(c)), symbol = some((c) => !/[\p{L}\p{N}]/u.test(c));
    if (!lower && (upper || digit || symbol)) return "All" + (upper ? "Upper" : "") + (digit ? "Digit" : "") + (symbol ? "Symbol" : "");
    if (first && /\p{Uppercase}/u.test(first)) return "InitUpper";
    return symbol ? "LowerSymbol" : digit ? "LowerDigit" : "Lower";
  }

  // Numbers of the known attributes of every token. A cell that is null makes no attribute.
  attributes(rows) {
    const n = rows.length, { marks } = this.block;
    const value = (at, column) => (at < 0 ? marks[-at - 1] : at >= n ? marks[this.reach + at - n] : rows[at][column]);
    return rows.map((_, t) => this.block.rules.map(([parts, macros, only]) => {
      if ((only === "first" && t > 0) || (only === "last" && t < n - 1)) return -1;
      let name = parts[0];
      for (let m = 0; m < macros.length; m += 1) {
        const [row, column, change, absolute] = macros[m];
        const at = absolute ? (row < 0 ? n + row : row - 1) : t + row;
        const found = value(at, column), word = this.changed(found === undefined ? null : found, change);
        if (word === null) return -1;
        name += word + parts[m + 1];
      }
      return this.index.has(name) ? this.index.get(name) : -1;
    }).filter((i) => i >= 0));
  }

  scores(attributes) {
    const n = attributes.length, { intercept, begin, end } = this.block;
    return attributes.map((list, t) => {
      const row = Float64Array.from(intercept);
      for (const i of list) for (let p = this.start[i]; p < this.start[i + 1]; p += 1) row[this.cells[p]] += this.weights[p];
      for (let k = 0; k < this.K; k += 1) {
        if (t === 0) row[k] += begin[k] === null ? -Infinity : begin[k];
        if (t === n - 1) row[k] += end[k] === null ? -Infinity : end[k];
      }
      return row;
    });
  }

  // The best labels: maxima forward, then back along them.
  best(nodes) {
    const from = [];
    let top = Array.from(nodes[0]);
    for (let t = 1; t < nodes.length; t += 1) {
      const back = new Uint32Array(this.K), next = new Array(this.K);
      for (let b = 0; b < this.K; b += 1) {
        let most = -Infinity;
        for (let a = 0; a < this.K; a += 1) { const v = top[a] + this.transitions[a][b]; if (v > most) { most = v; back[b] = a; } }
        next[b] = most + nodes[t][b];
      }
      from.push(back);
      top = next;
    }
    const tags = [top.indexOf(Math.max(...top))];
    for (let t = from.length - 1; t >= 0; t -= 1) tags.unshift(from[t][tags[0]]);
    return tags;
  }

  // Probabilities of the labels: sums forward and backward, as logarithms.
  marginals(nodes) {
    const { K, transitions } = this, n = nodes.length;
    const sum = (values) => { const most = Math.max(...values); return most === -Infinity ? most : most + Math.log(values.reduce((s, v) => s + Math.exp(v - most), 0)); };
    const labels = Array.from({ length: K }, (_, k) => k), forward = [Array.from(nodes[0])], backward = new Array(n);
    for (let t = 1; t < n; t += 1) forward.push(labels.map((b) => nodes[t][b] + sum(labels.map((a) => forward[t - 1][a] + transitions[a][b]))));
    backward[n - 1] = labels.map(() => 0);
    for (let t = n - 2; t >= 0; t -= 1) backward[t] = labels.map((a) => sum(labels.map((b) => transitions[a][b] + nodes[t + 1][b] + backward[t + 1][b])));
    const logZ = sum(forward[n - 1]);
    return forward.map((row, t) => row.map((v, k) => Math.exp(v + backward[t][k] - logZ)));
  }

  tag(rows) {
    if (!rows.length) return { attributes: [], tags: [], probabilities: [] };
    const attributes = this.attributes(rows), nodes = this.scores(attributes);
    return { attributes, nodes, tags: this.best(nodes), probabilities: this.block.probabilities ? this.marginals(nodes) : null };
  }

  weight(i, k) {
    for (let p = this.start[i]; p < this.start[i + 1]; p += 1) if (this.cells[p] === k) return this.weights[p];
    return 0;
  }
}

// The answer as a block of one sentence that the list of sentences could hold, too.
function liveSentence(model, rows) {
  const { block, K } = model, { attributes, nodes, tags, probabilities } = model.tag(rows), n = rows.length, features = [], index = new Map();
  const number = (name) => { if (!index.has(name)) { index.set(name, features.length); features.push(name); } return index.get(name); };
  const reasons = {};
  tags.forEach((own, t) => {
    const table = probabilities ? probabilities[t] : nodes[t], order = Array.from({ length: K }, (_, k) => k).sort((a, b) => table[b] - table[a]);
    const other = order.find((k) => k !== own);
    if (other === undefined) return;
    const parts = [["(intercept)", block.intercept[own] - block.intercept[other]], ...attributes[t].map((i) => [block.names[i], model.weight(i, own) - model.weight(i, other)])];
    if (t === 0) parts.push(["(begin)", block.begin[own] - block.begin[other]]);
    if (t === n - 1) parts.push(["(end)", block.end[own] - block.end[other]]);
    parts.sort((a, b) => b[1] - a[1]);
    const flat = (some) => some.flatMap(([name, v]) => [number(name), +v.toPrecision(3)]);
    const pro = parts.filter(([, v]) => v > 0), contra = parts.filter(([, v]) => v < 0).reverse();
    const rest = [...pro.slice(5), ...contra.slice(5)].reduce((s, [, v]) => s + v, 0);
    const step = (a, b, c, d) => { const v = model.transitions[a][b] - model.transitions[c][d]; return Number.isFinite(v) ? +v.toPrecision(3) : null; };
    const before = t > 0 ? step(tags[t - 1], own, tags[t - 1], other) : 0, after = t + 1 < n ? step(own, tags[t + 1], other, tags[t + 1]) : 0;
    reasons[t] = [other, flat(pro.slice(0, 5)), flat(contra.slice(0, 5)), rest, before, after, probabilities ? order.slice(0, 3).flatMap((k) => [k, table[k]]) : []];
  });
  return { kind: "sentences", labels: block.labels, words: rows.map((row) => row[0]), lengths: [n], tokens: rows.map((_, t) => t), gold: tags, changed: [], spans: null, kinds: [],
    probability: probabilities ? tags.map((k, t) => Math.round(1000 * probabilities[t][k])) : null, features, reasons, n_reasons: n, labelings: {} };
}

const LIVE = { model: null, block: null, get() { this.model = this.model || new LiveModel(this.block); return this.model; } };

// One line: words. Several lines: a token on each, with its columns.
function typedRows(text, columns) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const fill = (cells) => Array.from({ length: columns }, (_, j) => (j < cells.length ? cells[j] : null));
  if (lines.length > 1) return lines.map((line) => fill(line.split(/\s+/)));
  const words = (lines[0] || "").match(/(?:\p{L}\.){2,}|[\p{L}\p{N}]+(?:[.,'’-][\p{L}\p{N}]+)*|\S/gu) || [];
  return words.map((word) => fill([word]));
}

DRAW.live = (block) => {
  LIVE.block = block;
  const out = el("div", { "aria-live": "polite", class: "answer" });
  let state = { open: null }, timer = 0;
  const show = (rows) => {
    if (!rows.length) { out.replaceChildren(); return; }
    const all = new Sentences(liveSentence(LIVE.get(), rows));
    const draw = () => out.replaceChildren(sentenceRow(all, 0, state, (token) => { state.open = state.open === token ? null : token; draw(); out.querySelector(`[data-token="${token}"]`).focus(); }));
    draw();
  };
  const field = el("textarea", { rows: 3, id: "try-text", spellcheck: "false", "data-live": true, oninput: () => { clearTimeout(timer); timer = setTimeout(() => { state = { open: null }; show(typedRows(field.value, block.columns)); }, 60); } });
  const more = block.columns > 1 ? `Type a sentence, or paste ${block.columns} columns as in the training file, one token on each line. Columns that are missing make no features.` : "Type a sentence, or one token on each line.";
  return el("div", { class: "live" }, el("label", { for: "try-text" }, more), field, out,
    el("p", { class: "legend" }, `The model is part of this page (${grouped(block.n_weights)} weights, ${(block.bytes / 1e6).toFixed(1)} MB); nothing leaves it.`));
};
