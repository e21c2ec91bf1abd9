// Searched values: how important each was, and each trial as a line across its values and objectives.

function searchedSection(page, study, view) {
  const { methods, notes } = study.searched;
  const places = Object.keys(methods).map(Number);
  const objectives = study.objectives.map((name) => view.measures.find((each) => each.name === name)).filter(Boolean);
  const general = ([note]) => note.startsWith("Importance:"); // what they are; the others say why a method has none
  const rated = places.filter((place) => methods[place].importances);
  return [
    rated.length ? importanceTable(page, study, rated, objectives) : null,
    h("p", { class: "small" }, [...notes].sort((a, b) => general(b) - general(a)).map(([note, labels]) =>
      general([note]) ? note : `${labels.join(", ")}: ${note[0].toLowerCase()}${note.slice(1)}`).join(" ")),
    parallelFigure(page, study, view, places, objectives),
  ];
}

function importanceTable(page, study, places, objectives) {
  const bar = (share) => (share === null ? NONE : [
    s("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("rect", { width: 100 * share, height: 10 })), share.toFixed(2)]);
  return sheet(study, "Importance of searched values", h("table", { class: "few importances" },
    h("caption", { class: "hidden" }, "Importance of searched values, by objective"),
    head(["searched value", ...objectives.map((each) => `importance for ${each.label}`)]),
    h("tbody", {}, places.flatMap((place) => Object.entries(study.searched.methods[place].importances).map(([path, shares]) =>
      row([glyph(page, place), `${study.methods[place].label} `, h("small", {}, path.replace(/^method\./, ""))],
        shares.map(bar)))))), () => importanceRows(study, places, objectives));
}

// ---- parallel coordinates: one panel per method, since methods search different values

const PANEL = { width: 380, height: 228, left: 34, right: 346, top: 58, bottom: 214 };

function parallelFigure(page, study, view, places, objectives) {
  const panels = places.map((place) => parallelPanel(page, study, view, place, objectives));
  view.on("drawn", () => {
    for (const { node, place } of panels) node.toggleAttribute("hidden", view.hidden.has(place));
  });
  view.on("selected", () => {
    for (const { lines } of panels) mark(lines);
  });
  const mark = (lines) => {
    for (const [name, node] of lines) {
      node.setAttribute("aria-selected", String(name === view.selected));
      if (name !== view.selected) continue;
      const focused = document.activeElement === node;
      node.parentNode.append(node); // on top
      if (focused) node.focus();
    }
  };
  return h("figure", {}, h("div", { class: "panels" }, panels.map(({ node }) => node)), h("figcaption", {},
    "Each line is a complete trial: its searched values, then its objectives on validation, better at the top. Bold: on the " +
    "study's Pareto front. A trial too bad for an axis is drawn at its lower end. Click a line, or use the arrow keys and " +
    "Enter, to select the trial."));
}

function parallelPanel(page, study, view, place, objectives) {
  const { width, height, left, right, top, bottom } = PANEL;
  const trials = study.trials.filter((trial) => trial.method === place);
  const axes = [
    ...Object.entries(study.searched.methods[place].axes).map(([path, axis]) => ({ title: path.replace(/^method\./, ""),
      ...searchedAxis(path, axis) })),
    ...objectives.map((measure) => ({ title: measure.label, ...objectiveAxis(study, measure) })),
  ].map((axis, k, all) => ({ ...axis, x: left + (all.length > 1 ? (k * (right - left)) / (all.length - 1) : (right - left) / 2) }));
  const toY = (share) => bottom - Math.min(1, Math.max(0, share)) * (bottom - top);
  const readout = s("text", { class: "readout", x: width, y: 14, "text-anchor": "end" });
  const ordered = [...trials].sort((a, b) => a.front - b.front);
  const lines = new Map(ordered.map((trial) => {
    const points = axes.map((axis) => [axis.x, axis.share(trial)]).filter(([, share]) => share !== null && Number.isFinite(share));
    const d = points.map(([x, share], k) => `${k ? "L" : "M"}${x.toFixed(1)},${toY(share).toFixed(1)}`).join("");
    const text = [paramsText(trial.params), ...objectives.map((each) => `${each.label} ${each.text(each.of(trial))}`)].filter(Boolean).join(", ");
    return [trial.name, s("g", { class: trial.front ? "across best" : "across", role: "option", tabindex: "-1", "data-trial": trial.name,
      "aria-label": `${trial.name}: ${text}` }, s("path", { class: "reach", d }), s("path", { d, stroke: colourOf(page, place) }))];
  }));
  const tell = (name) => {
    readout.textContent = name ?? "";
    for (const [each, node] of lines) node.classList.toggle("active", each === name);
  };
  const named = (event) => event.target.closest?.("[data-trial]")?.dataset.trial;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "listbox", "aria-label":
    `${plural(trials.length, "trial")} of ${study.methods[place].label} across ${axes.map(({ title }) => title).join(", ")}`,
  pointerover: (event) => tell(named(event)), pointerleave: () => tell(), focusin: (event) => tell(named(event)), focusout: () => tell(),
  click: (event) => named(event) && view.select(named(event)),
  keydown: (event) => {
    const names = [...trials].sort((a, b) => (objectives[0]?.of(b) ?? 0) - (objectives[0]?.of(a) ?? 0)).map((trial) => trial.name);
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const name = named(event);
    if (step) lines.get(names[names.indexOf(name) + step])?.focus();
    else if (event.key === "Enter" || event.key === " ") view.select(name);
    else return;
    event.preventDefault();
  } },
  axes.map((axis, k) => s("g", { class: "upright", "aria-hidden": "true" },
    s("line", { x1: axis.x, x2: axis.x, y1: top, y2: bottom }),
    s("text", { x: axis.x, y: k % 2 ? 45 : 31, "text-anchor": k === 0 ? "start" : k === axes.length - 1 ? "end" : "middle" }, clipped(axis.title, 20)),
    axis.marks.map(([share, text]) => s("text", { class: "end", x: axis.x + (k === axes.length - 1 ? 5 : -5), y: toY(share) + 4,
      "text-anchor": k === axes.length - 1 ? "start" : "end" }, text)))),
  s("g", {}, [...lines.values()]), s("text", { class: "title", x: 0, y: 12 }, study.methods[place].label), readout);
  (lines.get(view.selected) ?? [...lines.values()].at(-1))?.setAttribute("tabindex", "0");
  return { node: svg, place, lines };
}

const clipped = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const endText = (value) => String(Number(value.toPrecision(2)));

// `share`: where on the axis a trial lies, 0 to 1; `marks`: [share, text].
function searchedAxis(path, { choices, range, log }) {
  if (choices) {
    const at = (k) => (choices.length > 1 ? k / (choices.length - 1) : 0.5);
    const place = (value) => choices.findIndex((choice) => choice === choiceText(value) || Number(choice) === value);
    return { share: (trial) => (place(trial.params[path]) < 0 ? null : at(place(trial.params[path]))),
      marks: choices.map((choice, k) => [at(k), clipped(choice, 9)]) };
  }
  const on = scale(...range.map(log ? Math.log : Number), 0, 1);
  return { share: (trial) => (trial.params[path] === undefined ? null : on(log ? Math.log(trial.params[path]) : trial.params[path])),
    marks: [[0, endText(range[0])], [1, endText(range[1])]] };
}

// As Python writes it, which wrote the choices.
const choiceText = (value) => (value === true ? "True" : value === false ? "False" : value === null ? "None" : String(value));

function objectiveAxis(study, measure) {
  const known = study.trials.filter((trial) => Number.isFinite(measure.of(trial)));
  const [low, high] = extent(known.map(measure.of), known.filter((trial) => trial.front).map(measure.of), measure.better, false, [], 0);
  const [worst, best] = measure.better === "higher" ? [low, high] : [high, low];
  return { share: (trial) => scale(worst, best, 0, 1)(measure.of(trial)), marks: [[0, worst.toFixed(3)], [1, best.toFixed(3)]] };
}
