"use strict";
// Draws the figures. Their options stand in the page as JSON; what depends on the reader's ground (light, dark,
// paper) and all functions are added here.
(() => {
  const read = id => JSON.parse(document.getElementById(id).textContent);
  const palettes = read("palettes"); // {light: [...], dark: [...]}
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const charts = [];

  // What the functions below print comes from labels, so it is made of text nodes, never of markup.
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

  // A dot on its interval, beside those of the other series of the same category.
  const interval = (params, api) => {
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
    children.push({ type: "circle", shape: { cx: dot[0], cy: dot[1], r: Math.min(4.5, Math.max(2.5, width / 2)) }, style: { fill: colour } });
    return { type: "group", children };
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
    Object.assign(options.legend, { textStyle: { color: ink }, pageTextStyle: { color: soft }, pageIconColor: ink, itemWidth: 18, itemHeight: 9 });
    for (const axis of [].concat(options.xAxis, options.yAxis)) {
      axis.nameTextStyle = { color: soft, align: axis === options.xAxis[0] ? "center" : "left" };
      axis.axisLabel = { color: soft, hideOverlap: true };
      axis.axisLine = { onZero: false, lineStyle: { color: soft } };
      axis.splitLine = { show: axis.type === "value" && axis !== options.xAxis[0], lineStyle: { color: rule } };
    }
    if (options.xAxis[0].type === "category") Object.assign(options.xAxis[0].axisLabel, { interval: 0, hideOverlap: false, rotate: place.clientWidth < 560 ? 30 : 0 });
    if (share) options.yAxis[0].axisLabel.formatter = v => Number((100 * v).toFixed(1)) + " %";
    Object.assign(options.tooltip, { confine: true, backgroundColor: isDark ? "#1a2029" : "#ffffff", borderColor: rule, textStyle: { color: ink, fontSize: 13 } });
    for (const s of options.series) {
      if (s.renderItem === "band") Object.assign(s, { renderItem: band(s.data), encode: { x: 0, y: [1, 2] }, clip: true, z: 1, tooltip: { show: false } });
    }
    if (options.series.some(s => s.renderItem === "interval")) {
      for (const s of options.series) s.renderItem = interval;
      options.tooltip.formatter = p => element("div", {}, line(p.color, p.seriesName, digits(p.value[1], share)),
        element("div", { color: soft }, p.name + (typeof p.value[2] === "number" ? "   95 %: " + digits(p.value[2], share) + " … " + digits(p.value[3], share) : "")));
    } else {
      options.tooltip.axisPointer = { lineStyle: { color: soft } };
      options.tooltip.formatter = all => {
        // Thick lines are those with an id of ours: "=", a number, and what tells the lines of one arm apart.
        const thick = all.filter(p => p.seriesId.startsWith("="));
        return element("div", {}, element("div", { color: soft }, options.xAxis[0].name + " " + all[0].value[0]),
          ...thick.map(p => line(p.color, [p.seriesName, ...p.seriesId.split(" ").slice(1)].join(" "), digits(p.value[1], share))));
      };
    }
    const old = echarts.getInstanceByDom(place);
    if (old) old.dispose();
    const chart = echarts.init(place, null, { renderer: "canvas", devicePixelRatio: Math.max(2, devicePixelRatio) });
    chart.setOption(options);
    return chart;
  };

  const ids = [...document.querySelectorAll("figure[id]")].map(f => f.id);
  const paintAll = isDark => ids.forEach((id, i) => { charts[i] = paint(id, isDark); });
  // One figure after the other, so that the page answers while they are drawn.
  const paintFrom = i => {
    if (i >= ids.length) return;
    charts[i] ||= paint(ids[i], dark.matches);
    setTimeout(paintFrom, 0, i + 1);
  };
  setTimeout(paintFrom, 0, 0);
  dark.addEventListener("change", () => paintAll(dark.matches));
  addEventListener("beforeprint", () => paintAll(false));
  addEventListener("afterprint", () => paintAll(dark.matches));
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => charts.forEach(c => c && c.resize()));
  });
  // The table behind the fold is made from the CSV file when it is opened first.
  const rows = text => {
    const all = [[""]];
    let quoted = false;
    for (let i = 0; i < text.length; i++) {
      const c = text[i], row = all[all.length - 1];
      if (c === '"' && quoted && text[i + 1] === '"') { row[row.length - 1] += c; i++; }
      else if (c === '"') quoted = !quoted;
      else if (c === "," && !quoted) row.push("");
      else if (c === "\n" && !quoted) all.push([""]);
      else row[row.length - 1] += c;
    }
    return all.slice(0, -1);
  };
  for (const fold of document.querySelectorAll("details[data-csv]")) {
    fold.addEventListener("toggle", () => {
      const table = fold.querySelector("table"), [head, ...body] = rows(decodeURIComponent(document.getElementById(fold.dataset.csv).href.split(",").slice(1).join(",")));
      if (table.rows.length) return;
      const top = table.createTHead().insertRow();
      for (const name of head) top.append(Object.assign(document.createElement("th"), { scope: "col", textContent: name }));
      const main = table.createTBody();
      for (const row of body) {
        const line = main.insertRow();
        for (const cell of row) line.insertCell().textContent = cell;
      }
    });
  }
  for (const button of document.querySelectorAll("button[data-png]")) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.download = button.dataset.png + ".png";
      link.href = charts[ids.indexOf(button.dataset.png)].getDataURL({ pixelRatio: 3, backgroundColor: getComputedStyle(document.body).backgroundColor });
      link.click();
    });
  }
})();
