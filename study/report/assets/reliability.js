// One trial's reliability diagrams, before and after temperature scaling, and its metrics.

function reliabilityPanel(page, study, view) {
  const panel = h("section", { class: "panel", "aria-live": "polite", tabindex: "-1" });
  const draw = () => {
    const trial = study.trials.find((each) => each.name === view.selected);
    panel.hidden = !trial;
    if (trial) panel.replaceChildren(...panelOf(page, study, view, trial));
  };
  view.on("selected", draw);
  view.panel = panel;
  return panel;
}

function panelOf(page, study, view, trial) {
  return [
    h("h4", {}, glyph(page, trial.method), "Reliability of ", h("span", { class: "trial" }, trial.name)),
    trial.raw
      ? h("div", { class: "pair" },
        diagram(page, trial, "raw", "as trained"),
        diagram(page, trial, "scaled", `with temperature ${trial.temperature.toFixed(2)}`))
      : h("p", { class: "note" }, "No diagram: this trial's predictions cannot be read; see the note at the top."),
    trial.raw
      ? h("p", { class: "small" },
        `Markers: accuracy against mean confidence in each of ${page.bins} confidence bins (lo, hi]; diamonds lie outside the ` +
        `band. ${page.band} Bars below: fraction of samples per bin, labelled with the largest.`)
      : null,
    numbersOf(view, trial),
    settingsOf(trial),
    trial.raw ? h("details", {}, h("summary", {}, "Bins as a table"), binsTable(page, trial)) : null,
  ];
}

function diagram(page, trial, which, title) {
  const { ece, bins } = trial[which];
  const total = bins.reduce((sum, [, count]) => sum + count, 0);
  const [size, left, top, foot] = [160, 28, 38, 30];
  const toX = scale(0, 1, left, left + size);
  const toY = scale(0, 1, top + size, top);
  const base = top + size + 10;
  const most = Math.max(...bins.map(([, count]) => count)) / total;
  const svg = s("svg", { viewBox: `0 0 ${left + size + 12} ${base + foot + 34}`, role: "img", class: "reliability", "aria-label":
    `Reliability diagram of ${trial.name}, ${title}: ECE ${metricText(ece)}, ${bins.length} of ${page.bins} bins contain samples` });
  svg.append(
    s("text", { class: "title", x: left, y: 14 }, title),
    s("text", { class: "title value", x: left, y: 30 }, `ECE ${metricText(ece)}`),
    s("rect", { class: "frame", x: left, y: top, width: size, height: size }),
    ...bins.flatMap(([bin, count, , , low, high]) => {
      const [x, wide] = [toX(bin / page.bins), size / page.bins];
      return [
        s("rect", { class: "band", x, width: wide, y: toY(high / count), height: toY(low / count) - toY(high / count) }),
        s("rect", { class: "share", x: x + 0.5, width: wide - 1, y: base, height: Math.max(0.75, (foot * count) / total / most) },
          s("title", {}, `${countText(count)} samples`)),
      ];
    }),
    s("line", { class: "diagonal", x1: toX(0), y1: toY(0), x2: toX(1), y2: toY(1) }),
    ...bins.map(([, count, confidence, hits, low, high]) => {
      const inside = low <= hits && hits <= high;
      return s("path", { class: inside ? "inside" : "outside", d: MARKS[inside ? "o" : "D"](2.8),
        transform: `translate(${toX(confidence)},${toY(hits / count)})` });
    }),
    ...[0, 0.5, 1].flatMap((tick) => [
      s("text", { x: left - 5, y: toY(tick) + 4, "text-anchor": "end" }, String(tick)),
      s("text", { x: toX(tick), y: base + foot + 14, "text-anchor": "middle" }, String(tick)),
    ]),
    s("text", { class: "axis", x: left + size / 2, y: base + foot + 29, "text-anchor": "middle" }, "confidence"),
    s("text", { class: "axis", transform: `translate(11,${top + size / 4}) rotate(-90)`, "text-anchor": "middle" }, "accuracy"),
    s("text", { class: "axis", x: left - 5, y: base + 9, "text-anchor": "end" }, shareText(most)),
  );
  return svg;
}

function numbersOf(view, trial) {
  const plain = view.measures.filter((each) => each.place !== null && !each.name.startsWith("ts_"));
  const scaled = (measure) => view.measures.find((each) => each.name === `ts_${measure.name}`);
  const wanted = plain.filter((each) => !["error", "top5_accuracy", "debiased_l2", "smooth_ece"].includes(each.name));
  return h("table", { class: "numbers" },
    h("caption", { class: "hidden" }, `Validation metrics of ${trial.name}`),
    h("thead", {}, h("tr", {}, ["validation", "as trained", "temperature-scaled"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, wanted.map((measure) => h("tr", {},
      h("th", { scope: "row" }, measure.label),
      h("td", {}, valueNodes(measure, trial)),
      h("td", {}, scaled(measure) ? valueNodes(scaled(measure), trial) : NONE)))));
}

function settingsOf(trial) {
  const rows = [
    ...Object.entries(trial.params).map(([path, value]) => [path, String(value)]),
    ["training", `epoch ${trial.epoch ?? NONE}; ${countText(trial.samples)} samples seen, ${secondsText(trial.seconds)} seconds`],
    ...(trial.share === undefined ? [] : [["on the Pareto front in", `${shareText(trial.share)} of resamples`]]),
    ["files", `trials/${trial.name}`],
  ];
  return h("dl", { class: "settings" }, rows.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

function binsTable(page, trial) {
  const byBin = ({ bins }) => new Map(bins.map((row) => [row[0], row]));
  const [raw, scaled] = [byBin(trial.raw), byBin(trial.scaled)];
  const cells = (row) => (row ? [countText(row[1]), row[2].toFixed(3), (row[3] / row[1]).toFixed(3)] : ["0", NONE, NONE]);
  const numbers = ["samples", "confidence", "accuracy"];
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Bins" }, h("table", { class: "numbers" },
    h("thead", {},
      h("tr", {}, h("td"), h("th", { scope: "colgroup", colspan: "3" }, "as trained"),
        h("th", { scope: "colgroup", colspan: "3" }, "temperature-scaled")),
      h("tr", {}, h("th", { scope: "col" }, "bin"), [...numbers, ...numbers].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, Array.from({ length: page.bins }, (_, bin) => bin).filter((bin) => raw.has(bin) || scaled.has(bin)).map((bin) =>
      h("tr", {}, h("th", { scope: "row" }, `(${(bin / page.bins).toFixed(3)}, ${((bin + 1) / page.bins).toFixed(3)}]`),
        [...cells(raw.get(bin)), ...cells(scaled.get(bin))].map((cell) => h("td", {}, cell)))))));
}
