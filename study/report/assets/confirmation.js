// Selected trials, retrained with fresh seeds: their test values first, then how far the search's values shrank.
// A study without a search is its own confirmation (`itself`): nothing was retrained, and nothing can shrink.

function confirmationSection(study, view) {
  const found = study.confirmation;
  const wanted = study.objectives.map((name) => view.measures.find((each) => each.name === name)).filter(Boolean);
  return [
    ...found.cautions.map((caution) => h("p", {}, `${caution}.`)),
    ...(found.opened ? [sheet(study, "Test results", testTable(study, view, found.rows), () => confirmationRows(study)),
      h("p", { class: "small" }, `Mean ± one standard deviation over seeds, on the ${study.test_samples} of the sealed ` +
        "test split, which was opened only for this and never used to select anything. After temperature: fitted on each seed's validation split." +
        (found.rows.some((each) => each.label === study.answer?.taken) ? " Bold: the model to take, selected on validation." : "") +
        (hasFloors(study) ? ` ${study.floor_note}` : ""))]
      : [h("p", {}, "The test split has not been opened yet.")]),
    ...(found.itself ? [h("h4", {}, "From validation to test"),
      h("p", { class: "small" }, "The study has no search: its own trials were measured, and nothing was selected.")]
      : [h("h4", {}, "From the search to the test"),
        h("p", { class: "small" }, `From ${found.name}: each row was retrained with fresh seeds. The change from “search” to “fresh seeds” shows how ` +
          "lucky the selected seed was on the same validation split; the change to “test” adds the luck of the split. Shrinkage: how much " +
          `better the trial scored in the search than it scores on test. ${found.compared.replace(/^s/, "S")}`),
        sheet(study, "From the search to the test", shrinkageTable(study, found.rows, wanted), () => confirmationRows(study))]),
    h("div", { class: "dumbbells" }, wanted.map((measure) => dumbbells(study, measure))),
    ...(found.shifts.length ? [h("p", {}, "Under shift, the temperature is the one fitted on the validation split. Noise inflates " +
      "the calibration errors, more so with fewer samples: do not compare sets of different sizes.")] : []),
    ...found.shifts.flatMap((shift) => shiftTable(study, shift, found.shift_samples[shift], found.shift_dropped[shift])),
  ];
}

const takenClass = (study, row) => (row.label === study.answer?.taken ? "taken" : null);

const firstColumn = ({ itself }) => (itself ? "method" : "retrained");

const hasFloors = ({ confirmation, floor_note: note }) =>
  Boolean(note && confirmation?.rows.some(({ floors }) => Object.keys(floors.test).length));

// Per metric, as trained and after temperature side by side: the objectives first, then ECE and NLL.
function testTable(study, view, rows) {
  const named = (name) => view.measures.find((each) => each.name === name && rows.some(({ test }) => test[each.place]));
  const plain = [...new Set([...study.objectives.map((name) => name.replace(/^ts_/, "")), "ece", "nll"])];
  const groups = plain.map((name) => (UNCHANGED.includes(name) ? [name] : [name, `ts_${name}`]).map(named).filter(Boolean))
    .filter((group) => group.length);
  const tag = (measure) => {
    const roles = [study.objectives.includes(measure.name) && "objective", study.served.includes(measure.name) && "served"];
    return roles.some(Boolean) ? h("small", {}, ` ${roles.filter(Boolean).join(", ")}`) : null;
  };
  const under = (measure) => (UNCHANGED.includes(measure.name) ? "" : measure.name.startsWith("ts_") ? "after temperature" : "as trained");
  const first = (k) => (k === 0 ? "first" : null);
  return h("table", { class: "confirmed" },
    h("caption", { class: "hidden" }, "Test results: mean and standard deviation over seeds"),
    h("thead", {},
      h("tr", {}, h("td"), groups.map((group) =>
        h("th", { scope: "colgroup", colspan: group.length, class: "first" }, group[0].plain, UNCHANGED.includes(group[0].name) ? tag(group[0]) : null)), h("td", { colspan: "2" })),
      h("tr", {}, h("th", { scope: "col" }, firstColumn(study.confirmation)),
        groups.flatMap((group) => group.map((measure, k) =>
          h("th", { scope: "col", class: first(k) }, under(measure), under(measure) ? tag(measure) : null))),
        h("th", { scope: "col", class: "first" }, "seeds"), h("th", { scope: "col", class: "role" }, "role"))),
    h("tbody", {}, rows.map((each) => h("tr", { class: takenClass(study, each) },
      h("th", { scope: "row" }, each.name),
      groups.flatMap((group) => group.map(({ place }, k) => h("td", { class: first(k) }, floored(each.floors.test[place], spreadNodes(each.test[place]))))),
      h("td", {}, countText(each.seeds)),
      h("td", { class: "role" }, each.role)))));
}

const spreadNodes = (spread) => (!spread || spread[1] === null ? [spreadText(spread ?? null)]
  : [spreadWords(spread)[0], " ", h("small", { class: "interval" }, `± ${spreadWords(spread)[1]}`)]);

function shrinkageTable(study, rows, wanted) {
  const columns = ["search", "fresh seeds", "test", "shrinkage"];
  return h("table", { class: "shrinkage" },
    h("caption", { class: "hidden" }, "Validation value in the search; validation and test values of fresh seeds"),
    h("thead", {},
      h("tr", {}, h("td"), wanted.map((each) => h("th", { scope: "colgroup", colspan: columns.length, class: "first" }, each.short))),
      h("tr", {}, h("th", { scope: "col" }, "retrained"), wanted.flatMap(() => columns.map((name, k) =>
        h("th", { scope: "col", class: k === 0 ? "first" : null }, name))))),
    h("tbody", {}, rows.map((each) => h("tr", { class: takenClass(study, each) }, h("th", { scope: "row" }, each.name),
      wanted.flatMap(({ place }) => {
        const lost = each.shrinkage[place];
        return [h("td", { class: "first" }, metricText(each.searched[place])),
          h("td", {}, floored(each.floors.validation[place], spreadNodes(each.validation[place]))),
          h("td", {}, floored(each.floors.test[place], spreadNodes(each.test[place]))),
          h("td", {}, lost === null ? NONE : `${lost < 0 ? "−" : "+"}${metricText(Math.abs(lost))}`)];
      })))));
}

// One measure, one line per row: hollow = searched, grey = fresh seeds, filled = test.
function dumbbells(study, measure) {
  const { rows, itself } = study.confirmation;
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
    `${measure.label} of each row: ${itself ? "validation" : "search, fresh seeds,"} and test; the table has the numbers` },
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
      s("text", { class: takenClass(study, each), x: left - 10, y: y + 4, "text-anchor": "end" }, each.name.length > 24 ? `${each.name.slice(0, 23)}…` : each.name),
      bar(validation, "fresh", -4) ?? [], bar(test, "test", 4) ?? [],
      searched === null ? [] : s("circle", { class: "searched", cx: toX(searched), cy: y, r: 4.5 }));
  })), h("figcaption", {}, itself ? "Grey: seeds on validation. Blue: the same seeds on test."
    : "Ring: value in the search. Grey: fresh seeds on validation. Blue: the same seeds on test."));
}

function shiftTable(study, shift, samples, dropped) {
  const found = study.confirmation;
  const measured = found.rows.filter((each) => each.shifts[shift]);
  const names = [...new Set(measured.flatMap((each) => Object.keys(each.shifts[shift])))];
  return [
    h("h4", {}, `Under shift: ${shift}${samples ? `, ${countText(samples)} samples` : ""}${dropped ? `, ${countText(dropped)} dropped: also in train or validation` : ""}`),
    sheet(study, `Shift ${shift}`, h("table", { class: "few" }, head([firstColumn(found), ...names]),
      h("tbody", {}, measured.map((each) => row(each.name, names.map((name) => spreadText(each.shifts[shift][name] ?? null)))))), () => shiftRows(shift, measured, names)),
  ];
}
