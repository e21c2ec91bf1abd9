// What winners are worth: as searched on validation, retrained with fresh seeds on validation, and those seeds on test.

function confirmationSection(study, view) {
  const found = study.confirmation;
  if (!found) {
    return [h("p", {}, "The winners have not been confirmed: how much better they look than they are is not known. ",
      h("code", {}, `calstudy confirm ${study.name} --pareto --seeds 5`),
      " retrains them and each method's published settings with fresh seeds, and opens the sealed test split once for each.")];
  }
  const wanted = study.objectives.map((name) => view.measures.find((each) => each.name === name)).filter(Boolean);
  return [
    h("p", {}, `From ${found.name}: each row was trained again with fresh seeds. The step from “searched” to “fresh seeds” is the luck of ` +
      "the seed that was chosen, on the same validation split; that of the split goes with the step to “test”. ",
    found.opened ? "“Test” is of the same seeds on the sealed split, opened for this alone; nothing was chosen by it. " :
      "The test split has not been opened yet. ", "Mean ± one standard deviation over the seeds."),
    h("div", { class: "dumbbells" }, wanted.map((measure) => dumbbells(found.rows, measure))),
    scrolled("confirmation", confirmationTable(found.rows, wanted)),
    ...(found.shifts.length ? [h("p", {}, "Under shift the temperature is still that of the validation split. To every calibration " +
      "error noise adds, the more the fewer the samples: sets of different sizes do not compare.")] : []),
    ...found.shifts.flatMap((shift) => shiftTable(found.rows, shift, found.shift_samples[shift])),
  ];
}

function confirmationTable(rows, wanted) {
  const columns = ["searched", "fresh seeds", "test", "test − searched"];
  return h("table", { class: "confirmed" },
    h("caption", { class: "hidden" }, "Validation as searched, validation and test of fresh seeds"),
    h("thead", {},
      h("tr", {}, h("td", { colspan: "3" }), wanted.map((each) => h("th", { scope: "colgroup", colspan: columns.length }, each.label))),
      h("tr", {}, ["retrained", "as", "seeds", ...wanted.flatMap(() => columns)].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map((each) => row(each.label, [
      each.candidate ? `${each.role} ${each.candidate}` : each.role, countText(each.seeds),
      ...wanted.flatMap(({ place }) => {
        const [searched, test] = [each.searched[place], each.test[place]];
        const step = searched === null || !test ? null : test[0] - searched;
        return [metricText(searched), spreadText(each.validation[place]), spreadText(test),
          step === null ? NONE : `${step > 0 ? "+" : "−"}${metricText(Math.abs(step))}`];
      }),
    ]))));
}

// For one measure a line a row: hollow as searched, grey the fresh seeds, filled the test.
function dumbbells(rows, measure) {
  const of = (each) => [each.searched[measure.place], each.validation[measure.place], each.test[measure.place]];
  const ends = rows.flatMap((each) => {
    const [searched, ...spreads] = of(each);
    return [searched, ...spreads.flatMap((spread) => (spread ? [spread[0] - (spread[1] ?? 0), spread[0] + (spread[1] ?? 0)] : []))];
  }).filter((value) => value !== null);
  if (!ends.length) return null;
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const margin = 0.05 * (high - low) || 0.01;
  const [width, left, step, top] = [460, 168, 24, 30];
  const toX = scale(low - margin, high + margin, left, width - 10);
  const bottom = top + step * rows.length;
  const marks = ticks(low - margin, high + margin, 5);
  const shown = tickText(marks);
  return h("figure", {}, s("svg", { viewBox: `0 0 ${width} ${bottom + 24}`, role: "img", "aria-label":
    `${measure.label} of each row as searched, of fresh seeds, and on test; the numbers are in the table` },
  s("text", { class: "axis", x: left, y: 14 }, `${measure.label} (${betterText(measure)})`),
  s("g", { class: "grid" }, marks.map((tick) => s("line", { x1: toX(tick), x2: toX(tick), y1: top - 8, y2: bottom - 4 }))),
  s("g", { class: "ticks" }, marks.map((tick) => s("text", { x: toX(tick), y: bottom + 14, "text-anchor": "middle" }, shown(tick)))),
  rows.map((each, k) => {
    const y = top + step * k + step / 3;
    const [searched, validation, test] = of(each);
    const bar = (spread, name, dy) => spread && [
      spread[1] ? s("line", { class: name, x1: toX(spread[0] - spread[1]), x2: toX(spread[0] + spread[1]), y1: y + dy, y2: y + dy }) : null,
      s("circle", { class: name, cx: toX(spread[0]), cy: y + dy, r: 4 }),
    ];
    return s("g", { class: "dumbbell" },
      s("text", { x: left - 10, y: y + 4, "text-anchor": "end" }, each.label.length > 24 ? `${each.label.slice(0, 23)}…` : each.label),
      bar(validation, "fresh", -4) ?? [], bar(test, "test", 4) ?? [],
      searched === null ? [] : s("circle", { class: "searched", cx: toX(searched), cy: y, r: 4.5 }));
  })), h("figcaption", {}, "Ring: as searched. Grey: fresh seeds on validation. Blue: the same seeds on test."));
}

function shiftTable(rows, shift, samples) {
  const measured = rows.filter((each) => each.shifts[shift]);
  const names = [...new Set(measured.flatMap((each) => Object.keys(each.shifts[shift])))];
  return [
    h("h4", {}, `Under shift: ${shift}${samples ? `, ${countText(samples)} samples` : ""}`),
    scrolled(`shift ${shift}`, h("table", { class: "few" }, head(["retrained", ...names]),
      h("tbody", {}, measured.map((each) => row(each.label, names.map((name) => spreadText(each.shifts[shift][name] ?? null))))))),
  ];
}
