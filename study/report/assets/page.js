// The page: one section per study, from the embedded data.

let page;

// The data of a long page are compressed.
async function embedded() {
  const { type, textContent } = document.getElementById("data");
  if (type === "application/json") return textContent;
  const packed = Uint8Array.from(atob(textContent), (each) => each.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// View state of a study: axes, hidden methods, the selected trial. The figures and tables listen for changes.
function viewOf(study, id) {
  const listeners = { drawn: [], selected: [] };
  const all = measures(study);
  const named = (name) => all.find((each) => each.name === name);
  const x = named(study.objectives[0]) ?? all[0];
  const second = [study.objectives[1], "ece", "nll", "accuracy"].find((name) => name && name !== x.name && named(name));
  return {
    id, measures: all, x, y: named(second) ?? all[1], hidden: new Set(), all: false, selected: study.answer?.trial ?? (study.trials.find((trial) => trial.front) ?? study.trials[0])?.name,
    // Of trials with equal predictions, the first one shown.
    shows(trial) {
      const first = trial.same_as && study.trials.find((each) => each.name === trial.same_as);
      return !this.hidden.has(trial.method) && !(first && !this.hidden.has(first.method));
    },
    on(what, listener) {
      listeners[what].push(listener);
    },
    tell(what) {
      for (const listener of listeners[what]) listener();
    },
    show(name) {
      this.selected = name;
      this.tell("selected");
    },
    // What a reader does: the address then names the trial.
    select(name) {
      this.show(name);
      location.hash = addressOf(page, study, name);
    },
  };
}

function section(study, place) {
  const id = `study-${place + 1}`;
  const view = viewOf(study, id);
  view.shows = view.shows.bind(view);
  const some = study.trials.length > 0;
  const sub = (part, title, content) => (content ? h("section", { id: `${id}-${part}`, "aria-label": title }, h("h3", {}, title), content) : null);
  const aside = study.trials.filter((trial) => trial.excluded).length;
  const parts = [
    study.confirmation && some && ["confirmation", "Test results", confirmationSection(study, view),
      `${plural(study.confirmation.rows.length, "model")}, as trained and after temperature; from the search to the test`],
    ["front", study.objectives.length > 1 ? "Front and reliability" : "Best trial and reliability", some
      ? [h("div", { class: "wide" }, frontFigure(page, study, view), reliabilityPanel(page, study, view))]
      : [h("p", {}, "No trial is complete yet. To continue the study, run ", h("code", {}, study.goes_on), ".")],
      some ? `any two of ${view.measures.length} measures; the reliability diagram of any trial` : ""],
    some && ["trials", "Trials", [trialTable(page, study, view)], `${countText(study.trials.length)} complete${aside ? `, ${countText(aside)} of them excluded` : ""}`],
    study.maps?.length > 0 && ["maps", "Four images", mapsSection(study), "what the model makes of their pixels"],
    study.calibrators && ["calibrators", "Other calibrators", calibratorsSection(study.calibrators), "vector and structured scaling of the model to take"],
    ["search", "Search", [
      document.getElementById(`${id}-drawings`),
      sub("noise", "Noise floor", some ? noiseSection(page, study, view) : null),
      sub("budgets", "Budgets", [h("p", {}, study.budget.join(" ")), methodTable(page, study)]),
      sub("failures", "Incomplete trials", [failureTable(study)]),
    ], "curves, searched values, noise floor, budgets, incomplete trials"],
    ["setup", "Setup", [h("dl", { class: "facts" }, study.facts.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)])),
      sub("reproduce", "Reproduce this study", reproduceSection(study))], "data, network, versions; how to reproduce the study"],
  ].filter(Boolean);
  const begins = opening(study, id);
  const made = h("article", { id, "aria-labelledby": `${id}-name` },
    h(page.studies.length > 1 ? "h2" : "h1", { id: `${id}-name` }, study.name),
    study.afterwards ? h("p", { class: "note" }, study.afterwards) : null,
    ...begins,
    study.stalled.length ? h("p", { class: "note stalled" }, withCode(study.stalled.join(" "))) : null,
    study.notes.map((note) => h("p", { class: "note" }, note)),
    // Without a first screen the front is the answer.
    parts.map(([part, title, content, line]) => h("details", { id: `${id}-${part}`, class: "fold printed", open: part === "front" && !begins.some((each) => each.id) },
      h("summary", {}, h("h3", {}, title), h("span", {}, line)), h("div", {}, content))));
  return { made, study, view };
}

// Of a study with masks: validation images, and what the model to take makes of their pixels.
function mapsSection(study) {
  return [
    h("p", {}, `Validation images as ${study.maps[0].trial} sees them: the two of the largest errors among the pixels that are measured, and ` +
      "two drawn by the seed. Pixels without a label are grey."),
    ...study.maps.map(({ source, alt, caption }) => h("figure", { class: "map" },
      h("img", { src: source, alt }), h("figcaption", { class: "small" }, caption))),
  ];
}

// Post-hoc calibrators for the model to take, each less the model as it is served.
function calibratorsSection({ said, rows }) {
  return [
    h("p", {}, withCode(said)),
    scrolled("Post-hoc calibrators", h("table", { class: "numbers" }, head(["calibrator", "NLL", "Brier score", "ECE", "classes changed"]),
      h("tbody", {}, rows.map(([name, ...cells]) => row(name, cells))))),
  ];
}

// Which model, how sure, and what next; without a model to take, what the study is and what it found.
function opening(study, id) {
  const made = document.getElementById(`${id}-first`);
  if (made) {
    const next = made.querySelector(".next");
    next?.append(copyButton(next.querySelector("code")));
    return [h("p", { class: "about" }, study.abstract[0]), made];
  }
  if (!study.answer) return [h("p", { class: "abstract" }, study.abstract.join(" "))];
  const [first, ...rest] = study.answer.sentences;
  const next = study.answer.next.filter(([command]) => !command.startsWith("calstudy report")); // this page
  return [
    h("p", { class: "about" }, study.abstract[0]),
    h("div", { class: "answer" },
      h("div", {}, h("p", { class: "abstract" }, first), rest.map((each) => h("p", {}, withCode(each))), explanation(study.answer.why)),
      next.length ? h("div", { class: "next" }, h("h4", {}, "Next"), commandList(next)) : null),
  ];
}

function explanation(parts) {
  if (!parts.length) return null;
  return h("details", { class: "why" }, h("summary", {}, "Why"), parts.map(({ heading, text }) => [h("h4", {}, heading), h("p", {}, withCode(text))]).flat());
}

const withCode = (text) => text.split("`").map((part, k) => (k % 2 ? h("code", {}, part) : part));

function reproduceSection(study) {
  const how = study.reproduce;
  return [
    commandList(how.commands),
    h("p", {}, "Data digest ", h("code", { class: "digest" }, how.data_digest), ". Created ",
      h("time", { datetime: study.created }, study.created.slice(0, 10)), " with ",
      Object.entries(how.versions).map(([name, found]) => `${name} ${found}`).join(", "), "."),
    Object.entries(how.trained_with).map(([what, count]) =>
      h("p", { class: "note" }, `${plural(count, "trial")} ${count === 1 ? "was" : "were"} trained with different versions: ${what}.`)),
    h("details", { class: "printed" }, h("summary", {}, "Full study.yaml"), h("pre", {}, h("code", {}, how.spec))),
  ];
}

function index() {
  return h("nav", { class: "index", "aria-label": "Studies" }, h("ol", {}, page.studies.map((study, place) =>
    h("li", {}, h("a", { href: `#study-${place + 1}` }, study.name), ` ${study.abstract[0]}`))));
}

function show() {
  const sections = page.studies.map(section);
  document.getElementById("head").append(
    h("p", { class: "kicker" }, page.every ? `calstudy report, written ${page.made}. It reloads every ${plural(page.every, "second")} while the study runs.` : "calstudy report"),
    ...(page.studies.length > 1 ? [h("h1", {}, `${page.studies.length} studies`), index()] : []),
    ...page.notes.map((note) => h("p", { class: "note" }, note)));
  document.getElementById("main").replaceChildren(...sections.map(({ made }) => made), glossarySection(), glossaryNote());
  document.getElementById("foot").append(
    h("p", {}, `Written by calstudy ${page.version} on ${page.made}. This file is self-contained and works offline.`));
  for (const { made, view } of sections) {
    for (const part of made.children) explain(part);
    view.tell("drawn");
    view.tell("selected");
  }
  return sections;
}

// While the study runs: load what was written since, and go on at the same place with the same trials selected.
function reloadLater(sections) {
  const KEY = `calstudy ${location.pathname}`;
  let storage = null;
  try {
    storage = sessionStorage;
  } catch { /* a browser may forbid it; then the page starts at its top */ }
  const kept = JSON.parse(storage?.getItem(KEY) ?? "null");
  storage?.removeItem(KEY);
  if (kept) {
    for (const id of kept.open) document.getElementById(id)?.setAttribute("open", "");
    sections.forEach(({ view }, place) => kept.selected[place] && view.show(kept.selected[place]));
    scrollTo({ top: kept.top, behavior: "instant" });
  }
  followAddresses(sections, kept !== null);
  if (!page.every) return;
  setTimeout(() => {
    storage?.setItem(KEY, JSON.stringify({
      top: scrollY, selected: sections.map(({ view }) => view.selected), open: [...document.querySelectorAll(".fold[open]")].map(({ id }) => id),
    }));
    location.reload();
  }, 1000 * page.every);
}

// Expand collapsed sections for printing.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details.printed:not([open])")];
  for (const each of folded) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of folded) each.open = false;
});

embedded().then((text) => {
  page = JSON.parse(text);
  reloadLater(show());
});
