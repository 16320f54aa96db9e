"use strict";
// Shows the latest state of a run. All its texts come from the user's files, so it creates text nodes only.
(() => {
  const place = id => document.getElementById(id);
  const make = (tag, properties, ...children) => { const e = Object.assign(document.createElement(tag), properties); e.append(...children); return e; };
  const order = { started: 0, adopted: 0, failed: 1, note: 2 };
  const chart = (stage, name, points) => {
    const xs = points.filter((_, i) => i % 2 === 0), ys = points.filter((_, i) => i % 2);
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    svg.setAttribute("viewBox", "0 0 100 40");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", name + " of " + stage + ": " + ys[ys.length - 1]);
    line.setAttribute("points", xs.map((x, i) => (x1 > x0 ? 100 * (x - x0) / (x1 - x0) : 50).toFixed(2) + "," + (y1 > y0 ? 38 - 36 * (ys[i] - y0) / (y1 - y0) : 20).toFixed(2)).join(" "));
    svg.append(line);
    return make("figure", {}, make("figcaption", {}, stage + ": " + name + " ", make("b", {}, String(Number(ys[ys.length - 1].toPrecision(4)))), " (" + Number(y0.toPrecision(3)) + " … " + Number(y1.toPrecision(3)) + ")"), svg);
  };
  const show = s => {
    document.title = s.title;
    place("title").textContent = s.title;
    place("question").textContent = s.question || "";
    const settled = s.stages.filter(t => !(t.state in order) || t.state === "failed").length;
    place("now").textContent = settled + " of " + s.planned + " stages";
    place("ended").textContent = s.ended || "";
    const sorted = s.stages.map((t, i) => [t, i]).sort(([a, i], [b, j]) => (order[a.state] ?? 3) - (order[b.state] ?? 3) || j - i).map(([t]) => t);
    place("stages").replaceChildren(...sorted.slice(0, 60).map(t => make("tr", {},
      make("td", {}, t.address.replace(/^stage\./, "")), make("td", { className: t.state }, t.state in { started: 1, adopted: 1 } ? "running" : t.state, t.text ? ": " + t.text : ""),
      make("td", {}, t.total ? make("progress", { value: t.done || 0, max: t.total, ariaLabel: "Progress of " + t.address }) : "", t.unit ? " " + (t.done || 0) + (t.total ? " of " + t.total : "") + " " + t.unit : ""),
      make("td", {}, t.seconds ? t.seconds.toFixed(1) + " s" : t.started && !s.ended ? Math.max(0, (Date.now() - Date.parse(t.started)) / 1000).toFixed(0) + " s" : ""))));
    place("charts").replaceChildren(...sorted.flatMap(t => Object.keys(t.curves || {}).sort().filter(name => t.curves[name].length > 3).map(name => chart(t.address.replace(/^stage\./, ""), name, t.curves[name]))).slice(0, 24));
    place("files").replaceChildren(...(s.files || []).map(f => make("li", {}, f)));
  };
  const stream = new EventSource("events");
  stream.onmessage = e => show(JSON.parse(e.data));
  stream.addEventListener("end", () => stream.close());
})();
