// Line charts: hypervolume over trials, and learning curves. One line per method, which ends in its marker.

const CHART = { width: 320, height: 214, left: 50, right: 308, top: 34, bottom: 172 };
let charts = 0; // names their clip paths

// chart: title, xLabel, xText, yText, limits, log, step; lines: [{ method (null: the whole study), points: [[x, y], ...] }]
function lineChart(page, study, chart, lines) {
  const { width, height, left, right, top, bottom } = CHART;
  const [low, high] = chart.limits;
  const xs = lines.flatMap(({ points }) => points.map(([x]) => x));
  const [first, last] = [chart.step ? 0 : Math.min(...xs), Math.max(...xs)];
  const toX = scale(first, Math.max(last, first + 1), left, right);
  const toY = chart.log ? (value) => scale(Math.log(low), Math.log(high), bottom, top)(Math.log(value)) : scale(low, high, bottom, top);
  const clip = `chart-${(charts += 1)}`;
  const xTicks = ticks(first, Math.max(last, first + 1), 4).filter(Number.isInteger);
  const yTicks = chart.log ? logTicks(low, high) : ticks(low, high, 4);
  const [xText, yText] = [chart.xText ?? tickText(xTicks), chart.log ? (value) => String(Number(value.toPrecision(3))) : tickText(yTicks)];
  const nameOf = (line) => (line.method === null ? "all methods" : study.methods[line.method].label);
  const colour = (line) => (line.method === null ? "currentColor" : colourOf(page, line.method));
  const readout = s("text", { class: "readout", x: right, y: 14, "text-anchor": "end" });
  const cursor = s("g");
  const placed = lines.map((line) => ({ line, points: line.points
    .filter(([, y]) => Number.isFinite(y) && (!chart.log || y > 0)).map(([x, y]) => ({ x, y, px: toX(x), py: toY(y) })) }));
  const path = (points) => points.map(({ px, py }, k) =>
    k && chart.step ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `${k ? "L" : "M"}${px.toFixed(1)},${py.toFixed(1)}`).join("");
  const within = ({ py }) => py >= top - 3 && py <= bottom + 3;

  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "chart", "aria-label": `${chart.title} by ${chart.xLabel}: ` +
    placed.map(({ line, points }) => `${nameOf(line)} ends at ${points.length ? metricText(points.at(-1).y) : NONE}`).join(", ") },
  s("text", { class: "title", x: 0, y: 14 }, chart.title), readout,
  s("clipPath", { id: clip }, s("rect", { x: left, y: top - 4, width: right - left + 8, height: bottom - top + 8 })),
  s("g", { class: "grid" },
    xTicks.map((tick) => s("line", { x1: toX(tick), x2: toX(tick), y1: top, y2: bottom })),
    yTicks.map((tick) => s("line", { x1: left, x2: right, y1: toY(tick), y2: toY(tick) }))),
  s("g", { class: "ticks" },
    xTicks.map((tick) => s("text", { x: toX(tick), y: bottom + 16, "text-anchor": "middle" }, xText(tick))),
    yTicks.map((tick) => s("text", { x: left - 7, y: toY(tick) + 4, "text-anchor": "end" }, yText(tick)))),
  s("text", { class: "axis", x: right, y: bottom + 34, "text-anchor": "end" }, chart.xLabel),
  s("g", { "clip-path": `url(#${clip})` }, placed.map(({ line, points }) =>
    s("path", { class: "curve", d: path(points), stroke: colour(line) }))),
  placed.filter(({ line, points }) => line.method !== null && points.length && within(points.at(-1))).map(({ line, points }) =>
    s("path", { d: markOf(page, line.method, 3.2), fill: colour(line), transform: `translate(${points.at(-1).px},${points.at(-1).py})` })),
  cursor);

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left) * (width / box.width), (event.clientY - box.top) * (width / box.width)];
    const all = placed.flatMap(({ line, points }) => points.filter(within).map((point) => ({ line, ...point })));
    const near = all.reduce((best, point) => {
      const distance = Math.hypot(point.px - x, point.py - y);
      return distance < best.distance ? { distance, point } : best;
    }, { distance: 28, point: null }).point;
    readout.textContent = near ? `${nameOf(near.line)}, ${xText(near.x)}: ${metricText(near.y)}` : "";
    cursor.replaceChildren(...(near ? [s("circle", { class: "cursor", cx: near.px, cy: near.py, r: 5 })] : []));
  });
  svg.addEventListener("pointerleave", () => {
    readout.textContent = "";
    cursor.replaceChildren();
  });
  return svg;
}

// Powers of ten, and between them as many as the range needs.
function logTicks(low, high) {
  const between = high < 30 * low ? [1, 2, 5] : high < 300 * low ? [1, 3] : [1];
  const from = Math.floor(Math.log10(low));
  const powers = Array.from({ length: Math.ceil(Math.log10(high)) - from + 1 }, (_, k) => 10 ** (from + k));
  const found = powers.flatMap((power) => between.map((each) => each * power)).filter((tick) => tick >= low && tick <= high);
  return found.length > 1 ? found : ticks(low, high, 3);
}

const legend = (page, study, places) => h("p", { class: "legend small" },
  places.map((place) => h("span", {}, glyph(page, place), study.methods[place].label)));

// Charts that leave out the methods a reader has hidden.
function chartRow(page, study, view, charts, places, note) {
  const row = h("div", { class: "charts" });
  const key = h("div");
  view.on("drawn", () => {
    const shown = places.filter((place) => !view.hidden.has(place));
    row.replaceChildren(...charts.map(({ lines, ...chart }) =>
      [chart, lines.filter(({ method }) => method === null || shown.includes(method))])
      .filter(([, lines]) => lines.length).map(([chart, lines]) => lineChart(page, study, chart, lines)));
    key.replaceChildren(legend(page, study, shown));
  });
  return h("figure", {}, row, key, h("figcaption", {}, note));
}

const compactText = (value) => value.toLocaleString("en-US", { notation: "compact" });

function growthSection(page, study, view) {
  const { whole, methods, limits, note } = study.growth;
  const places = Object.keys(methods).map(Number);
  const [trials, samples] = [
    { column: 0, xLabel: "finished trials", xText: (value) => countText(value) },
    { column: 1, xLabel: "training samples seen", xText: compactText },
  ];
  const chart = (title, wanted, { column, ...axis }, found) => ({ title, ...axis, limits: found, step: true,
    lines: wanted.map(([method, steps]) => ({ method, points: steps.map((step) => [step[column], step[2]]) })) });
  const each = places.map((place) => [place, methods[place]]);
  const charts = places.length > 1
    ? [chart("hypervolume, all methods", [[null, whole]], trials, limits[0]), chart("hypervolume, each method", each, trials, limits[1]),
      chart("hypervolume, each method", each, samples, limits[1])]
    : [chart("hypervolume", each, trials, limits[1]), chart("hypervolume", each, samples, limits[1])];
  return chartRow(page, study, view, charts, places, note);
}

function learningSection(page, study, view) {
  const { epochs, panels, note } = study.learning;
  const places = Object.keys(epochs).map(Number);
  const thinned = places.some((place) => epochs[place].length < epochs[place].at(-1));
  const charts = panels.map(({ label, lines, ...panel }) => ({ title: label, ...panel, xLabel: "epoch",
    lines: places.map((place) => ({ method: place, points: epochs[place].map((epoch, k) => [epoch, lines[place][k]]) })) }));
  return chartRow(page, study, view, charts, places,
    `${note} The steep start may leave the axes.${thinned ? " Not every epoch is drawn." : ""}`);
}
