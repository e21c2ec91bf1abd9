// To take something from the page: a table as a CSV file, a trial as an address.

// ---- tables

// A spreadsheet takes a text that begins with = + - or @ for a formula: an apostrophe before it makes it text. Numbers stay.
const FORMULA = /^[=+\-@\t\r]/;

function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = FORMULA.test(String(value)) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csvText = ({ columns, rows }) => [columns, ...rows].map((cells) => `${cells.map(csvCell).join(",")}\r\n`).join("");

// make: gives { columns, rows } when the button is pressed, of the page's data and not of what is shown.
function csvButton(name, label, make) {
  return h("button", { type: "button", class: "csv", "aria-label": `Download as CSV: ${label}`, click: () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([csvText(make())], { type: "text/csv;charset=utf-8" })),
      download: `${name}-${label}.csv`.toLowerCase().replace(/[^a-z0-9._]+/g, "-") });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  } }, "CSV");
}

// Every complete trial with all that is known of it, in the order of the study.
function trialRows(study, view) {
  const paths = [...new Set(study.trials.flatMap((trial) => Object.keys(trial.params)))];
  const named = view.measures.filter((each) => each.place !== null);
  const sure = named.filter((each) => study.trials.some(each.interval));
  const floors = named.filter((each) => study.trials.some(each.floor));
  return {
    columns: ["study", "trial", "method", "front", "excluded", ...(study.resamples ? ["share"] : []), ...named.map(({ name }) => name),
      ...sure.flatMap(({ name }) => [`${name}_low`, `${name}_high`]), ...floors.map(({ name }) => `${name}_floor`), ...paths, "epoch", "samples", "seconds"],
    rows: study.trials.map((trial) => [study.name, trial.name, study.methods[trial.method].name, trial.front ? "yes" : "no", trial.excluded,
      ...(study.resamples ? [trial.share] : []), ...named.map((each) => each.of(trial)),
      ...sure.flatMap((each) => each.interval(trial) ?? [null, null]), ...floors.map((each) => each.floor(trial)?.[0]),
      ...paths.map((path) => plainCell(trial.params[path])), trial.epoch, trial.samples, trial.seconds]),
  };
}

const plainCell = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : value);
const pair = (name) => [name, `${name}_std`];

function budgetRows(study) {
  const states = Object.keys(study.methods[0].states);
  const units = [...new Set(study.methods.flatMap((method) => Object.keys(method.hours)))];
  return {
    columns: ["method", "name", "searched", "planned", ...states, "samples", "seconds", ...units, "devices"],
    rows: study.methods.map((method) => [method.label, method.name,
      Object.entries(method.searched).map(([path, range]) => `${path}: ${range}`).join("; "), method.planned,
      ...states.map((state) => method.states[state]), method.samples, method.seconds, ...units.map((unit) => method.hours[unit]), method.devices.join(", ")]),
  };
}

const failureRows = (study) => ({
  columns: ["trial", "state", "reason", "settings", "attempts"],
  rows: study.unfinished.map((each) => [each.trial, each.state, each.reason, JSON.stringify(each.params), each.attempts]),
});

const noiseRows = (study) => ({
  columns: ["method", "trials", ...study.metrics.flatMap(({ name }) => pair(name))],
  rows: study.noise.map((each) => [each.label, each.trials, ...study.metrics.flatMap((_, k) => each.spread[k] ?? [null, null])]),
});

// Of each confirmed row: in the search, by fresh seeds on validation, and on test.
function confirmationRows(study) {
  const found = study.confirmation;
  const kept = study.metrics.map((metric, place) => ({ ...metric, place }))
    .filter(({ place }) => found.rows.some((each) => each.test[place] || each.validation[place]));
  return {
    columns: ["model", "role", "seeds", ...kept.flatMap(({ name }) =>
      [...(found.itself ? [] : [`search_${name}`]), ...pair(`validation_${name}`), ...pair(`test_${name}`), `test_${name}_floor`])],
    rows: found.rows.map((each) => [each.name, each.role, each.seeds, ...kept.flatMap(({ place }) =>
      [...(found.itself ? [] : [each.searched[place]]), ...(each.validation[place] ?? [null, null]), ...(each.test[place] ?? [null, null]),
        each.floors.test[place]?.[0]])]),
  };
}

const shiftRows = (shift, rows, names) => ({
  columns: ["model", ...names.flatMap(pair)],
  rows: rows.map((each) => [each.name, ...names.flatMap((name) => each.shifts[shift][name] ?? [null, null])]),
});

const binRows = (page, trial) => ({
  columns: ["temperature", "from", "to", "samples", "confidence", "accuracy"],
  rows: [["as trained", trial.raw], ["after temperature", trial.scaled]].flatMap(([which, { bins }]) =>
    bins.map(([bin, count, confidence, hits]) => [which, bin / page.bins, (bin + 1) / page.bins, count, confidence, hits / count])),
});

const valueRows = (study, view, trial) => ({
  columns: ["trial", "metric", "value", "low", "high", "floor"],
  rows: view.measures.filter((each) => each.place !== null).map((each) =>
    [trial.name, each.name, each.of(trial), ...(each.interval(trial) ?? [null, null]), each.floor(trial)?.[0]]),
});

// ---- a trial's address: #trial=focal/0007, on a page of several studies #trial=NAME:focal/0007

const addressOf = (page, study, name) => `#trial=${page.studies.length > 1 ? `${study.name}:` : ""}${name}`;

// The study and the trial that the page's address names; null if it names none.
function addressed(sections) {
  const name = /^#trial=(.+)$/.exec(location.hash)?.[1];
  for (const each of sections) {
    const trial = each.study.trials.find((one) => [one.name, `${each.study.name}:${one.name}`].includes(name));
    if (trial) return { view: each.view, name: trial.name };
  }
  return null;
}

// Opens the folds around a node.
function reveal(node) {
  for (let fold = node?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

// To open an address, and to go back to one, selects its trial and scrolls to it; without one, those shown first.
function followAddresses(sections, isReloaded) {
  const first = new Map(sections.map(({ view }) => [view, view.selected]));
  const follow = () => {
    const found = addressed(sections);
    if (!found && location.hash) return reveal(document.getElementById(location.hash.slice(1))); // a section of the page
    for (const { view } of sections) {
      const name = found?.view === view ? found.name : first.get(view);
      if (name === view.selected) continue; // it was clicked
      view.show(name);
      if (found?.view !== view) continue;
      reveal(view.panel);
      view.panel?.scrollIntoView();
    }
  };
  addEventListener("hashchange", follow);
  const found = addressed(sections);
  if (isReloaded) return;
  if (!found) return reveal(document.getElementById(location.hash.slice(1)));
  found.view.show(found.name);
  reveal(found.view.panel);
  found.view.panel?.scrollIntoView({ behavior: "instant" });
}
