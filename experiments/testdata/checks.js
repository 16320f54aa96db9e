"use strict";
// Checks of a page in a browser. Each returns its findings as sentences.
window.checks = (() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const box = e => e.getBoundingClientRect();
  const visible = e => e.checkVisibility({ visibilityProperty: true }) && box(e).width > 0;
  const folded = e => e.closest("details:not([open])");
  const scrolls = e => /auto|scroll|hidden|clip/.test(getComputedStyle(e).overflowX);
  const name = e => e.id ||
    e.closest("[id]")?.id + " " + e.tagName.toLowerCase() + (e.className ? "." + e.className : "");
  const options = figure => JSON.parse(document.getElementById(figure.id + "-options").textContent);
  const chartOf = figure => document.getElementById(figure.id + "-chart");
  const until = async done => {
    for (let i = 0; i < 1500 && !done(); i++) await new Promise(again => setTimeout(again, 20));
    await new Promise(requestAnimationFrame);
  };

  // Waits until all figures outside folds are drawn.
  const draw = () => until(() => all(".chart").every(c => folded(c) || c.querySelector("canvas, svg")));

  // Opens every fold but the data of figures, and the first transcript.
  const open = async () => {
    for (const e of all("details:not([data-csv])")) e.open = true;
    await until(() => all("details.talks").every(e => e.children.length > 1));
    all("details.talks details")[0]?.setAttribute("open", "");
    await draw();
  };

  // A drawing has at least four colours.
  const blank = () => all(".chart").filter(chart => {
    const canvas = chart.querySelector("canvas");
    const pixels = canvas && canvas.width && canvas.height
      ? canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data : [];
    const colours = new Set();
    for (let i = 0; i < pixels.length && colours.size < 4; i += 4)
      if (pixels[i + 3] > 40) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
    return colours.size < 4;
  }).map(chart => name(chart) + " is blank");

  // The numbers that a series draws: all but the first coordinate.
  const numbers = series => (series.data || []).flatMap(d => [].concat(d.value ?? d).slice(1))
    .filter(v => typeof v === "number");
  const empty = () => all("figure[id]").flatMap(figure => {
    const values = options(figure).series.flatMap(numbers);
    if (values.length === 0) return figure.id + " has no values";
    return values.every(v => v === 0) ? figure.id + " is always zero" : [];
  });

  // Two entries of a legend differ in colour, line or shape.
  const legends = () => all(".legend").flatMap(legend => {
    const seen = new Map(), of = name(legend.closest("figure, section"));
    return all("button", legend).flatMap(button => {
      const style = getComputedStyle(button.firstElementChild), text = button.textContent;
      const look = ["color", "backgroundColor", "borderTopStyle", "borderRadius", "clipPath", "transform"]
        .map(property => style[property]).join(" ");
      const twin = seen.get(look);
      seen.set(look, text);
      return twin ? `${of}: ${twin} and ${text} look the same` : [];
    });
  });

  const wide = () => {
    const beyond = document.documentElement.scrollWidth - innerWidth;
    return beyond > 0 ? [`the page is ${beyond} pixels wider than the window`] : [];
  };
  const long = most => {
    const screens = document.documentElement.scrollHeight / innerHeight;
    return screens > most ? [`the page has ${screens.toFixed(1)} screens, want at most ${most}`] : [];
  };

  // No content of a card is wider than the card, except in a region that scrolls.
  const cards = "figure, .block, .answer, details.talks";
  const outside = (card, e) => {
    for (const child of [...e.children].filter(visible)) {
      const out = Math.round(box(child).right - box(card).right);
      if (out > 1) return `${name(child)} is ${out} pixels wider than ${name(card)}`;
      const deeper = scrolls(child) || child.matches(".chart") ? "" : outside(card, child);
      if (deeper) return deeper;
    }
    return "";
  };
  const burst = (some = all(cards)) =>
    some.filter(visible).map(card => outside(card, card)).filter(Boolean);

  // The data as a table, of the first figure of each sort.
  const data = async () => {
    const found = [], sorts = {};
    for (const figure of all("figure[id]"))
      sorts[figure.className + options(figure).series[0].type] ||= figure;
    for (const figure of Object.values(sorts)) {
      const fold = figure.querySelector("details[data-csv]");
      if (!fold) continue;
      const table = fold.querySelector("table");
      fold.open = true;
      await until(() => table.rows.length);
      if (table.rows.length < 2) found.push(name(figure) + " has no data");
      found.push(...burst([figure]), ...wide());
      fold.open = false;
      table.replaceChildren();
    }
    return found;
  };

  // No region hides a part of its content. Text for screen readers alone has one pixel.
  const cut = () => all("main *, header *")
    .filter(e => visible(e) && scrolls(e) && e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1)
    .map(e => `${name(e.closest("[id]"))}: ${e.scrollWidth - e.clientWidth} of ${e.scrollWidth} ` +
      "pixels are out of sight");

  // The verdict of a comparison is in sight without scrolling sideways.
  const verdicts = () => all("th").filter(e => visible(e) && /^verdict$/i.test(e.textContent.trim()))
    .filter(e => box(e).right > innerWidth).map(e => name(e) + " is out of sight");

  // The library marks its tooltip by this number.
  const tip = place => [...place.children].find(e => e.style.zIndex === "9999999");
  const answers = (chart, place, where) => {
    chart.dispatchAction({ type: "hideTip" });
    tip(place)?.replaceChildren();
    chart.dispatchAction({ type: "showTip", ...where });
    const values = all("b", tip(place) || place).map(e => e.textContent).join();
    return values ? /\d/.test(values) : /\S/.test(tip(place)?.textContent || "");
  };
  // Curves answer at 60 positions from edge to edge (fewer on a page of many figures), other figures at each of their
  // marks.
  const positions = Math.round(Math.min(60, Math.max(12, 2000 / all("figure[id]").length)));
  const tooltips = () => all("figure[id]").flatMap(figure => {
    const place = chartOf(figure), chart = echarts.getInstanceByDom(place), asked = [];
    if (!chart) return figure.id + " is not drawn";
    chart.group = ""; // the figures of a section share a cursor, and all would answer
    const { tooltip, series } = chart.getOption();
    if (tooltip[0].trigger === "axis") {
      const area = chart.getModel().getComponent("grid").coordinateSystem.getRect();
      for (let i = 0; i < positions; i++)
        asked.push({ x: area.x + (area.width - 1) * i / (positions - 1), y: area.y + area.height / 2 });
    } else {
      const marks = series.some(s => s.type === "custom") ? "custom" : "scatter";
      series.forEach((s, seriesIndex) => s.type === marks && s.data.forEach((d, dataIndex) => {
        if (d.value.slice(0, 2).every(v => typeof v === "number")) asked.push({ seriesIndex, dataIndex });
      }));
    }
    const silent = asked.filter(where => !answers(chart, place, where)).length;
    chart.dispatchAction({ type: "hideTip" });
    if (asked.length === 0) return figure.id + " has no tooltip";
    return silent ? `${figure.id}: ${silent} of ${asked.length} tooltips are empty` : [];
  });

  // Records each element that gets the focus, and whether a ring shows it within the window.
  const record = async () => {
    await draw();
    const order = all("a[href], button, summary, input, [tabindex]")
      .filter(e => e.tabIndex >= 0 && !e.disabled && visible(e));
    document.documentElement.style.scrollBehavior = "auto";
    window.trail = [];
    addEventListener("focusin", ({ target }) => {
      const { outlineStyle, outlineWidth } = getComputedStyle(target), { left, right, top, bottom } = box(target);
      trail.push({ at: order.indexOf(target), name: name(target),
        ring: outlineStyle !== "none" && parseFloat(outlineWidth) > 0,
        seen: right > 0 && left < innerWidth && bottom > 0 && top < innerHeight });
    });
    return order.length;
  };
  // The keyboard reaches every element in the order of the document.
  const keyboard = elements => {
    const found = trail.flatMap((step, i) => [
      step.at !== i && `Tab ${i + 1} reaches ${step.name}, element ${step.at + 1} of the page`,
      !step.ring && step.name + " shows no focus", !step.seen && step.name + " has the focus out of sight",
    ].filter(Boolean));
    if (trail.length !== elements) found.push(`Tab reaches ${trail.length} of ${elements} elements`);
    return found.slice(0, 5);
  };

  // Figures and rows fit on a page, and captions and drawings are whole.
  const paper = height => {
    const high = all("figure, .block tr").filter(e => visible(e) && box(e).height > height);
    const short = all("figcaption, figcaption *, .chart").filter(e => visible(e) &&
      getComputedStyle(e).display !== "inline" &&
      (e.scrollHeight > e.clientHeight + 2 || e.scrollWidth > e.clientWidth + 2));
    return [...high.map(e => `${name(e)} is ${Math.round(box(e).height)} pixels high, a page ${height}`),
      ...short.map(e => name(e) + " is cut")];
  };

  return { open, blank, empty, legends, wide, long, burst, data, cut, verdicts, tooltips, record, keyboard, paper };
})();
