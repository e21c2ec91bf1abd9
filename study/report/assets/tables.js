// Tables: trials, budget per method, incomplete trials, seed noise.

const FIRST_ROWS = 20;
const CORE = ["accuracy", "ece", "ts_ece", "nll", "ts_nll", "brier"];

// The objectives first, then the core metrics: ECE as trained and after temperature side by side.
const coreMeasures = (study, view) =>
  [...new Set([...study.objectives, ...CORE])].map((name) => view.measures.find((each) => each.name === name)).filter(Boolean);

function scrolled(label, table) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
}

// The table, and below it a button that downloads its content.
const sheet = (study, label, table, make, ...beside) =>
  h("div", { class: "sheet" }, scrolled(label, table), h("div", { class: "under" }, ...beside, csvButton(study.name, label, make)));

const head = (cells) => h("thead", {}, h("tr", {}, cells.map((cell) => h("th", { scope: "col" }, cell))));
const row = (name, cells) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", {}, cell)));

// ---- the trials

const TERM_OF = { accuracy: "accuracy", ece: "ece", nll: "nll", brier: "brier", adaptive_ece: "adaptive", classwise_ece: "classwise", mce: "mce" };

function trialTable(page, study, view) {
  const columns = [
    { title: "trial", of: (t) => t.method * 1e6 + t.number, cell: (t) => trialLink(page, study, view, t), row: true },
    { title: "front", of: (t) => (t.front ? 0 : t.excluded ? 2 : 1), cell: (t) => frontCell(study, t) },
    ...(study.resamples ? [{ title: "share", term: "share", of: (t) => t.share, cell: (t) => shareText(t.share), down: true }] : []),
    ...coreMeasures(study, view).map((measure) => ({
      title: measure.short, term: TERM_OF[measure.name.replace(/^ts_/, "")], of: measure.of, down: measure.better === "higher",
      cell: (t) => (study.objectives.includes(measure.name) ? valueNodes(measure, t) : measure.text(measure.of(t))),
    })),
    ...(study.trials.some((trial) => Object.keys(trial.params).length)
      ? [{ title: "settings", words: true, cell: (t) => h("span", { class: "params" }, paramsText(t.params)) }] : []),
    { title: "seconds", of: (t) => t.seconds, cell: (t) => secondsText(t.seconds) },
  ];
  const objective = view.measures.find((each) => each.name === study.objectives[0]);
  let sorted = { column: columns.find((each) => each.of === objective?.of) ?? columns[0], down: objective?.better === "higher" };
  let every = false;
  const body = h("tbody");
  const status = h("p", { class: "small", role: "status" });
  const more = h("button", { type: "button", class: "more", click: () => {
    every = !every;
    draw();
  } });
  const heads = columns.map((column) => column.of
    ? h("th", { scope: "col", "data-title": column.title }, h("button", { type: "button", "data-term": column.term, click: () => {
      sorted = { column, down: sorted.column === column ? !sorted.down : Boolean(column.down) };
      draw();
    } }, column.title))
    : h("th", { scope: "col", class: "words" }, column.title));

  function draw() {
    const { column, down } = sorted;
    const missing = down ? -Infinity : Infinity;
    const shown = study.trials.filter(view.shows).sort((a, b) => {
      const [first, second] = [column.of(a) ?? missing, column.of(b) ?? missing];
      return Boolean(a.excluded) - Boolean(b.excluded) || (down ? second - first : first - second) || a.method - b.method || a.number - b.number;
    });
    const matters = (trial) => trial.front || trial.name === study.answer?.trial;
    const kept = every ? shown : shown.filter((trial, k) => k < FIRST_ROWS || matters(trial));
    heads.forEach((cell, place) => {
      if (columns[place] === column) cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    body.replaceChildren(...kept.map((trial) => h("tr", { "data-row": trial.name, class: trial.name === study.answer?.trial && "taken" },
      columns.map((each) =>
        h(each.row ? "th" : "td", { scope: each.row && "row", class: each.words && "words" }, each.cell(trial))))));
    mark();
    status.textContent = (kept.length < shown.length
      ? `${countText(kept.length)} of ${plural(shown.length, "trial")}, sorted by ${column.title}.`
      : `${plural(shown.length, "trial")}, sorted by ${column.title}.`) +
      (study.resamples ? " Share: fraction of bootstrap resamples in which the trial is on the Pareto front." : "");
    more.hidden = !every && kept.length === shown.length;
    more.textContent = every ? "Show fewer" : `Show all ${countText(shown.length)}`;
  }

  function mark() {
    for (const each of body.rows) each.classList.toggle("selected", each.dataset.row === view.selected);
  }

  view.on("drawn", draw);
  view.on("selected", mark);
  const table = h("table", { class: "trials" },
    h("caption", { class: "hidden" }, `Complete trials of ${study.name}; select a heading to sort, a trial to see its reliability diagram`),
    h("thead", {}, h("tr", {}, heads)), body);
  return sheet(study, "Trials", table, () => trialRows(study, view), status, more);
}

function frontCell(study, trial) {
  if (trial.name === study.answer?.trial) return h("small", { class: "take", title: TAKE }, "take");
  if (trial.front) return h("span", { title: "on the study's Pareto front" }, "●");
  return trial.excluded ? h("small", { title: trial.excluded }, "excluded") : "";
}

function trialLink(page, study, view, trial) {
  return h("a", { class: "trial", href: addressOf(page, study, trial.name), click: (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in a tab or window of its own
    event.preventDefault();
    view.select(trial.name);
    view.panel.focus();
  } }, glyph(page, trial.method), trial.title);
}

// ---- methods, failures, noise

function methodTable(page, study) {
  const states = Object.keys(study.methods[0].states).filter(
    (state) => state === "complete" || study.methods.some((method) => method.states[state]));
  const hours = [["cpu_hours", "CPU-hours"], ["gpu_hours", "GPU-hours"]].filter(
    ([unit]) => study.methods.some((method) => method.hours[unit]));
  return sheet(study, "Budget per method", h("table", { class: "budgets" },
    h("caption", { class: "hidden" }, "Budget per method"),
    head(["method", "searched", "planned", ...states, "samples seen", "seconds", ...hours.map(([, title]) => title), "device"]),
    h("tbody", {}, study.methods.map((method, place) => row(
      [glyph(page, place), method.label, method.name === method.label ? "" : h("small", {}, ` ${method.name}`)],
      [
        Object.keys(method.searched).length
          ? h("span", { class: "params" }, Object.entries(method.searched).map(([path, range]) => `${path}: ${range}`).join("; "))
          : h("em", {}, "none: repeated with fresh seeds"),
        countText(method.planned), ...states.map((state) => countText(method.states[state])),
        countText(method.samples), secondsText(method.seconds),
        ...hours.map(([unit]) => method.hours[unit] === undefined ? NONE : method.hours[unit].toPrecision(3)), method.devices.join(", ") || NONE,
      ])))), () => budgetRows(study));
}

function failureTable(study) {
  if (!study.unfinished.length) return h("p", {}, "Every trial that started is complete.");
  return sheet(study, "Incomplete trials", h("table", { class: "failures" },
    h("caption", { class: "hidden" }, "Incomplete trials"),
    head(["trial", "state", "reason", "settings", "attempts"]),
    h("tbody", {}, study.unfinished.map((each) =>
      row(each.trial, [each.state, each.reason, paramsText(each.params), countText(each.attempts)])))), () => failureRows(study));
}

function noiseSection(page, study, view) {
  if (!study.noise.length) {
    return [h("p", {}, "Not measured. A method without searched hyperparameters is repeated with fresh seeds; a difference " +
      "smaller than its spread can be due to the seed alone. In this study every method searches hyperparameters or has fewer " +
      "than two complete trials. To measure the noise floor, list ", h("code", {}, "cross_entropy"), " without a range that applies to it. ",
      study.confirmation ? "The Test results section shows the spread over seeds of each confirmed setting." : "")];
  }
  const wanted = coreMeasures(study, view);
  const most = noiseRow(study).trials;
  return [
    h("p", {}, "Methods without searched hyperparameters were repeated with fresh seeds: mean ± one standard deviation, all on " +
      `the same ${study.validation_samples} (variation between samples is not included). A standard deviation ` +
      `estimated from ${plural(most, "value")} is itself known only to about ${Math.round(100 / Math.sqrt(2 * (most - 1)))}%.`),
    sheet(study, "Noise floor", h("table", {},
      h("caption", { class: "hidden" }, "Spread over fresh seeds"),
      head(["method", "trials", ...wanted.map((measure) => measure.short)]),
      h("tbody", {}, study.noise.map((each) => row(
        [glyph(page, study.methods.findIndex((method) => method.label === each.label)), each.label],
        [countText(each.trials), ...wanted.map((measure) => spreadText(each.spread[measure.place]))])))), () => noiseRows(study)),
  ];
}
