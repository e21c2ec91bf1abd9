// One trial's reliability diagrams, before and after temperature scaling, and its metrics. They look as in the figures.

function reliabilityPanel(page, study, view) {
  const panel = h("section", { class: "panel", "aria-live": "polite", tabindex: "-1" });
  const draw = () => {
    const trial = study.trials.find((each) => each.name === view.selected);
    panel.hidden = !trial;
    if (!trial) return;
    panel.replaceChildren(...panelOf(page, study, view, trial).filter(Boolean));
    explain(panel);
  };
  view.on("selected", draw);
  view.panel = panel;
  return panel;
}

function panelOf(page, study, view, trial) {
  return [
    h("h4", {}, glyph(page, trial.method), "Reliability of ", h("span", { class: "trial" }, trial.title),
      trial.name === study.answer?.trial ? h("small", { class: "take" }, ` ${TAKE}`) : null),
    trial.raw
      ? h("div", { class: "pair" }, ["raw", "scaled"].map((which, k) => diagram(page, study, trial, which, page.headings[k])))
      : h("p", { class: "note" }, "No diagram: this trial's predictions cannot be read; see the note at the top."),
    trial.raw ? binKey(page) : null,
    trial.raw ? h("p", { class: "small" }, study.bins_note) : null,
    numbersOf(page, study, view, trial),
    ...withoutInterval(page, study, view, trial).map((sentence) => h("p", { class: "small" }, sentence)),
    settingsOf(trial),
    trial.raw ? h("details", {}, h("summary", {}, "Bins as a table"), binsTable(page, study, trial)) : null,
  ];
}

const inside = ([, , , hits, low, high]) => low <= hits && hits <= high;
const binMark = (page, within, r, attributes = {}) => s("path", { class: within ? "inside" : "outside",
  d: MARKS[within ? "o" : "D"](r), fill: page.colours[within ? 0 : 1], ...attributes });

function binKey(page) {
  const [within, outside, band, diagonal] = page.bin_key;
  const entry = (text, ...drawn) => h("span", {}, s("svg", { class: "glyph", viewBox: "-8 -8 16 16", "aria-hidden": "true" }, ...drawn), text);
  return h("p", { class: "legend small" },
    entry(within, binMark(page, true, 5)), entry(outside, binMark(page, false, 5)),
    entry(band, s("rect", { class: "band", x: -7, y: -6, width: 14, height: 12 })),
    entry(diagonal, s("line", { class: "diagonal", x1: -8, x2: 8, y1: 0, y2: 0 })));
}

function diagram(page, study, trial, which, title) {
  const { ece, bins } = trial[which];
  const [size, left, top, foot] = [160, 42, 24, 46];
  const toX = scale(0, 1.02, left, left + size);
  const toY = scale(0, 1.03, top + size, top);
  const base = top + size + 8 + foot;
  const toCount = scale(Math.log(0.7), Math.log(1.5 * study.samples), 0, foot);
  const powers = Array.from({ length: Math.floor(Math.log10(study.samples)) + 1 }, (_, k) => 10 ** k);
  const svg = s("svg", { viewBox: `0 0 ${left + size + 8} ${base + 34}`, role: "img", class: "reliability", "aria-label":
    `Reliability diagram of ${trial.name}, ${title}: ECE ${metricText(ece)}, ${bins.length} of ${page.bins} bins contain ${study.counted}` });
  svg.append(
    s("text", { class: "title", x: 2, y: 13 }, `${title}: ECE ${metricText(ece)}`),
    s("g", { class: "grid" }, [0, 0.5, 1].flatMap((tick) => [
      s("line", { x1: toX(tick), x2: toX(tick), y1: top, y2: top + size }),
      s("line", { x1: left, x2: left + size, y1: toY(tick), y2: toY(tick) }),
    ])),
    s("rect", { class: "frame", x: toX(0), y: toY(1), width: toX(1) - toX(0), height: toY(0) - toY(1) }),
    ...bins.flatMap(([bin, count, , , low, high]) => {
      const [x, wide] = [toX(bin / page.bins), toX(1 / page.bins) - toX(0)];
      const tall = toCount(Math.log(count));
      return [
        s("rect", { class: "band", x, width: wide, y: toY(high / count), height: toY(low / count) - toY(high / count) }),
        s("rect", { class: "count", x: x + 0.075 * wide, width: 0.85 * wide, y: base - tall, height: tall },
          s("title", {}, plural(count, study.counted.replace(/s$/, "")))),
      ];
    }),
    s("line", { class: "diagonal", x1: toX(0), y1: toY(0), x2: toX(1), y2: toY(1) }),
    ...bins.map((bin) => binMark(page, inside(bin), 2.8, { transform: `translate(${toX(bin[2])},${toY(bin[3] / bin[1])})` })),
    ...[0, 0.5, 1].flatMap((tick) => [
      s("text", { x: left - 5, y: toY(tick) + 4, "text-anchor": "end" }, String(tick)),
      s("text", { x: toX(tick), y: base + 13, "text-anchor": "middle" }, String(tick)),
    ]),
    ...powers.filter((power, k) => k % Math.ceil(powers.length / 3) === 0).map((power) =>
      s("text", { x: left - 5, y: base - toCount(Math.log(power)) + 4, "text-anchor": "end" }, power < 1e4 ? String(power) : power.toLocaleString("en-US", { notation: "compact" }))),
    s("text", { class: "axis", x: left + size / 2, y: base + 28, "text-anchor": "middle" }, "confidence"),
    s("text", { class: "axis", transform: `translate(11,${top + size / 2}) rotate(-90)`, "text-anchor": "middle" }, "accuracy"),
    s("text", { class: "axis", transform: `translate(11,${base - foot / 2}) rotate(-90)`, "text-anchor": "middle" }, study.counted),
  );
  return svg;
}

function numbersOf(page, study, view, trial) {
  const scaled = (measure) => view.measures.find((each) => each.name === `ts_${measure.name}`);
  const table = h("table", { class: "numbers" },
    h("caption", { class: "hidden" }, `Validation metrics of ${trial.name}`),
    h("thead", {}, h("tr", {}, ["validation", ...page.headings].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, shownIn(view).map((measure) => h("tr", {},
      h("th", { scope: "row" }, measure.label),
      h("td", {}, valueNodes(measure, trial)),
      h("td", {}, scaled(measure) ? valueNodes(scaled(measure), trial) : NONE)))));
  return h("div", {}, table, h("div", { class: "under" }, csvButton(study.name, `Metrics of ${trial.name}`, () => valueRows(study, view, trial))));
}

const shownIn = (view) => view.measures.filter((each) => each.place !== null && !each.name.startsWith("ts_") &&
  !["error", "top5_accuracy", "debiased_l2", "smooth_ece"].includes(each.name));

// Why metrics of this table have no interval, a sentence for each reason.
function withoutInterval(page, study, view, trial) {
  if (!study.resamples) return [];
  const shown = shownIn(view).flatMap(({ name }) => view.measures.filter((each) => [name, `ts_${name}`].includes(each.name)));
  const lacking = shown.filter((each) => Number.isFinite(each.of(trial)) && !each.interval(trial));
  const wrong = trial.raw ? trial.raw.bins.reduce((sum, [, count, , hits]) => sum + count - hits, 0) : null;
  const why = (measure) => {
    if (!measure.resampled) return "calstudy does not resample it";
    if (!trial.front && !study.objectives.includes(measure.name)) return "front";
    if (study.unit) return `fewer than ${page.fewest_wrong} ${study.unit} have a wrong prediction, or it is undefined in some resamples`;
    if (wrong !== null && wrong < page.fewest_wrong) return `fewer than ${page.fewest_wrong} wrong predictions, too few to tell how large it may be`;
    return "it is undefined in some resamples";
  };
  const reasons = lacking.reduce((all, each) => all.set(why(each), [...(all.get(why(each)) ?? []), each]), new Map());
  return [...reasons].map(([reason, found]) => reason === "front"
    ? "Metrics that are not objectives have intervals only for trials on the Pareto front."
    : `No interval of ${[...new Set(found.map((each) => each.plain))].join(", ")}: ${reason}.`);
}

function settingsOf(trial) {
  const rows = [
    ...Object.entries(trial.params).map(([path, value]) => [path, String(value)]),
    ...(trial.raw ? [["temperature", `${trial.temperature.toFixed(2)}, the median over the folds${trial.doubt ? `. ${trial.doubt}` : ""}`]] : []),
    ["training", `epoch ${trial.epoch ?? NONE}; ${countText(trial.samples)} samples seen, ${secondsText(trial.seconds)} seconds`],
    ...(trial.share === undefined ? [] : [["on the Pareto front in", `${shareText(trial.share)} of resamples`]]),
    ["files", `trials/${trial.name}`],
  ];
  return h("dl", { class: "settings" }, rows.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

function binsTable(page, study, trial) {
  const byBin = ({ bins }) => new Map(bins.map((row) => [row[0], row]));
  const [raw, scaled] = [byBin(trial.raw), byBin(trial.scaled)];
  const cells = (row) => (row ? [countText(row[1]), row[2].toFixed(3), (row[3] / row[1]).toFixed(3)] : ["0", NONE, NONE]);
  const numbers = [study.counted, "confidence", "accuracy"];
  return sheet(study, `Bins of ${trial.name}`, h("table", { class: "numbers" },
    h("thead", {},
      h("tr", {}, h("td"), page.headings.map((name) => h("th", { scope: "colgroup", colspan: "3" }, name))),
      h("tr", {}, h("th", { scope: "col" }, "bin"), [...numbers, ...numbers].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, Array.from({ length: page.bins }, (_, bin) => bin).filter((bin) => raw.has(bin) || scaled.has(bin)).map((bin) =>
      h("tr", {}, h("th", { scope: "row" }, `(${(bin / page.bins).toFixed(3)}, ${((bin + 1) / page.bins).toFixed(3)}]`),
        [...cells(raw.get(bin)), ...cells(scaled.get(bin))].map((cell) => h("td", {}, cell)))))), () => binRows(page, trial));
}
