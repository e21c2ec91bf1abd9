// Elements, numbers and scales. All text is inserted as text nodes: study content is never parsed as HTML.

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const h = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// ---- numbers

const NONE = "–";
const TAKE = "model to take";
const metricText = (value) => (value === null || value === undefined ? NONE : value.toFixed(4));
const countText = (value) =>
  value === null || value === undefined ? NONE : value.toLocaleString("en-US", { maximumFractionDigits: 0 });
const secondsText = (value) =>
  value === null || value === undefined ? NONE : value < 100 ? value.toFixed(1) : countText(value);
const shareText = (value) => (value === null || value === undefined ? NONE : `${Math.round(100 * value)}%`);
const settingText = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) : String(value));
// Of a mean and its standard deviation: two digits of the deviation, at most four of either.
const spreadWords = ([mean, deviation]) => {
  const digits = deviation > 0 ? Math.min(4, Math.max(2, Math.ceil(-Math.log10(deviation)) + 1)) : 4;
  return [mean, deviation].map((value) => value.toFixed(digits));
};
const spreadText = (spread) =>
  spread === null ? NONE : spread[1] === null ? metricText(spread[0]) : spreadWords(spread).join(" ± ");
// Shown where a reader points at the value or moves to it.
const floored = (floor, nodes) => (floor
  ? [h("span", { class: "floored", tabindex: "0" }, nodes, h("small", { class: "floor" }, `floor ${floor[3]}`))] : nodes);
const plural = (count, noun) => `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;
const paramsText = (params) =>
  Object.entries(params).map(([path, value]) => `${path.replace(/^method\./, "")} ${settingText(value)}`).join(", ");

// ---- a trial's measures: its metrics in order, then its cost

function measures(study) {
  const scaled = new Set(study.metrics.map(({ name }) => name));
  const metrics = study.metrics.map((metric, place) => ({
    ...metric, short: shortText(metric, scaled), place, text: metricText, of: (trial) => trial.values[place], interval: (trial) => trial.intervals?.[place]?.slice(0, 2),
    sure: (trial) => trial.intervals?.[place]?.[2], floor: (trial) => trial.floors?.[place],
  }));
  const cost = (name, label, text) => ({
    name, label, short: label, text, better: "lower", place: null, of: (trial) => trial[name], interval: () => undefined, sure: () => undefined, floor: () => undefined,
  });
  return [...metrics, cost("samples", "training samples seen", countText), cost("seconds", "training seconds", secondsText)];
}

// As a heading: `ECE as trained` beside `ECE after temperature`. What a temperature cannot change has one name.
const UNCHANGED = ["accuracy", "error", "top5_accuracy", "miou", "miou_without_0"];
function shortText({ name, plain, label }, names) {
  if (name.startsWith("ts_")) return `${plain} after temperature`;
  return names.has(`ts_${name}`) && !UNCHANGED.includes(name) ? `${plain} as trained` : label;
}

const betterText = (measure) => (measure.better ? `${measure.better} is better` : "no better direction");
const axisText = (measure) =>
  `${measure.label}${measure.place === null ? "" : ", validation"} (${betterText(measure)})`;

// `0.972 [0.959, 0.981], floor ...`: with an interval, in the digits that it supports.
function valueText(measure, trial) {
  const floor = measure.floor(trial);
  return `${measure.sure(trial) ?? measure.text(measure.of(trial))}${floor ? `, floor ${floor[3]}` : ""}`;
}

// The same, with the interval in small type and never broken across lines.
function valueNodes(measure, trial) {
  const sure = measure.sure(trial);
  if (!sure) return [measure.text(measure.of(trial))];
  const [value, ...interval] = sure.split(" ");
  return floored(measure.floor(trial), [value, " ", h("small", { class: "interval" }, interval.join(" "))]);
}

// ---- commands to copy: [command, what it does] each

function commandList(commands) {
  return h("ul", { class: "commands" }, commands.map(([command, does]) => {
    const code = h("code", {}, command.split(" ").flatMap((word, k) => [k ? " " : "", h("span", {}, word)])); // words stay whole
    return h("li", {}, h("div", {}, code, copyButton(code)), does ? h("span", { class: "small" }, does) : null);
  }));
}

function copyButton(code) {
  const command = code.textContent;
  const copy = h("button", { type: "button", class: "copy", "aria-label": `copy: ${command}`, click: async () => {
    getSelection().selectAllChildren(code); // for a browser that does not let a page copy
    try {
      await navigator.clipboard.writeText(command);
      copy.textContent = "copied";
    } catch {
      copy.textContent = "selected";
    }
  } }, "copy");
  return copy;
}

// ---- scales and marks

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((each) => each * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, k) => (first + k) * step);
}

function tickText(values) {
  const step = values.length > 1 ? values[1] - values[0] : values[0] || 1;
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(Math.abs(step)) - 1e-9) + (/25/.test(step.toPrecision(3)) ? 1 : 0)));
  return (value) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);

// matplotlib's markers, about equal in area; r is half their width in pixels.
const MARKS = {
  o: (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
  s: (r) => polygon(r * 0.9, [[-1, -1], [1, -1], [1, 1], [-1, 1]]),
  "^": (r) => polygon(r * 1.15, [[0, -1], [1, 0.85], [-1, 0.85]]),
  D: (r) => polygon(r * 1.2, [[0, -1], [1, 0], [0, 1], [-1, 0]]),
  v: (r) => polygon(r * 1.15, [[0, 1], [1, -0.85], [-1, -0.85]]),
  P: (r) => polygon(r * 1.1, PLUS),
  X: (r) => polygon(r * 1.1, PLUS.map(([x, y]) => [(x - y) * 0.75, (x + y) * 0.75])),
};
const PLUS = [[-0.36, -1], [0.36, -1], [0.36, -0.36], [1, -0.36], [1, 0.36], [0.36, 0.36],
  [0.36, 1], [-0.36, 1], [-0.36, 0.36], [-1, 0.36], [-1, -0.36], [-0.36, -0.36]];

function polygon(r, corners) {
  return `M${corners.map(([x, y]) => `${(x * r).toFixed(2)},${(y * r).toFixed(2)}`).join("L")}Z`;
}

// A method's colour and marker follow its position in the study, as in the figures.
const colourOf = (page, method) => page.colours[method % page.colours.length];
const markOf = (page, method, r) => MARKS[page.markers[method % page.markers.length]](r);
const glyph = (page, method) =>
  s("svg", { class: "glyph", viewBox: "-8 -8 16 16", "aria-hidden": "true" },
    s("path", { d: markOf(page, method, 5.5), fill: colourOf(page, method) }));
