// Selected trials: validation value in the search, then fresh seeds on validation and on test.

function confirmationSection(study, view) {
  const found = study.confirmation;
  if (!found) {
    return [h("p", {}, "The best trials have not been confirmed, so how far their validation values are inflated is unknown. ",
      h("code", {}, `calstudy confirm ${study.name} --pareto --seeds 5`),
      " retrains them and each method's default with fresh seeds, and opens the sealed test split once for each.")];
  }
  const wanted = study.objectives.map((name) => view.measures.find((each) => each.name === name)).filter(Boolean);
  return [
    h("p", {}, `From ${found.name}: each row was retrained with fresh seeds. The change from “search” to “fresh seeds” shows how lucky ` +
      "the selected seed was on the same validation split; the change to “test” adds the luck of the split. “Test − search” " +
      "is the shrinkage, with its sign reversed where higher is better. ",
    found.opened ? "“Test” scores the same seeds on the sealed test split, opened only for this and never used to select anything. " :
      "The test split has not been opened yet. ", "Values are mean ± one standard deviation over seeds."),
    h("div", { class: "dumbbells" }, wanted.map((measure) => dumbbells(found.rows, measure))),
    scrolled("Confirmation", confirmationTable(found.rows, wanted)),
    ...(found.shifts.length ? [h("p", {}, "Under shift, the temperature is the one fitted on the validation split. Noise inflates " +
      "the calibration errors, more so with fewer samples: do not compare sets of different sizes.")] : []),
    ...found.shifts.flatMap((shift) => shiftTable(found.rows, shift, found.shift_samples[shift], found.shift_dropped[shift])),
  ];
}

function confirmationTable(rows, wanted) {
  const columns = ["search", "fresh seeds", "test", "test − search"];
  return h("table", { class: "confirmed" },
    h("caption", { class: "hidden" }, "Validation value in the search; validation and test values of fresh seeds"),
    h("thead", {},
      h("tr", {}, h("td", { colspan: "3" }), wanted.map((each) => h("th", { scope: "colgroup", colspan: columns.length }, each.label))),
      h("tr", {}, ["retrained", "role", "seeds", ...wanted.flatMap(() => columns)].map((name) => h("th", { scope: "col" }, name)))),
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

// One measure, one line per row: hollow = searched, grey = fresh seeds, filled = test.
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
    `${measure.label} of each row: search, fresh seeds, and test; the table has the numbers` },
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
  })), h("figcaption", {}, "Ring: value in the search. Grey: fresh seeds on validation. Blue: the same seeds on test."));
}

function shiftTable(rows, shift, samples, dropped) {
  const measured = rows.filter((each) => each.shifts[shift]);
  const names = [...new Set(measured.flatMap((each) => Object.keys(each.shifts[shift])))];
  return [
    h("h4", {}, `Under shift: ${shift}${samples ? `, ${countText(samples)} samples` : ""}${dropped ? `, ${countText(dropped)} dropped: also in train or validation` : ""}`),
    scrolled(`Shift ${shift}`, h("table", { class: "few" }, head(["retrained", ...names]),
      h("tbody", {}, measured.map((each) => row(each.label, names.map((name) => spreadText(each.shifts[shift][name] ?? null))))))),
  ];
}
