"use strict";
(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";

  // Elements are made and filled by text, never by markup: a name of a data set may hold anything.
  function html(tag, attributes = {}, ...children) {
    return filled(document.createElement(tag), attributes, children);
  }
  function svg(tag, attributes = {}, ...children) {
    return filled(document.createElementNS(SVG, tag), attributes, children);
  }
  function filled(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(name, value);
    for (const child of children) if (child !== null) element.append(child);
    return element;
  }

  const seriesOf = new Map(data.series.map((series) => [series.key, series]));
  const colour = (series) => `var(--c${series.colour})`;
  const number = (value, digits = 1) =>
    value === null || value === undefined ? "not measured" : value.toFixed(digits).replace("-", "−");
  const percent = (value) => (value === null ? "not measured" : `${number(100 * value, 1)} %`);
  const short = (value) =>
    value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(1) : String(+value.toPrecision(3)).replace("-", "−");
  const FORMATS = { score: (v) => number(v, 1), percent, plain: (v) => (v === null ? "not measured" : short(v)), share: (v) => number(v, 2) };
  const updates = (step) => (step >= 1e6 ? `${+(step / 1e6).toFixed(2)}M` : step >= 1000 ? `${+(step / 1000).toFixed(1)}k` : String(step));

  // Theme

  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  function remembered() {
    try { return localStorage.getItem("uniq-rl-theme"); } catch { return null; }
  }
  function showTheme(theme) {
    root.dataset.theme = theme;
    $("#theme").textContent = theme === "dark" ? "Light" : "Dark";
    $("#theme").setAttribute("aria-label", `Switch to the ${theme === "dark" ? "light" : "dark"} theme`);
  }
  showTheme(remembered() || (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (!remembered()) showTheme(system.matches ? "dark" : "light"); });
  $("#theme").addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("uniq-rl-theme", theme); } catch { /* a page that may not remember still switches */ }
    showTheme(theme);
  });

  // Tables

  function sortBy(table, column) {
    const heads = $$("thead th", table);
    const descending = heads[column].getAttribute("aria-sort") === "ascending";
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : descending ? "descending" : "ascending"));
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.number === undefined ? cell.textContent.trim() : Number(cell.dataset.number);
    };
    const rank = (value) => (typeof value === "number" ? 0 : ["", "-", "not measured"].includes(value) ? 2 : 1);
    const compare = (a, b) => {
      if (rank(a) !== rank(b)) return rank(a) - rank(b); // what was not measured comes last, whichever way
      const order = typeof a === "number" ? a - b : a.localeCompare(b);
      return descending ? -order : order;
    };
    const free = rows.filter((row) => !row.classList.contains("pinned"));
    const pinned = rows.filter((row) => row.classList.contains("pinned"));
    body.append(...free.sort((a, b) => compare(key(a), key(b))), ...pinned);
  }
  for (const table of $$("table")) {
    $$("thead button", table).forEach((button, column) => button.addEventListener("click", () => sortBy(table, column)));
  }
  // A table that is wider than its place says so, and has a shade on the side where it goes on.
  function showEdges(place) {
    const beyond = place.scrollWidth - place.clientWidth;
    const right = place.scrollLeft < beyond - 2;
    place.classList.toggle("more-right", right);
    place.classList.toggle("more-left", place.scrollLeft > 2);
    const hint = place.previousElementSibling;
    hint.hidden = beyond <= 2;
    if (hint.hidden) return;
    const edge = place.getBoundingClientRect().right;
    const behind = $$("thead th", place).filter((head) => head.getBoundingClientRect().right > edge + 2).length;
    $("span", hint).textContent = behind ? `${behind} more column${behind === 1 ? "" : "s"} on the right` : "the first columns are on the left";
    hint.lastChild.textContent = behind ? " →" : " ←";
  }
  const edges = new ResizeObserver((entries) => entries.forEach(({ target }) => showEdges(target.closest(".scroll"))));
  for (const place of $$(".scroll")) {
    place.addEventListener("scroll", () => showEdges(place), { passive: true });
    edges.observe(place);
    edges.observe($("table", place));
  }
  for (const button of $$("button[data-published]")) {
    button.addEventListener("click", () => {
      const hidden = document.getElementById(button.dataset.published).classList.toggle("measured-only");
      button.textContent = `${hidden ? "Show" : "Hide"} the published columns`;
    });
  }
  for (const input of $$("input[type=search]")) {
    const table = document.getElementById(input.getAttribute("aria-controls"));
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      $("output", input.parentElement).textContent = `${shown} of ${table.tBodies[0].rows.length}`;
    });
  }

  // The command behind a cell

  const detail = $("#detail");
  let opened = null;
  function openDetail(button) {
    if (opened === button) return;
    opened?.classList.remove("open");
    opened = button;
    button.classList.add("open");
    const cell = button.closest("td");
    const table = button.closest("table");
    const column = $$("thead th", table)[cell.cellIndex].textContent.trim();
    $("h3", detail).textContent = cell.cellIndex ? `${cell.parentElement.cells[0].textContent.trim()}, ${column}: ${button.textContent}` : button.textContent;
    $(".source", detail).textContent = [cell.dataset.source === "measured" ? "Measured here." : `Source: ${cell.dataset.source}.`, cell.dataset.note].filter(Boolean).join(" ");
    const command = cell.dataset.command || "";
    $(".command", detail).hidden = !command;
    $(".command pre", detail).textContent = command;
    $(".command .copy", detail).textContent = "Copy";
    detail.hidden = false;
  }
  function closeDetail(back = true) {
    if (!opened) return;
    const button = opened;
    opened.classList.remove("open");
    opened = null;
    detail.hidden = true;
    if (back) button.focus({ preventScroll: true });
    opened = null;
    detail.hidden = true;
    button.classList.remove("open");
  }
  document.addEventListener("focusin", (event) => { if (event.target.matches("button.cell")) openDetail(event.target); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.cell");
    if (!button) return;
    openDetail(button);
    if (event.detail === 0 && $(".command pre", detail).textContent) $(".copy", detail).focus(); // by keyboard
  });
  $(".close", detail).addEventListener("click", () => closeDetail());
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("dialog[open]")) closeDetail(); });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    const text = $("pre", button.parentElement);
    let copied = false;
    try {
      await navigator.clipboard.writeText(text.textContent);
      copied = true;
    } catch {
      getSelection().selectAllChildren(text);
      copied = document.execCommand("copy");
    }
    button.textContent = copied ? "Copied" : "Press Ctrl-C";
  });

  // Charts

  const drawn = new Map(); // host -> how to draw it again
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const chart = drawn.get(target);
      if (chart && Math.abs(target.clientWidth - chart.width) > 1) redraw(target);
    }
  });
  const wanted = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) { wanted.unobserve(target); redraw(target); }
  }, { rootMargin: "600px" });
  // Drawn once it comes near the window; its height is kept free, so that nothing moves when it is.
  function draw(host, height, paint) {
    host.style.minHeight = `${height + 24}px`;
    drawn.set(host, { paint, width: -1 });
    wanted.observe(host);
    resized.observe(host);
  }
  function redraw(host) {
    const chart = drawn.get(host);
    if (!chart || !host.isConnected || !host.clientWidth) return;
    chart.width = host.clientWidth;
    $$("svg, .readout, .unmeasured", host).forEach((old) => old.remove());
    chart.paint(host, host.clientWidth);
  }
  addEventListener("beforeprint", () => drawn.forEach((_, host) => redraw(host)));

  function figure(title, small = "") {
    return html("figure", { class: "chart" }, html("figcaption", {}, title, small ? html("small", {}, ` ${small}`) : null));
  }
  function unmeasured(host, sentence = "Not measured.") {
    host.append(html("p", { class: "unmeasured" }, sentence));
  }

  function ticks(low, high, count = 5) {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(+(i * step).toPrecision(12));
    return found;
  }
  function extent(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (value !== null && value !== undefined) { low = Math.min(low, value); high = Math.max(high, value); }
    return low > high ? null : [low, high];
  }
  function padded([low, high], share = 0.05) {
    const room = (high - low || Math.abs(high) || 1) * share;
    return [low - room, high + room];
  }
  const linear = ([a, b], [c, d]) => (value) => c + ((value - a) / (b - a || 1)) * (d - c);

  // Labels at the ends of lines, moved apart where they would touch.
  function spread(labels, gap, low, high) {
    labels.sort((a, b) => a.y - b.y);
    for (let i = 0; i < labels.length; i++) labels[i].at = Math.max(labels[i].y, i ? labels[i - 1].at + gap : low);
    for (let i = labels.length - 1, limit = high; i >= 0; i--) { labels[i].at = Math.min(labels[i].at, limit); limit = labels[i].at - gap; }
    return labels;
  }
  function path(xs, ys, x, y) {
    let text = "", pen = false;
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null) { pen = false; continue; }
      text += `${pen ? "L" : "M"}${x(xs[i]).toFixed(1)} ${y(ys[i]).toFixed(1)}`;
      pen = true;
    }
    return text;
  }
  function band(xs, low, high, x, y) {
    const at = xs.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
    if (at.length < 2) return "";
    return "M" + at.map((i) => `${x(xs[i]).toFixed(1)} ${y(high[i]).toFixed(1)}`).join("L") + "L" + at.reverse().map((i) => `${x(xs[i]).toFixed(1)} ${y(low[i]).toFixed(1)}`).join("L") + "Z";
  }

  // Lines with bands; hover, or focus and arrow keys, read the values out.
  // lines: [{series, x, y, low, high}], where series has label, colour, dash
  function lineChart(host, width, { lines, format = "score", formatX = updates, xLabel = "", yLabel = "", references = [], height = 190, labels = true, range = null }) {
    const shown = lines.filter((line) => line.y.some((v) => v !== null));
    if (!shown.length) return unmeasured(host, lines.length ? "Not measured." : "No method is switched on, or none was measured here.");
    const text = FORMATS[format];
    const named = labels && shown.length <= 4 && width > 250;
    const room = named ? Math.min(120, 14 + 6.2 * Math.max(...shown.map((line) => line.series.short.length))) : 8;
    const box = { left: 42, right: width - room, top: 8, bottom: height - (xLabel ? 34 : 20) };
    const xs = [...new Set(shown.flatMap((line) => line.x))].sort((a, b) => a - b);
    const reach = [formatX === updates ? 0 : xs[0], xs.at(-1)];
    const x = linear(reach, [box.left, box.right]);
    const spanned = range || padded(extent([...shown.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]), ...references.map((r) => r.value)]));
    const y = linear(spanned, [box.bottom, box.top]);
    const summary = shown.map((line) => `${line.series.label} ends at ${text(line.y.findLast((v) => v !== null))}`).join("; ");
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": `${$("figcaption", host).textContent}. ${summary}. Arrow keys read values.` });
    for (const tick of ticks(...spanned, 4)) {
      picture.append(svg("line", { class: "gridline", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }));
      picture.append(svg("text", { x: box.left - 5, y: y(tick) + 4, "text-anchor": "end" }, format === "percent" ? `${+(100 * tick).toPrecision(6)} %` : short(tick)));
    }
    picture.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    for (const tick of ticks(...reach, Math.max(2, Math.min(5, (box.right - box.left) / 50)))) {
      picture.append(svg("line", { class: "tick", x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 3 }));
      picture.append(svg("text", { x: x(tick), y: box.bottom + 14, "text-anchor": "middle" }, formatX(tick)));
    }
    if (xLabel) picture.append(svg("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, xLabel));
    if (yLabel) picture.append(svg("text", { x: 0, y: box.top + 2 }, yLabel));
    for (const reference of references) {
      picture.append(svg("line", { class: "reference", x1: box.left, x2: box.right, y1: y(reference.value), y2: y(reference.value) }));
      picture.append(svg("text", { x: box.right - 2, y: y(reference.value) - 4, "text-anchor": "end" }, reference.label));
    }
    for (const line of shown) if (line.low && line.high) {
      picture.append(svg("path", { d: band(line.x, line.low, line.high, x, y), fill: colour(line.series), opacity: 0.15 }));
    }
    for (const line of shown) {
      picture.append(svg("path", { class: "line", d: path(line.x, line.y, x, y), fill: "none", stroke: colour(line.series), "stroke-width": line.series.bold ? 3 : 1.8, "stroke-dasharray": line.series.dash, "stroke-linejoin": "round" }));
      if (line.x.length <= 12) line.x.forEach((value, i) => { if (line.y[i] !== null) picture.append(svg("circle", { cx: x(value), cy: y(line.y[i]), r: 2.2, fill: colour(line.series) })); });
    }
    if (named) {
      const ends = shown.map((line) => { const i = line.y.findLastIndex((v) => v !== null); return { line, y: y(line.y[i]), x: x(line.x[i]) }; });
      for (const end of spread(ends, 12, box.top + 4, box.bottom)) {
        picture.append(svg("text", { x: box.right + 5, y: end.at + 4, style: `fill: ${colour(end.line.series)}` }, end.line.series.short));
      }
    }
    const hair = svg("line", { class: "hair", y1: box.top, y2: box.bottom, visibility: "hidden" });
    const dots = svg("g");
    const readout = html("div", { class: "readout", role: "status" });
    readout.hidden = true;
    picture.append(hair, dots);
    let at = -1;
    function read(i) {
      at = Math.max(0, Math.min(xs.length - 1, i));
      const here = xs[at];
      const rows = shown.flatMap((line) => { const k = line.x.indexOf(here); return k < 0 || line.y[k] === null ? [] : [{ line, k }]; }).sort((a, b) => b.line.y[b.k] - a.line.y[a.k]);
      hair.setAttribute("x1", x(here)); hair.setAttribute("x2", x(here)); hair.setAttribute("visibility", "visible");
      dots.replaceChildren(...rows.map(({ line, k }) => svg("circle", { cx: x(here), cy: y(line.y[k]), r: 3, fill: colour(line.series) })));
      readout.replaceChildren(html("b", {}, `${formatX(here)}${xLabel ? ` ${xLabel}` : ""}`), ...rows.map(({ line, k }) => html("span", {}, swatch(line.series), line.series.label, html("em", {}, text(line.y[k]) + (line.low && line.low[k] !== null ? ` (${text(line.low[k])} to ${text(line.high[k])})` : "")))));
      readout.hidden = false;
      const room = innerHeight - picture.getBoundingClientRect().top - box.bottom - 20; // below the axis, where there is room
      place(readout, host, picture, x(here), readout.offsetHeight < room ? box.bottom + 18 : box.top);
    }
    function leave() { at = -1; hair.setAttribute("visibility", "hidden"); dots.replaceChildren(); readout.hidden = true; }
    picture.addEventListener("pointermove", (event) => {
      const place = event.clientX - picture.getBoundingClientRect().left;
      let best = 0;
      xs.forEach((value, i) => { if (Math.abs(x(value) - place) < Math.abs(x(xs[best]) - place)) best = i; });
      read(best);
    });
    picture.addEventListener("pointerleave", leave);
    picture.addEventListener("blur", leave);
    picture.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1 };
      if (event.key in moves) { event.preventDefault(); read(at < 0 ? (moves[event.key] > 0 ? 0 : xs.length - 1) : at + moves[event.key]); }
      if (event.key === "Home") { event.preventDefault(); read(0); }
      if (event.key === "End") { event.preventDefault(); read(xs.length - 1); }
      if (event.key === "Escape") leave();
    });
    host.append(picture, readout);
  }
  function swatch(series) {
    return svg("svg", { class: "swatch", viewBox: "0 0 20 10", "aria-hidden": "true" }, svg("line", { x1: 0, x2: 20, y1: 5, y2: 5, stroke: colour(series), "stroke-width": 3.5, "stroke-dasharray": series.dash }));
  }
  function place(readout, host, picture, left, top) {
    const width = readout.offsetWidth;
    const beside = left + 12 + width > host.clientWidth ? left - width - 12 : left + 12;
    readout.style.left = `${Math.max(0, Math.min(beside, host.clientWidth - width))}px`;
    readout.style.top = `${picture.getBoundingClientRect().top - host.getBoundingClientRect().top + top}px`;
  }
  // A read-out for marks that are hovered or focused one by one.
  function pointed(host, picture, marks) {
    const readout = html("div", { class: "readout", role: "status" });
    readout.hidden = true;
    for (const { element, x, y, title, rows } of marks) {
      const show = () => {
        readout.replaceChildren(html("b", {}, title), ...rows.map(([name, value]) => html("span", {}, name, html("em", {}, value))));
        readout.hidden = false;
        place(readout, host, picture, x, y + 8);
      };
      const hide = () => { readout.hidden = true; };
      element.setAttribute("tabindex", 0);
      element.setAttribute("role", "img");
      element.setAttribute("aria-label", `${title}: ${rows.map((row) => row.join(" ")).join(", ")}`);
      element.addEventListener("pointerenter", show);
      element.addEventListener("focus", show);
      element.addEventListener("pointerleave", hide);
      element.addEventListener("blur", hide);
    }
    host.append(picture, readout);
  }

  // Horizontal bars from zero with a dot per seed.
  function barChart(host, width, { bars, unit }) {
    const longest = Math.max(...bars.map((bar) => bar.label.length));
    const left = Math.min(8 + 6.2 * longest, width * 0.53), right = width - 44, line = 30, top = 8;
    const height = top + line * bars.length + 24;
    const [low, high] = padded(extent([0, ...bars.flatMap((bar) => [bar.value, ...bar.dots])]), 0.06);
    const x = linear([low, high], [left + 8, right]);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": $("figcaption", host).textContent });
    for (const tick of ticks(low, high, Math.max(3, Math.min(8, width / 100)))) {
      picture.append(svg("line", { class: tick === 0 ? "axis" : "gridline", x1: x(tick), x2: x(tick), y1: top, y2: height - 20 }));
      picture.append(svg("text", { x: x(tick), y: height - 6, "text-anchor": "middle" }, short(tick)));
    }
    const marks = bars.map((bar, i) => {
      const y = top + line * i + line / 2;
      const tone = bar.value >= 0 ? "var(--c0)" : "var(--c1)";
      const group = svg("g", {}, svg("rect", { x: left, y: y - line / 2, width: right - left + 44, height: line, fill: "transparent" }),
        svg("rect", { x: Math.min(x(0), x(bar.value)), y: y - 8, width: Math.abs(x(bar.value) - x(0)), height: 16, fill: tone, opacity: 0.75 }),
        ...bar.dots.map((dot) => svg("circle", { cx: x(dot), cy: y, r: 3, fill: "var(--ink)", stroke: "var(--paper)" })),
        svg("text", { class: "strong", x: 0, y: y + 4 }, clipped(bar.label, left / 6.1)),
        svg("text", { class: "strong", x: width, y: y + 4, "text-anchor": "end" }, (bar.value > 0 ? "+" : "") + number(bar.value)));
      picture.append(group);
      return { element: group, x: x(bar.value), y, title: bar.label, rows: [[unit, (bar.value > 0 ? "+" : "") + number(bar.value)], ...bar.rows] };
    });
    pointed(host, picture, marks);
  }
  const clipped = (text, most) => (text.length > most ? `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…` : text);

  // A dot and its interval for each row.
  function intervalChart(host, width, { rows, format, reference = null, range = null }) {
    const known = rows.filter((row) => row.point !== null);
    if (!known.length) return unmeasured(host);
    const text = FORMATS[format];
    const left = Math.min(180, width * 0.42), right = width - 46, line = 26, top = 6;
    const height = top + line * known.length + 24;
    const spanned = range || padded(extent(known.flatMap((row) => [row.low, row.point, row.high, reference])));
    const x = linear(spanned, [left + 8, right]);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": $("figcaption", host).textContent });
    for (const tick of ticks(...spanned, Math.max(3, Math.min(6, width / 100)))) {
      picture.append(svg("line", { class: "gridline", x1: x(tick), x2: x(tick), y1: top, y2: height - 20 }));
      picture.append(svg("text", { x: x(tick), y: height - 6, "text-anchor": "middle" }, short(tick)));
    }
    if (reference !== null) picture.append(svg("line", { class: "reference", x1: x(reference), x2: x(reference), y1: top, y2: height - 20 }));
    const marks = known.map((row, i) => {
      const y = top + line * i + line / 2, tone = colour(row.series);
      const whole = row.low === null ? [] : [svg("line", { x1: x(row.low), x2: x(row.high), y1: y, y2: y, stroke: tone, "stroke-width": 5, opacity: 0.4, "stroke-linecap": "round" })];
      const group = svg("g", {}, svg("rect", { x: 0, y: y - line / 2, width, height: line, fill: "transparent" }), ...whole,
        svg("circle", { cx: x(row.point), cy: y, r: 4.5, fill: tone }),
        svg("text", { class: "strong", x: 0, y: y + 4 }, clipped(row.series.label, left / 6.1)),
        svg("text", { class: "strong", x: width, y: y + 4, "text-anchor": "end" }, text(row.point)));
      picture.append(group);
      return { element: group, x: x(row.point), y, title: row.series.label, rows: [["value", text(row.point)], ["95 % interval", row.low === null ? "not measured (one seed)" : `${text(row.low)} to ${text(row.high)}`]] };
    });
    pointed(host, picture, marks);
  }

  // Points over two quantities, coloured by method or by a third quantity.
  const STOPS = ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  function ramp(share) {
    const at = Math.max(0, Math.min(1, share)) * (STOPS.length - 1), i = Math.min(STOPS.length - 2, Math.floor(at));
    return `rgb(${STOPS[i].map((c, k) => Math.round(c + (STOPS[i + 1][k] - c) * (at - i))).join(" ")})`;
  }
  function mapChart(host, width, { x: xs, y: ys, values, range, axes, height = 210 }) {
    const named = axes.length === 2;
    const box = { left: 34, right: width - 6, top: named ? 18 : 6, bottom: height - (named ? 34 : 20) };
    const spanX = padded(extent(xs), 0.03), spanY = padded(extent(ys), 0.03);
    const x = linear(spanX, [box.left, box.right]), y = linear(spanY, [box.bottom, box.top]);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${$("figcaption", host).textContent}: ${xs.length} states, values from ${short(extent(values)[0])} to ${short(extent(values)[1])}` });
    if (named) picture.append(svg("text", { x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, axes[0]), svg("text", { x: 0, y: 10 }, axes[1]));
    for (const tick of ticks(...spanX, 4)) picture.append(svg("text", { x: x(tick), y: box.bottom + 14, "text-anchor": "middle" }, short(tick)));
    for (const tick of ticks(...spanY, 4)) picture.append(svg("text", { x: box.left - 4, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
    const share = linear(range, [0, 1]);
    const group = svg("g");
    xs.forEach((value, i) => { if (values[i] !== null) group.append(svg("circle", { cx: x(value).toFixed(1), cy: y(ys[i]).toFixed(1), r: 2.1, fill: ramp(share(values[i])) }, svg("title", {}, short(values[i])))); });
    picture.append(group);
    host.append(picture);
  }
  function scatterChart(host, width, { points, xLabel, yLabel }) {
    const height = 320, box = { left: 44, right: width - 16, top: 22, bottom: height - 40 };
    const logs = padded(extent(points.map((p) => Math.log10(p.x))), 0.12), span = padded(extent(points.map((p) => p.y)), 0.1);
    const x = linear(logs, [box.left, box.right]), y = linear(span, [box.bottom, box.top]);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": $("figcaption", host).textContent });
    for (const tick of ticks(...span, 5)) {
      picture.append(svg("line", { class: "gridline", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }), svg("text", { x: box.left - 5, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
    }
    const decades = [];
    for (let power = Math.floor(logs[0]); power <= logs[1]; power++) for (const m of [1, 2, 5]) decades.push(m * 10 ** power);
    const inside = decades.filter((value) => Math.log10(value) >= logs[0] && Math.log10(value) <= logs[1]);
    for (const value of inside.length > 2 ? inside : ticks(10 ** logs[0], 10 ** logs[1], 4)) {
      picture.append(svg("text", { x: x(Math.log10(value)), y: box.bottom + 15, "text-anchor": "middle" }, short(value)));
    }
    picture.append(svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel), svg("text", { x: 0, y: 10 }, yLabel));
    // A name goes beside its point, on the first of these places where it covers neither a point nor another name.
    const dots = points.map((point) => ({ from: x(Math.log10(point.x)) - 6, to: x(Math.log10(point.x)) + 6, at: y(point.y) }));
    const taken = [...dots];
    const marks = points.map((point, i) => {
      const cx = x(Math.log10(point.x)), cy = y(point.y), label = point.series.short, wide = 6.2 * label.length;
      const places = [0, -12, 12, -24, 24].flatMap((shift) => [true, false].map((onRight) => ({ onRight, at: cy + shift, from: onRight ? cx + 9 : cx - 9 - wide, to: onRight ? cx + 9 + wide : cx - 9 })));
      const free = (p) => p.from >= box.left && p.to <= width && taken.every((o) => o === dots[i] || Math.abs(o.at - p.at) >= 11 || o.to < p.from || p.to < o.from);
      const chosen = places.find(free) || places[cx + 9 + wide > width ? 1 : 0];
      taken.push(chosen);
      const group = svg("g", {}, svg("circle", { cx, cy, r: 5, fill: colour(point.series) }), svg("text", { x: chosen.onRight ? cx + 9 : cx - 9, y: chosen.at + 4, "text-anchor": chosen.onRight ? "start" : "end", class: "strong" }, label));
      picture.append(group);
      return { element: group, x: cx, y: cy, title: point.series.label, rows: [[xLabel, short(point.x)], [yLabel, number(point.y)]] };
    });
    pointed(host, picture, marks);
  }
  function histogramChart(host, width, { edges, counts, height = 110 }) {
    const total = counts.reduce((a, b) => a + b, 0);
    if (!total) return unmeasured(host, "No finite value.");
    const box = { left: 4, right: width - 10, top: 6, bottom: height - 18 };
    const x = linear([edges[0], edges.at(-1)], [box.left, box.right]), y = linear([0, Math.max(...counts)], [box.bottom, box.top]);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${$("figcaption", host).textContent}: ${counts.length} bins from ${short(edges[0])} to ${short(edges.at(-1))}` });
    counts.forEach((count, i) => { if (count) picture.append(svg("rect", { x: x(edges[i]), y: y(count), width: Math.max(1, x(edges[i + 1]) - x(edges[i]) - 0.5), height: box.bottom - y(count), fill: "var(--c0)", opacity: 0.8 }, svg("title", {}, `${short(edges[i])} to ${short(edges[i + 1])}: ${percent(count / total)}`))); });
    picture.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    const span = [edges[0], edges.at(-1)];
    for (const tick of span[0] === span[1] ? [span[0]] : ticks(...span, 3)) picture.append(svg("text", { x: x(tick), y: height - 4, "text-anchor": "middle" }, short(tick)));
    host.append(picture);
  }

  // Controls

  function toggles(host, keys, changed) {
    const on = new Set(keys.filter((key) => seriesOf.get(key).on));
    if (!on.size) keys.slice(0, 3).forEach((key) => on.add(key));
    host.append(html("span", {}, "Show"));
    const others = html("div");
    for (const key of keys) {
      const button = html("button", { type: "button", class: "toggle", "aria-pressed": on.has(key), "data-series": key }, swatch(seriesOf.get(key)), seriesOf.get(key).label);
      button.addEventListener("click", () => {
        if (!on.delete(key)) on.add(key);
        button.setAttribute("aria-pressed", on.has(key));
        changed(on);
      });
      (seriesOf.get(key).minor ? others : host).append(button);
    }
    if (others.childElementCount) host.append(html("details", {}, html("summary", {}, `Controls, ablations and smaller budgets (${others.childElementCount})`), others));
    return on;
  }
  function choices(host, label, options, changed) {
    host.append(html("span", {}, label));
    const buttons = options.map(({ value, name }, i) => {
      const button = html("button", { type: "button", class: "choice", "aria-pressed": i === 0, "data-value": value }, name);
      button.addEventListener("click", () => {
        buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
        changed(value);
      });
      return button;
    });
    host.append(...buttons);
  }
  const ordered = (keys) => data.series.map((series) => series.key).filter((key) => keys.has(key));
  const asLines = (lines, on) => lines.filter((line) => on.has(line.series)).map((line) => ({ ...line, series: seriesOf.get(line.series) }));

  // A grid of panels under toggles: learning curves, calibration, sigma against error.
  function panelGrid(section, views) {
    const host = document.getElementById(section);
    if (!host || !views.length) return;
    const bar = html("div", { class: "controls" }), second = html("div", { class: "controls" });
    let view = views[0];
    const keys = ordered(new Set(views.flatMap((v) => v.panels.flatMap((panel) => panel.lines.map((line) => line.series)))));
    const count = Math.max(...views.map((v) => v.panels.length));
    const tall = count > 1 ? 190 : 300;
    const grid = html("div", { class: count > 1 ? "panels" : "panels single" });
    if (views.length > 1) choices(second, view.choose || "Quantity", views.map((v, i) => ({ value: i, name: v.name })), (i) => { view = views[i]; fill(); });
    const on = toggles(bar, keys, () => {
      hideEmpty();
      drawn.forEach((_, figure) => { if (grid.contains(figure)) redraw(figure); });
    });
    const note = html("p", { class: "caption" }), absent = html("p", { class: "unmeasured" });
    function fill() {
      note.textContent = view.note || "";
      grid.replaceChildren(...view.panels.map((panel) => {
        const figure_ = figure(panel.title, panel.small);
        draw(figure_, tall, (host_, width) => lineChart(host_, width, { ...view.options, height: tall, references: panel.references || view.references || [], lines: asLines(panel.lines, on), formatX: view.options.formatX === "plain" ? short : updates }));
        return figure_;
      }));
      hideEmpty();
    }
    // A panel without a line takes no place; a sentence names it.
    function hideEmpty() {
      const empty = view.panels.filter((panel, i) => (grid.children[i].hidden = !panel.lines.some((line) => on.has(line.series))));
      absent.hidden = !empty.length;
      absent.textContent = empty.length < view.panels.length ? `Nothing of what is switched on was measured on ${empty.map((panel) => panel.title).join(", ")}.` : "No method is switched on.";
    }
    const chosen = views.length > 1 && view.choose !== ""; // else another part of the page chooses
    host.append(...(chosen ? [second] : []), ...(keys.length > 1 ? [bar] : []), note, grid, absent);
    fill();
    return (i) => { view = views[i]; fill(); };
  }

  // Sections

  const grids = Object.fromEntries(Object.entries(data.grids).map(([section, views]) => [section, panelGrid(section, views)]));

  if (data.gap?.length) {
    const host = figure("UNIQ minus IQL", "points of D4RL score");
    draw(host, 32 + 30 * data.gap.length, (target, width) => barChart(target, width, { unit: "difference", bars: data.gap }));
    $("#gap-chart").append(host);
  }

  if (data.statistics?.length) {
    const bar = html("div", { class: "controls" }), pair = html("div", { class: "pair" });
    const rows = (found) => found.map((row) => ({ ...row, series: seriesOf.get(row.series) }));
    function fill(index) {
      const reading = data.statistics[index];
      const middle = figure("Interquartile mean", `with 95 % intervals, ${reading.name}`);
      const better = figure("Probability of improvement over IQL", `${reading.name}; 0.5: a coin's`);
      draw(middle, 30 + 26 * reading.iqm.length, (host, width) => intervalChart(host, width, { rows: rows(reading.iqm), format: "score" }));
      draw(better, 30 + 26 * reading.better.length, (host, width) => intervalChart(host, width, { rows: rows(reading.better), format: "share", reference: 0.5, range: [0, 1] }));
      pair.replaceChildren(middle, better);
    }
    choices(bar, "Reading", data.statistics.map((reading, i) => ({ value: i, name: reading.name })), (i) => { fill(i); grids["profile-charts"]?.(i); });
    $("#statistics-charts").append(bar, pair);
    fill(0);
  }

  if (data.maps?.length) {
    const bar = html("div", { class: "controls" }), second = html("div", { class: "controls" }), grid = html("div", { class: "panels" });
    const keys = ordered(new Set(data.maps.map((map) => map.series)));
    let key = keys[0], quantity = "tau";
    const scale = html("span", { class: "scale" });
    function fill() {
      const maps = data.maps.filter((map) => map.series === key);
      const range = extent(maps.flatMap((map) => map[quantity])) || [0, 1];
      const shared = quantity === "tau";
      const strip = html("i");
      strip.style.background = `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map(ramp).join(", ")})`;
      scale.replaceChildren(shared ? short(range[0]) : "lowest of each set", strip, shared ? short(range[1]) : "highest of each set");
      grid.replaceChildren(...maps.map((map) => {
        const host = figure(map.set, `${short(extent(map[quantity])[0])} to ${short(extent(map[quantity])[1])}, seed ${map.seed}`);
        draw(host, 210, (target, width) => mapChart(target, width, { x: map.x, y: map.y, values: map[quantity], axes: map.axes, range: shared ? range : extent(map[quantity]) || [0, 1] }));
        return host;
      }));
    }
    choices(bar, "Method", keys.map((k) => ({ value: k, name: seriesOf.get(k).label })), (k) => { key = k; fill(); });
    choices(second, "Colour", [{ value: "tau", name: "τ(s)" }, { value: "sigma", name: "σ(s)" }], (q) => { quantity = q; fill(); });
    $("#maps-charts").append(bar, second, scale, grid);
    fill();
  }

  if (data.cost?.length) {
    const host = figure("Score against cost");
    draw(host, 320, (target, width) => scatterChart(target, width, { points: data.cost.map((point) => ({ ...point, series: seriesOf.get(point.series) })), xLabel: data.cost_label, yLabel: "average score, last" }));
    $("#cost-charts").append(host);
  }

  if (data.histograms?.length) {
    const bar = html("div", { class: "controls" }), grid = html("div", { class: "panels" });
    function fill(index) {
      const chosen = data.histograms[index];
      grid.replaceChildren(...chosen.shapes.map((shape) => {
        const host = figure(shape.name, `step ${chosen.step.toLocaleString("en")}`);
        draw(host, 110, (target, width) => histogramChart(target, width, shape));
        return host;
      }));
    }
    choices(bar, "Run", data.histograms.map((chosen, i) => ({ value: i, name: chosen.label })), fill);
    $("#histograms").append(...(data.histograms.length > 1 ? [bar] : []), grid);
    fill(0);
  }

  // One run

  const dialog = $("#one-run");
  function openRun(run) {
    const body = $(".body", dialog);
    $("h2", dialog).textContent = run.title;
    body.replaceChildren();
    if (run.command) body.append(html("h3", {}, "Make it again"), html("div", { class: "command" }, html("pre", {}, run.command), html("button", { type: "button", class: "copy" }, "Copy")));
    const pair = html("div", { class: "pair" });
    const one = { label: "this run", short: "", colour: 0, dash: undefined };
    for (const curve of run.curves) {
      const host = figure(curve.name);
      draw(host, 190, (target, width) => lineChart(target, width, { lines: [{ series: one, x: curve.x, y: curve.y }], format: curve.format, references: curve.references || [], labels: false }));
      pair.append(host);
    }
    for (const shape of run.shapes || []) {
      const host = figure(shape.name, "last policy, share of states");
      draw(host, 110, (target, width) => histogramChart(target, width, shape));
      pair.append(host);
    }
    body.append(html("h3", {}, "Diagnostics"), pair);
    if (!run.diagnosed) body.append(html("p", { class: "unmeasured" }, "This method has no calibrated uncertainty, or none was recorded: nothing to show beside the score."));
    const list = (title, pairs) => body.append(html("h3", {}, title), html("dl", {}, ...pairs.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])));
    list("Facts", run.facts);
    list("Configuration", run.config);
    dialog.showModal();
    $(".close", dialog).focus();
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.run");
    if (button) openRun(data.runs[Number(button.dataset.run)]);
  });
  $(".close", dialog).addEventListener("click", () => dialog.close());
  document.documentElement.dataset.ready = "yes";
})();
