"use strict";
// Draws the figures. The page contains their options as JSON; this script adds functions and the options that depend on
// the background (light, dark, paper).
(() => {
  const read = id => JSON.parse(document.getElementById(id).textContent);
  const palettes = read("palettes"); // {light: [...], dark: [...], looks: {arm: "c3 m1"}}
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = {}; // figure -> its chart and options, once it was seen
  const sectionOf = id => document.getElementById(id).closest("section, header");

  // The functions below print labels, so they create text nodes, never markup.
  const element = (tag, style, ...children) => {
    const e = document.createElement(tag);
    Object.assign(e.style, style);
    e.append(...children);
    return e;
  };
  const digits = (v, share) => typeof v !== "number" ? "–"
    : share ? (100 * v).toFixed(1) + " %" : String(Number(v.toPrecision(4)));
  const line = (colour, name, text) => element("div", { display: "flex", gap: "1em", justifyContent: "space-between" },
    element("span", {}, element("span", { display: "inline-block", width: ".7em", height: ".7em", background: colour, marginRight: ".5em" }), name),
    element("b", { fontVariantNumeric: "tabular-nums" }, text));

  // The marker of an arm: circle, diamond, square, triangle.
  const mark = (kind, cx, cy, r, fill) => kind ? { type: "polygon", style: { fill }, shape: { points: [
    [[cx, cy - r - 1.5], [cx + r + 1.5, cy], [cx, cy + r + 1.5], [cx - r - 1.5, cy]],
    [[cx - r, cy - r], [cx + r, cy - r], [cx + r, cy + r], [cx - r, cy + r]],
    [[cx, cy - r - 1], [cx + r + 1, cy + r], [cx - r - 1, cy + r]]][kind - 1] } }
    : { type: "circle", shape: { cx, cy, r }, style: { fill } };

  // A dot on its interval, beside the other series of the category; rings for the pooled values.
  const interval = data => (params, api) => {
    const category = api.value(0), place = api.value(4), places = api.value(5);
    const width = Math.min(api.size([1, 0])[0] * 0.7, places * 26) / places;
    const at = v => {
      const p = api.coord([category, v]);
      return [p[0] + (place - (places - 1) / 2) * width, p[1]];
    };
    const dot = at(api.value(1)), low = at(api.value(2)), high = at(api.value(3)), colour = api.visual("color");
    const children = [];
    if (!isNaN(low[1]) && !isNaN(high[1])) {
      for (const [x1, y1, x2, y2] of [[low[0], low[1], high[0], high[1]], [low[0] - 3, low[1], low[0] + 3, low[1]], [high[0] - 3, high[1], high[0] + 3, high[1]]])
        children.push({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 2 } });
    }
    for (const v of data[params.dataIndex].value.slice(7)) {
      const [cx, cy] = at(v);
      if (!isNaN(cy)) children.push({ type: "circle", shape: { cx: cx + Math.min(6, width / 3), cy, r: 2.5 }, style: { fill: "none", stroke: colour, lineWidth: 1.2 } });
    }
    children.push(mark(api.value(6), dot[0], dot[1], Math.min(4.5, Math.max(2.5, width / 2)), colour));
    return { type: "group", children };
  };

  // The layout of a forest plot: names, intervals and numbers beside each other, or, if less than 100 pixels remain for
  // the intervals, the intervals below the names. It sets the distances of the rows from the top.
  const forestLayout = (data, width) => {
    const fontSize = width < 420 ? 11 : 12, pen = document.createElement("canvas").getContext("2d");
    const widest = (weight, texts) => {
      pen.font = weight + " " + fontSize + "px " + getComputedStyle(document.body).fontFamily;
      return Math.max(...texts.map(text => pen.measureText(text).width));
    };
    const rows = data.filter(d => typeof d.value[0] === "number").map(d => d.name.split("\n"));
    const names = widest(400, rows.map(r => r[0])) + 14, numbers = widest(700, rows.map(r => r[1])) + 10;
    const beside = width - names - numbers >= 100;
    let height = 0;
    for (const d of data) {
      d.value[1] = height;
      height += typeof d.value[0] === "number" ? (beside ? 24 : 36) : 30;
    }
    return { fontSize, beside, height, left: beside ? names : 4, right: beside ? numbers : 4, numbers };
  };
  // A row of a forest plot: the interval on grey where the run cannot detect a difference, dashed lines at the smallest
  // difference that matters, a filled dot if the row is decided, and below a tick for each seed. The row of an outcome
  // has an arrow to the expected side of 0.
  const forest = (data, { fontSize, beside, left, right, numbers: room }, { ink, soft, band, good, ground }) => (params, api) => {
    const item = data[params.dataIndex], [effect, place, low, high, detectable, matters, decided, ...seeds] = item.value, area = params.coordSys;
    const at = v => Math.max(area.x, Math.min(area.x + area.width, api.coord([v, place])[0])), known = v => typeof v === "number";
    const top = api.coord([0, place])[1], y = top + (beside ? 12 : 25), children = [];
    const edge = { left: area.x - (beside ? left : 0), right: area.x + area.width + (beside ? right : 0) };
    const text = (align, text, fontWeight, width, y) => children.push({ type: "text", style: { x: edge[align], y, text, fill: ink, align, verticalAlign: "middle", fontSize, fontWeight, width, overflow: "truncate" } });
    const stroke = (x1, y1, x2, y2, stroke, lineWidth) => children.push({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke, lineWidth } });
    if (!known(effect)) {
      const [heading, expect] = item.name.split("\n"), way = expect === "higher" ? 1 : -1, from = at(0), tip = Math.max(area.x, Math.min(area.x + area.width, from + 40 * way));
      text("left", heading, 700, edge.right - edge.left, top + 11);
      if (expect) {
        stroke(from, top + 24, tip - 6 * way, top + 24, good, 2);
        children.push({ type: "polygon", shape: { points: [[tip, top + 24], [tip - 8 * way, top + 20], [tip - 8 * way, top + 28]] }, style: { fill: good } });
      }
      return { type: "group", children };
    }
    const [pair, numbers] = item.name.split("\n");
    if (known(detectable)) children.push({ type: "rect", shape: { x: at(-detectable), y: y - 6, width: at(detectable) - at(-detectable), height: 12 }, style: { fill: band } });
    const half = beside ? 12 : 8;
    stroke(at(0), y - half, at(0), y + half, soft, 1);
    if (matters > 0) for (const v of [-matters, matters]) children.push({ type: "line", shape: { x1: at(v), y1: y - half, x2: at(v), y2: y + half }, style: { stroke: soft, lineWidth: 1, lineDash: [3, 3] } });
    if (known(low)) for (const [x1, y1, x2, y2] of [[at(low), y, at(high), y], [at(low), y - 4, at(low), y + 4], [at(high), y - 4, at(high), y + 4]]) stroke(x1, y1, x2, y2, ink, 2);
    for (const v of seeds.filter(known)) stroke(at(v), y + 5, at(v), y + 10, ink, 1.5);
    children.push({ type: "circle", shape: { cx: at(effect), cy: y, r: decided ? 4.5 : 4 }, style: { fill: decided ? ink : ground, stroke: ink, lineWidth: decided ? 0 : 1.8 } });
    text("left", pair, 400, beside ? left : area.width - room, beside ? y : top + 9);
    text("right", numbers, 700, room, beside ? y : top + 9);
    return { type: "group", children };
  };

  // A bar in its lane.
  const span = (params, api) => {
    const from = api.coord([api.value(0), api.value(2)]), to = api.coord([api.value(1), api.value(2)]), height = Math.max(4, api.size([0, 1])[1] * 0.62);
    return { type: "rect", shape: { x: from[0], y: from[1] - height / 2, width: Math.max(1, to[0] - from[0]), height }, style: { fill: api.visual("color"), opacity: 0.85 } };
  };

  // The area between the lowest and the highest run: one polygon, drawn with the first item.
  const band = data => (params, api) => {
    if (params.dataIndex) return null;
    const known = data.filter(d => typeof d[1] === "number");
    const edge = (k) => known.map(d => api.coord([d[0], d[k]]));
    return { type: "polygon", silent: true, shape: { points: edge(2).concat(edge(1).reverse()) }, style: { fill: api.visual("color"), opacity: 0.15 } };
  };

  const paint = (id, isDark) => {
    const figure = document.getElementById(id), place = document.getElementById(id + "-chart"), share = figure.dataset.share === "true";
    let text = document.getElementById(id + "-options").textContent;
    if (isDark) palettes.light.forEach((c, i) => { text = text.replaceAll('"' + c + '"', '"' + palettes.dark[i] + '"'); });
    const options = JSON.parse(text);
    const ink = isDark ? "#e4e8ee" : "#1b1f24", soft = isDark ? "#9aa5b1" : "#57606a", rule = isDark ? "#313a46" : "#e3e7ec";
    options.textStyle = { fontFamily: getComputedStyle(document.body).fontFamily };
    Object.assign(options.legend, { textStyle: { color: ink }, itemWidth: 18, itemHeight: 9, selected: Object.fromEntries([...hiddenIn(sectionOf(id).id), ...hiddenIn(id)].map(name => [name, false])) });
    for (const axis of [].concat(options.xAxis, options.yAxis)) {
      axis.nameTextStyle = { color: soft, align: options.xAxis.includes(axis) ? "center" : "left" };
      axis.axisLabel = { color: soft, hideOverlap: true };
      axis.axisLine = { onZero: false, lineStyle: { color: soft } };
      axis.splitLine = { show: axis.type === "value" && !options.xAxis.includes(axis), lineStyle: { color: rule } };
    }
    if (options.series.some(s => s.areaStyle)) options.xAxis[0].boundaryGap = false;
    else if (options.xAxis[0].type === "category") Object.assign(options.xAxis[0].axisLabel, { interval: 0, hideOverlap: false, rotate: place.clientWidth < 560 ? 30 : 0 });
    if (options.yAxis[0].type === "category") {
      Object.assign(options.yAxis[0].axisLabel, { interval: 0, hideOverlap: false, width: Math.round(place.clientWidth * 0.34), ...(place.clientWidth < 560 ? { overflow: "break", fontSize: 10, lineHeight: 11 } : { overflow: "truncate" }) });
      options.xAxis[0].splitLine = { show: true, lineStyle: { color: rule } };
      options.xAxis[0].axisLabel.showMaxLabel = false;
      Object.assign(options.grid[0], { top: 8, left: 16 });
    }
    if (share) options.yAxis[0].axisLabel.formatter = v => Number((100 * v).toFixed(1)) + " %";
    Object.assign(options.tooltip, { confine: true, backgroundColor: isDark ? "#1a2029" : "#ffffff", borderColor: rule, textStyle: { color: ink, fontSize: 13 } });
    for (const s of options.series) {
      if (s.renderItem === "band") Object.assign(s, { renderItem: band(s.data), encode: { x: 0, y: [1, 2] }, clip: true, z: 1, tooltip: { show: false } });
    }
    if (options.series.some(s => s.renderItem === "forest")) {
      const series = options.series[0], layout = forestLayout(series.data, place.clientWidth);
      series.renderItem = forest(series.data, layout, { ink, soft, band: isDark ? "#2a323d" : "#e3e7ec", good: isDark ? "#4cc38a" : "#1a7f4b", ground: isDark ? "#12161c" : "#ffffff" });
      place.style.height = layout.height + 36 + "px";
      Object.assign(options.yAxis[0], { show: false, max: layout.height });
      Object.assign(options.grid[0], { top: 0, left: layout.left, right: layout.right, bottom: 36, containLabel: false });
      Object.assign(options.xAxis[0].axisLabel, { showMaxLabel: false, showMinLabel: false, formatter: v => (v > 0 ? "+" : "") + String(v).replace("-", "−") });
      const room = place.clientWidth - layout.left - layout.right; // a label takes up to 50 pixels
      Object.assign(options.xAxis[0], { splitLine: { show: false }, nameGap: 20, splitNumber: Math.min(5, Math.max(2, Math.floor(room / 50))) });
      options.tooltip.formatter = p => element("div", {}, ...p.name.split("\n").map(text => element("div", {}, text)),
        typeof p.value[4] === "number" ? element("div", { color: soft }, "detectable: ± " + digits(p.value[4]) + (p.value[5] > 0 ? "   matters: ± " + digits(p.value[5]) : "")) : "");
    } else if (options.series.some(s => s.renderItem === "span")) {
      const lanes = options.yAxis[0].data;
      for (const s of options.series) s.renderItem = span;
      options.tooltip.formatter = p => element("div", {}, element("div", {}, lanes[p.value[2]]), element("div", { color: soft }, p.name));
    } else if (options.series.some(s => s.renderItem === "interval")) {
      for (const s of options.series) if (s.renderItem) s.renderItem = interval(s.data);
      const diagonal = options.xAxis[0].type === "value"; // both axes measure the same
      if (diagonal) options.xAxis[0].axisLabel.formatter = options.yAxis[0].axisLabel.formatter;
      options.tooltip.formatter = p => element("div", {}, line(p.color, p.seriesName, digits(p.value[1], share)),
        element("div", { color: soft }, p.name + (diagonal ? "   " + options.xAxis[0].name + ": " + digits(p.value[0], share) : "")
          + (typeof p.value[2] === "number" ? "   95 %: " + digits(p.value[2], share) + " to " + digits(p.value[3], share) : "")));
    } else if (options.visualMap) {
      const scale = options.visualMap[0], narrow = place.clientWidth < 560;
      Object.assign(scale, { itemWidth: 12, itemHeight: 120, textStyle: { color: soft, lineHeight: 14 }, text: scale.text.map(t => t.replace(" ", "\n")) });
      options.grid[0].right = 64;
      for (const s of options.series) {
        Object.assign(s.label, { color: ink }, narrow ? { width: 68, overflow: "break", fontSize: 10, lineHeight: 12 } : {});
        s.itemStyle = { borderColor: ink, borderWidth: 1, opacity: 1 };
      }
      options.tooltip.formatter = p => element("div", {}, line(p.color, p.name, p.value[3]),
        element("div", { color: soft }, "95 %: " + p.value[4]),
        element("div", { color: soft }, options.xAxis[0].name + ": " + digits(p.value[0])), element("div", { color: soft }, options.yAxis[0].name + ": " + digits(p.value[1])));
    } else {
      options.tooltip.axisPointer = { lineStyle: { color: soft } };
      options.axisPointer = { link: [{ xAxisIndex: "all" }] };
      // Thick lines are those with an id of ours: "=", a number, and the variant of the line. A line has its nearest
      // point in the tooltip, because the library leaves out the lines without a point exactly there.
      const thick = options.series.filter(s => (s.id || "").startsWith("="));
      const nearest = (s, x) => s.data.reduce((best, d) => Math.abs(d[0] - x) < Math.abs(best[0] - x) ? d : best);
      const shownArms = s => drawn[id]?.chart.getOption().legend[0].selected?.[s.name] !== false;
      options.tooltip.formatter = all => {
        const x = Math.round(Number(all[0].axisValue));
        return element("div", {}, element("div", { color: soft }, options.xAxis.at(-1).name + " " + x),
          ...thick.filter(shownArms).map(s => line(s.itemStyle.color, [s.name, ...s.id.split(" ").slice(1)].join(" "), digits(nearest(s, x)[1], share))));
      };
      // A marker on about five points of a line.
      for (const s of options.series.filter(s => s.showSymbol && s.data.length > 12)) {
        const step = Math.ceil(s.data.length / 5);
        s.symbolSize = (_, p) => p.dataIndex % step === step >> 1 ? 7 : 0;
      }
    }
    const old = echarts.getInstanceByDom(place);
    if (old) old.dispose();
    const chart = echarts.init(place, null, { renderer: "canvas", devicePixelRatio: Math.max(2, devicePixelRatio) });
    chart.setOption(options);
    if (options.tooltip.trigger === "axis" && !options.series.some(s => s.areaStyle)) {
      chart.group = sectionOf(id).id + " " + options.xAxis.at(-1).name; // one cursor in all its figures
      echarts.connect(chart.group);
    }
    writeLegends(id, options.series);
    return { chart, options };
  };

  // Legends consist of buttons, which wrap and have keyboard focus; each hides its series. Arms are in the legend of
  // their section and disappear from all its figures, other series are in a legend of their figure.
  const hidden = {}; // id of a section or a figure -> names
  const hiddenIn = id => hidden[id] ||= new Set();
  const button = (place, name, looks, figures) => {
    if ([...place.children].some(b => b.textContent === name)) return;
    const key = document.createElement("span"), b = element("button", {}, key, name);
    key.className = "swatch " + looks.className;
    key.style.color = looks.color || "";
    b.type = "button";
    b.setAttribute("aria-pressed", "true");
    b.addEventListener("click", () => {
      const names = hiddenIn(place.dataset.of), hide = !names.has(name);
      if (hide) names.add(name); else names.delete(name);
      b.setAttribute("aria-pressed", String(!hide));
      for (const id of figures()) drawn[id]?.chart.dispatchAction({ type: hide ? "legendUnSelect" : "legendSelect", name });
    });
    place.append(b);
  };
  const legendOf = (of, put) => {
    let legend = document.querySelector('.legend[data-of="' + CSS.escape(of) + '"]');
    if (!legend) {
      legend = document.createElement("div");
      legend.className = "legend";
      legend.dataset.of = of;
      put(legend);
    }
    return legend;
  };
  const writeLegends = (id, series) => {
    const figure = document.getElementById(id), section = sectionOf(id), names = [...new Set(series.map(s => s.name))];
    const others = names.filter(name => !palettes.looks[name]);
    for (const name of names) {
      if (palettes.looks[name]) {
        const shared = legendOf(section.id, legend => { legend.classList.add("shared"); section.querySelector(".figures, .block").before(legend); });
        button(shared, name, { className: palettes.looks[name] }, () => ids.filter(f => sectionOf(f) === section));
      } else if (others.length > 1) {
        const colour = series.find(s => s.name === name).itemStyle.color, at = Math.max(palettes.light.indexOf(colour), palettes.dark.indexOf(colour)) - palettes.light.length + palettes.steps;
        button(legendOf(id, legend => figure.querySelector(".chart").before(legend)), name, { className: "", color: at < 0 ? colour : "var(--s" + at + ")" }, () => [id]);
      }
    }
  };

  const ids = [...document.querySelectorAll("figure[id]")].map(f => f.id);
  const folded = id => document.getElementById(id).closest("details:not([open])");
  const paintAll = isDark => Object.keys(drawn).forEach(id => { drawn[id] = paint(id, isDark); });
  // Figures are drawn one by one, so that the page stays responsive; folded ones are drawn when the fold is opened.
  const paintFrom = i => {
    if (i >= ids.length) return;
    if (!folded(ids[i])) drawn[ids[i]] ||= paint(ids[i], dark.matches);
    setTimeout(paintFrom, 0, i + 1);
  };
  setTimeout(paintFrom, 0, 0);
  // A narrow page starts with its first section open; a printed one has all of them open.
  const sections = [...document.querySelectorAll("details.fold")];
  if (innerWidth < 640) sections.slice(1).forEach(s => { s.open = false; });
  for (const fold of document.querySelectorAll("details.more, details.fold")) fold.addEventListener("toggle", () => fold.open && paintFrom(0));
  dark.addEventListener("change", () => paintAll(dark.matches));
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.fold:not([open]), details.limits:not([open])")];
    closed.forEach(s => { s.open = true; });
    for (const id of ids) if (!folded(id)) drawn[id] ||= paint(id, false);
    paintAll(false);
  });
  addEventListener("afterprint", () => {
    closed.forEach(s => { s.open = false; });
    paintAll(dark.matches);
  });
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => Object.entries(drawn).forEach(([id, { chart, options }]) => {
      if (options.series[0].encode && options.yAxis[0].inverse && !options.yAxis[0].data) drawn[id] = paint(id, dark.matches); // a forest plot
      else chart.resize();
    }));
  });
  // The page contains its document and its sources, as gzip in base64.
  const packed = document.getElementById("evidence-of-this-page");
  let evidence;
  const unpack = async () => {
    if (!evidence && packed) {
      const bytes = Uint8Array.from(atob(packed.textContent.replaceAll("-", "+").replaceAll("_", "/")), c => c.charCodeAt(0));
      evidence = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
    }
    return evidence;
  };
  const partOf = async is => {
    const all = await unpack();
    return all && [all.document.first, ...all.document.sections || []].flatMap(c => c.parts || []).find(is);
  };
  const dataOf = async id => (await partOf(p => p.figure && p.figure.id === id))?.figure.data || [[]];
  const save = (name, href) => Object.assign(document.createElement("a"), { download: name, href }).click();
  const quoted = cell => /[",\r\n]|^\s/.test(cell) ? '"' + cell.replaceAll('"', '""') + '"' : cell;
  for (const button of document.querySelectorAll("button[data-file]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = (await dataOf(button.closest("figure").id)).map(row => row.map(quoted).join(",") + "\n").join("");
      const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      save(button.dataset.file, address);
      setTimeout(() => URL.revokeObjectURL(address), 60000);
    });
  }
  // The table behind the fold is created when the fold is first opened.
  for (const fold of document.querySelectorAll("details[data-csv]")) {
    fold.addEventListener("toggle", async () => {
      const table = fold.querySelector("table"), figure = fold.dataset.csv;
      if (table.rows.length) return;
      const [head, ...body] = await dataOf(figure);
      if (table.rows.length) return;
      const top = table.createTHead().insertRow();
      for (const name of head) top.append(Object.assign(document.createElement("th"), { scope: "col", textContent: name }));
      const main = table.createTBody();
      for (const row of body) {
        const line = main.insertRow();
        for (const cell of row) Object.assign(line.insertCell(), { textContent: cell, id: figure + ".r" + (line.rowIndex) + "c" + line.cells.length });
      }
    });
  }
  // Transcripts and episodes are created when they are first opened.
  const block = (tag, className, ...children) => {
    const e = document.createElement(tag);
    e.className = className;
    e.append(...children);
    return e;
  };
  const utterance = m => {
    const who = m.role === "assistant" ? (m.sampled ? "policy" : "given reply") : m.role;
    const said = block("div", "said " + m.role + (m.sampled ? " sampled" : ""), block("div", "who", who,
      m.sampled ? block("span", "detail", m.sampled + " of " + m.tokens + " tokens sampled, mean logprob " + (m.logp || 0).toFixed(3).replace("-", "−")) : ""));
    if (m.sampled) said.style.setProperty("--surprise", Math.min(1, -(m.logp || 0) / 2).toFixed(3));
    if (m.strip) {
      const strip = block("div", "strip", m.strip);
      strip.title = "Dot: a given token. Block: a sampled token, the higher the less likely (half a nat per step).";
      said.append(strip);
    }
    if (m.text) said.append(block("pre", "", m.text));
    else if (m.role === "assistant") said.append(block("div", "detail", "empty reply: the turn ends"));
    if (m.calls && m.calls.length && m.calls.join("\n") !== (m.text || "").trim()) said.append(block("div", "detail", "calls"), ...m.calls.map(c => block("pre", "call", c)));
    for (const r of m.results || []) said.append(block("pre", "result", r));
    return said;
  };
  const episode = t => {
    const right = t.reward === 1, words = [t.task, t.category, t.seed, t.token && "conditioned on " + t.token, t.stop !== "done" && "stopped: " + t.stop].filter(Boolean);
    const fold = block("details", "talk", block("summary", "", block("strong", right ? "right" : "wrong", right ? "passed" : "failed"), " " + words.join(" · ")));
    fold.addEventListener("toggle", () => {
      if (fold.children.length > 1) return;
      const facts = ["reward " + t.reward, "official verdict: " + (t.official ? "passed" : "failed"), t.calls + " calls, " + t.errors + " answered by an error", t.origin !== "policy" && "origin: " + t.origin, t.failure].filter(Boolean);
      fold.append(block("p", "lead", facts.join(" · ")));
      const sequences = [t.messages || [], ...t.further || []];
      sequences.forEach((messages, i) => {
        if (sequences.length > 1) fold.append(block("div", "sequence", "Sequence " + (i + 1) + " of " + sequences.length + (i ? ": its first request continues no earlier reply" : "")));
        let turn = 0;
        for (const m of messages) {
          if (m.turn !== turn) fold.append(block("div", "turn", "Turn " + (turn = m.turn)));
          fold.append(utterance(m));
        }
      });
    });
    return fold;
  };
  for (const fold of document.querySelectorAll("details.talks")) {
    fold.addEventListener("toggle", async () => {
      if (fold.children.length > 1 || fold.dataset.read) return;
      fold.dataset.read = "yes";
      fold.append(...(await partOf(p => p.talks && p.talks.label === fold.dataset.of))?.talks.episodes.map(episode) || []);
    });
  }
  // The source of a cell is shown on click, by the fragment of the address, or on Enter.
  const isCell = e => e && e.id && /\.r\d+c\d+$/.test(e.id);
  const sourceOf = async id => {
    const dot = id.lastIndexOf("."), stem = id.slice(0, dot), [, row, column] = id.slice(dot).match(/r(\d+)c(\d+)/);
    const part = await partOf(p => (p.table || p.figure || {}).id === stem), of = part?.figure?.sources || {};
    const n = part?.table ? part.table.rows[row - 1]?.cells[column - 1]?.source : of[".c" + column] || of[".r" + row] || of[""];
    return n && evidence.document.sources[n - 1];
  };
  const shown = block("aside", "source");
  shown.hidden = true;
  shown.tabIndex = -1;
  shown.setAttribute("aria-label", "Source of a value");
  document.body.append(shown);
  let cell = null;
  const hideSource = () => { shown.hidden = true; if (cell) cell.classList.remove("asked"); };
  const showSource = async asked => {
    hideSource();
    if (!isCell(asked)) return;
    const source = await sourceOf(asked.id);
    if (!source) return;
    cell = asked;
    cell.classList.add("asked");
    const digests = Object.fromEntries((evidence.inputs || []).map(i => [i.address + "." + i.ref.Port, i.digest])), keys = Object.fromEntries((evidence.records || []).map(r => [r.address + ".manifest", r.key]));
    const list = block("ul", "", ...(source.from || []).map(from => block("li", "", block("code", "", from), " ", digests[from] ? "digest " + digests[from].slice(0, 16) : keys[from] ? "key " + keys[from].slice(0, 16) : "")));
    const close = Object.assign(block("button", "", "Close"), { type: "button" });
    close.addEventListener("click", hideSource);
    const name = decodeURIComponent(location.pathname.split("/").pop());
    shown.replaceChildren(block("strong", "", source.by), source.rows ? block("div", "", "Rows: " + source.rows) : "", list,
      block("div", "", "To recompute it: ", block("code", "", "rcgrpo reproduce '" + (name + "#" + asked.id).replaceAll("'", "'\\''") + "' --run")), close);
    shown.hidden = false;
  };
  document.addEventListener("click", e => {
    const asked = e.target.closest("td, tbody th");
    if (isCell(asked) && !String(getSelection())) showSource(asked);
  });
  const showNamed = () => {
    const e = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let fold = e?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    e?.querySelector(":scope > details.fold")?.setAttribute("open", "");
    if (!isCell(e)) return;
    e.scrollIntoView({ block: "center" });
    showSource(e);
  };
  addEventListener("hashchange", showNamed);
  showNamed();
  document.addEventListener("keydown", e => {
    if (e.key === "Escape") return hideSource();
    const at = e.target, region = at.matches?.(".scroll") ? at : null;
    let next = region && e.key === "Enter" ? region.querySelector("tbody [id]") : null;
    if (isCell(at)) {
      if (e.key === "Enter") { e.preventDefault(); return void showSource(at); }
      const column = [...at.parentElement.children].indexOf(at), rows = [...at.closest("tbody").querySelectorAll("tr:not(.group)")], row = rows.indexOf(at.parentElement);
      next = { ArrowLeft: at.previousElementSibling, ArrowRight: at.nextElementSibling, ArrowUp: rows[row - 1]?.children[column], ArrowDown: rows[row + 1]?.children[column] }[e.key];
    }
    if (!isCell(next)) return;
    e.preventDefault();
    next.tabIndex = -1;
    next.focus();
  });
  for (const button of document.querySelectorAll("button[data-png]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      // Drawn again at a fixed size with its legend inside.
      const { options, chart } = drawn[button.dataset.png], place = element("div", { position: "absolute", left: "-9999px", width: "1000px", height: "600px" });
      const height = 24 * Math.ceil(options.series.length / 5);
      document.body.append(place);
      const copy = echarts.init(place, null, { renderer: "canvas" });
      copy.setOption(options);
      copy.setOption({ legend: { show: true, type: "plain", top: 4, left: 8, right: 8, selected: chart.getOption().legend[0].selected }, grid: { top: 30 + height } });
      save(button.dataset.png + ".png", copy.getDataURL({ pixelRatio: 3, backgroundColor: getComputedStyle(document.body).backgroundColor }));
      copy.dispose();
      place.remove();
    });
  }
})();
