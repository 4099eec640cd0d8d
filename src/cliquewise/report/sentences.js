// Sentences: filters, order, a list that draws only visible rows, and the reasons for a label.

class Sentences {
  constructor(block) {
    this.block = block;
    const n = block.lengths.length;
    this.start = new Uint32Array(n + 1);
    block.lengths.forEach((length, i) => { this.start[i + 1] = this.start[i] + length; });
    this.own = Int32Array.from(block.gold);
    for (let i = 0; i < block.changed.length; i += 2) this.own[block.changed[i]] = block.changed[i + 1];
    this.spans = { true: this.rows("true", 4), own: this.rows("own", 5) };
    this.summaries = Array.from({ length: n }, (_, i) => this.summary(i));
    this.texts = new Array(n);
  }

  // Spans of every sentence: [first, end, type, kind, per mille], counted from its first token.
  rows(side, stride) {
    const out = Array.from({ length: this.block.lengths.length }, () => []);
    if (!this.block.spans) return out;
    const flat = this.block.spans[side];
    for (let at = 0, i = 0; at < flat.length; at += stride) {
      while (flat[at] >= this.start[i + 1]) i += 1;
      const base = this.start[i];
      out[i].push([flat[at] - base, flat[at + 1] - base, ...flat.slice(at + 2, at + stride)]);
    }
    return out;
  }

  isWrong(token) { return this.block.gold[token] >= 0 && this.block.gold[token] !== this.own[token]; }

  summary(i) {
    const { probability } = this.block, kinds = new Set(), labels = new Set();
    let wrong = 0, least = 1000, surest = -1;
    for (let t = this.start[i]; t < this.start[i + 1]; t += 1) {
      const p = probability ? probability[t] : 1000, bad = this.isWrong(t);
      least = Math.min(least, p);
      if (bad) { wrong += 1; surest = Math.max(surest, p); }
      if (!this.block.spans) { if (bad) { labels.add(this.own[t]); labels.add(this.block.gold[t]); } }
    }
    for (const side of ["true", "own"]) for (const [, , type, kind] of this.spans[side][i]) { labels.add(type); if (kind) kinds.add(kind); }
    return { wrong, least, surest, kinds, labels };
  }

  text(i) {
    if (this.texts[i] === undefined) {
      const words = [];
      for (let t = this.start[i]; t < this.start[i + 1]; t += 1) words.push(this.block.words[this.block.tokens[t]]);
      this.texts[i] = words.join(" ").toLowerCase();
    }
    return this.texts[i];
  }

  chosen(filter) {
    const wanted = filter.text.trim().toLowerCase(), out = [];
    this.summaries.forEach((s, i) => {
      if (filter.kind === "errors" && !s.wrong && !s.kinds.size) return;
      if (filter.kind === "right" && (s.wrong || s.kinds.size)) return;
      if (/^\d+$/.test(filter.kind) && !s.kinds.has(+filter.kind)) return;
      if (filter.label !== "" && !s.labels.has(+filter.label)) return;
      if (wanted && !this.text(i).includes(wanted)) return;
      out.push(i);
    });
    const by = { doubt: (s) => s.least, sure: (s) => -s.surest, errors: (s) => -s.wrong }[filter.order];
    if (by) out.sort((a, b) => by(this.summaries[a]) - by(this.summaries[b]) || a - b);
    return out;
  }
}

// Rows are placed one below the other; their heights are estimated until they are drawn.
class RowList {
  constructor(draw) {
    this.draw = draw;
    this.room = el("div", { class: "room", role: "list" });
    this.frame = el("div", { class: "list", tabindex: 0, role: "region", "aria-label": "Sentences", onscroll: () => this.show() }, this.room);
    this.nodes = new Map();
    this.heights = new Map();
    this.items = [];
    new ResizeObserver(() => { if (this.frame.clientWidth !== this.width) { this.width = this.frame.clientWidth; this.heights.clear(); this.show(); } }).observe(this.frame);
  }

  set(items) { this.items = items; this.clear(); this.frame.scrollTop = 0; this.show(); }

  clear() { for (const node of this.nodes.values()) node.remove(); this.nodes.clear(); }

  redraw(item) {
    const old = this.nodes.get(item);
    if (old) { this.nodes.delete(item); old.remove(); }
    this.heights.delete(item);
    this.show();
  }

  tops() {
    const tops = new Float64Array(this.items.length + 1);
    this.items.forEach((item, r) => { tops[r + 1] = tops[r] + (this.heights.get(item) || 92); });
    return tops;
  }

  show(everything = false) {
    for (let round = 0; round < 4; round += 1) {
      const tops = this.tops(), top = this.frame.scrollTop, bottom = top + (this.frame.clientHeight || 700);
      let low = 0, high = this.items.length;
      while (low < high) { const middle = (low + high) >> 1; if (tops[middle + 1] <= top - 300) low = middle + 1; else high = middle; }
      let end = low;
      while (end < this.items.length && (everything || tops[end] < bottom + 300) && (!everything || end < 300)) end += 1;
      const wanted = new Set(this.items.slice(low, end));
      for (const [item, node] of this.nodes) if (!wanted.has(item)) { node.remove(); this.nodes.delete(item); }
      for (let r = low; r < end; r += 1) {
        const item = this.items[r];
        let node = this.nodes.get(item);
        if (!node) { node = this.draw(item); this.nodes.set(item, node); }
        node.setAttribute("aria-posinset", r + 1);
        node.setAttribute("aria-setsize", this.items.length);
        node.style.top = `${tops[r]}px`;
        if (node.parentNode !== this.room) this.room.append(node);
      }
      this.room.style.height = `${tops[this.items.length]}px`;
      let changed = 0, above = 0;
      for (let r = low; r < end; r += 1) {
        const item = this.items[r], height = this.nodes.get(item).offsetHeight;
        const before = this.heights.get(item) || 92;
        if (height && height !== this.heights.get(item)) {
          this.heights.set(item, height);
          changed += 1;
          if (tops[r + 1] <= top) above += height - before;
        }
      }
      if (!changed) break;
      if (above) this.frame.scrollTop = top + above; // keep the visible text in place
    }
    [...this.nodes].sort((a, b) => a[1].getAttribute("aria-posinset") - b[1].getAttribute("aria-posinset"))
      .forEach(([, node], r) => { if (this.room.children[r] !== node) this.room.insertBefore(node, this.room.children[r]); });
  }
}

DRAW.sentences = (block) => {
  const all = new Sentences(block), filter = { kind: "all", label: "", text: "", order: "file" };
  const state = { open: null };
  const list = new RowList((i) => sentenceRow(all, i, state, (token) => { const old = state.open; state.open = old === token ? null : token;
    for (const item of new Set([old, token].filter((t) => t !== null).map((t) => sentenceOf(all, t)))) list.redraw(item);
    const button = list.room.querySelector(`[data-token="${token}"]`); if (button) button.focus({ preventScroll: true }); }));
  const count = el("p", { role: "status", class: "legend" });
  const apply = () => {
    state.open = null;
    const items = all.chosen(filter);
    list.set(items);
    list.room.querySelectorAll(".empty").forEach((node) => node.remove());
    if (!items.length) list.room.append(el("p", { class: "empty" }, "No matching sentences."));
    count.textContent = `${grouped(items.length)} of ${grouped(block.lengths.length)} sentences`;
  };
  const select = (name, key, options) => el("label", {}, name, el("select", { "data-filter": key, onchange: (event) => { filter[key] = event.target.value; apply(); } },
    options.map(([value, text]) => el("option", { value }, text))));
  const kinds = [["all", "all"], ["errors", "any error"], ["right", "no error"]];
  if (block.spans) block.kinds.forEach((name, kind) => { if (kind) kinds.push([kind, name]); });
  const labels = [["", "any"], ...(block.spans ? block.spans.types : block.labels).map((name, i) => [i, name])];
  const orders = [["file", "as in the file"], ...(block.probability ? [["doubt", "least confident first"], ["sure", "most confidently wrong first"]] : []), ["errors", "most errors first"]];
  let timer = 0;
  const search = el("input", { type: "search", placeholder: "words", "data-filter": "text", oninput: (event) => { clearTimeout(timer); timer = setTimeout(() => { filter.text = event.target.value; apply(); }, 120); } });
  const out = el("div", {}, el("div", { class: "tools", role: "search" }, select("errors", "kind", kinds), select(block.spans ? "type" : "label", "label", labels),
    select("order", "order", orders), el("label", { class: "search" }, "text", search)), count, legend(block), list.frame);
  requestAnimationFrame(apply);
  window.addEventListener("beforeprint", () => list.show(true));
  window.addEventListener("afterprint", () => list.show());
  return out;
};

function legend(block) {
  const words = block.spans
    ? ["colored line: predicted span, its type and probability in % (dashed: wrong)", "double line: gold span where the prediction is wrong, listed below the sentence"]
    : ["small label: the predicted one, in red with the gold label where it is wrong"];
  words.push("dotted: probability below 90 %", `click a word to see why (${grouped(block.n_reasons)} wrong or uncertain labels have reasons)`);
  return el("p", { class: "legend" }, words.map((text) => el("span", {}, text)));
}

function sentenceOf(all, token) {
  let low = 0, high = all.start.length - 1;
  while (low < high) { const middle = (low + high) >> 1; if (all.start[middle + 1] <= token) low = middle + 1; else high = middle; }
  return low;
}

// Sentences are running text: words keep their spacing, and labels are words of their own, so they
// can neither overlap nor be cut off.
function sentenceRow(all, i, state, toggle) {
  const { block } = all, base = all.start[i], length = block.lengths[i], facts = all.summaries[i];
  const inGold = new Uint8Array(length);
  const missed = all.spans.true[i].filter(([, , , kind]) => kind);
  for (const [first, end] of missed) inGold.fill(1, first, end);
  const begins = new Map(all.spans.own[i].map((span) => [span[0], span]));
  const tokens = el("div", { class: "tokens" });
  for (let t = 0; t < length;) {
    const span = begins.get(t), end = span ? Math.max(span[1], t + 1) : t + 1;
    const words = [];
    for (; t < end; t += 1) words.push(tokenNode(all, base + t, inGold[t] > 0, state, toggle), " ");
    tokens.append(...(span ? [spanNode(span, words.slice(0, -1), block), " "] : words));
  }
  const names = [...facts.kinds].sort().map((kind) => block.kinds[kind]);
  const meta = el("div", { class: "meta" }, all.summaries.length > 1 ? el("span", {}, `sentence ${grouped(i + 1)}`) : null, names.length ? el("b", {}, names.join(", ")) : facts.wrong ? el("b", {}, `${facts.wrong} wrong`) : null,
    block.probability && facts.least < 1000 ? el("span", {}, `least certain label ${(facts.least / 10).toFixed(1)} %`) : null);
  const gold = missed.length ? el("div", { class: "gold" }, "gold: ", missed.map(([first, end, type]) => el("span", { class: `c${type % 10}` },
    el("b", { class: "tag" }, block.spans.types[type]), " ", wordsOf(all, base + first, base + end)))) : null;
  const opened = state.open !== null && state.open >= base && state.open < base + length;
  return el("div", { class: "sentence", role: "listitem" }, meta, tokens, gold, opened ? reasonOf(all, i, state.open) : null);
}

function wordsOf(all, from, to) {
  const words = [];
  for (let t = from; t < to; t += 1) words.push(all.block.words[all.block.tokens[t]]);
  return words.join(" ");
}

function tokenNode(all, token, inGold, state, toggle) {
  const { block } = all, wrong = all.isWrong(token), p = block.probability ? block.probability[token] : 1000;
  const word = block.words[block.tokens[token]], reason = Boolean(block.reasons[token]), label = block.labels[all.own[token]];
  const spoken = `${word}: ${wrong ? "predicted " : ""}${label}${wrong ? ", gold " + block.labels[block.gold[token]] : ""}${block.probability ? `, probability ${p / 1000}` : ""}`;
  const tags = block.spans ? [] : [el("b", { class: `tag c${all.own[token] % 10}` }, label)];
  if (!block.spans && wrong) tags.push(el("b", { class: "tag missed" }, "gold " + block.labels[block.gold[token]]));
  return el(reason ? "button" : "span", { type: reason ? "button" : null, class: "token" + (wrong ? " wrong" : "") + (p < 900 ? " unsure" : "") + (inGold ? " in-gold" : "") + (reason ? " why" : ""),
    "data-token": token, title: spoken, "aria-expanded": reason ? String(state.open === token) : null, "aria-label": reason ? spoken : null, onclick: reason ? () => toggle(token) : null },
    el("span", { class: "word" }, word), tags);
}

function spanNode([, , type, kind, p], words, block) {
  const sure = p >= 0 ? " " + (p / 10).toFixed(p > 995 ? 0 : 1) : "";
  return el("span", { class: `span c${type % 10}${kind ? " bad" : ""}` }, words, " ", el("b", { class: "tag" }, block.spans.types[type] + sure));
}

function reasonOf(all, i, token) {
  const { block } = all, [other, pro, contra, rest, before, after, likely] = block.reasons[token];
  const name = (c) => block.labels[c], own = name(all.own[token]), t = token - all.start[i], length = block.lengths[i];
  const pairs = (flat) => { const out = []; for (let k = 0; k < flat.length; k += 2) out.push([block.features[flat[k]], flat[k + 1]]); return out; };
  const steps = [];
  const step = (text, v) => steps.push(v === null ? [text + " (forbidden)", 0] : [text, v]);
  if (t > 0) step(`after ${name(all.own[token - 1])}`, before);
  if (t + 1 < length) step(`before ${name(all.own[token + 1])}`, after);
  if (rest) steps.push(["other features", rest]);
  const every = [...pairs(pro), ...pairs(contra), ...steps], most = Math.max(...every.map(([, v]) => Math.abs(v)), 1e-9);
  const heading = all.isWrong(token) ? `predicted ${own}, gold ${name(block.gold[token])}` : `predicted ${own}`;
  const side = (title, items) => el("div", {}, el("h5", {}, title), items.length ? barRows(items, most) : el("p", {}, "nothing"));
  const parts = [side(`for ${own} rather than ${name(other)}`, pairs(pro)), side(`for ${name(other)} rather than ${own}`, pairs(contra)), side("neighbors and other features", steps)];
  if (likely.length) {
    const odds = [];
    for (let k = 0; k < likely.length; k += 2) odds.push([name(likely[k]), likely[k + 1]]);
    parts.push(el("div", {}, el("h5", {}, "most probable labels of this word"), barRows(odds, 1, (v) => (100 * v).toFixed(1) + " %")));
  }
  if (block.labelings[i]) {
    const rows = block.labelings[i].map(([p, differs]) => {
      const words = [];
      for (let k = 0; k < differs.length; k += 2) words.push(`${block.words[block.tokens[all.start[i] + differs[k]]]}: ${name(differs[k + 1])}`);
      return el("li", {}, `${(100 * p).toFixed(1)} %: `, words.length ? words.join(", ") : "as predicted");
    });
    parts.push(el("div", {}, el("h5", {}, "best labelings of the sentence, and their differences"), el("ol", {}, rows)));
  }
  return el("div", { class: "reason", role: "region", "aria-label": "Reasons" }, el("h4", {}, `“${block.words[block.tokens[token]]}”: ${heading}`),
    el("p", {}, `Parts of the score of ${own} minus that of ${name(other)}; a difference of 1 multiplies the odds by 2.7.`), el("div", { class: "two" }, parts));
}
