// The page: a section for each study, from the data it holds.

const page = JSON.parse(document.getElementById("data").textContent);

// What is shown of a study: axes, hidden methods, the selected trial; those who draw it listen.
function viewOf(study, id) {
  const listeners = { drawn: [], selected: [] };
  const all = measures(study);
  const named = (name) => all.find((each) => each.name === name);
  const x = named(study.objectives[0]) ?? all[0];
  const second = [study.objectives[1], "ece", "nll", "accuracy"].find((name) => name && name !== x.name && named(name));
  return {
    id, measures: all, x, y: named(second) ?? all[1], hidden: new Set(), all: false, selected: study.knee,
    shows(trial) {
      return !this.hidden.has(trial.method);
    },
    on(what, listener) {
      listeners[what].push(listener);
    },
    tell(what) {
      for (const listener of listeners[what]) listener();
    },
    select(name) {
      this.selected = name;
      this.tell("selected");
    },
  };
}

function section(study, place) {
  const id = `study-${place + 1}`;
  const view = viewOf(study, id);
  view.shows = view.shows.bind(view);
  const parts = [
    ["front", "The front", study.trials.length
      ? [h("div", { class: "wide" }, frontFigure(page, study, view), reliabilityPanel(page, study, view))]
      : [h("p", {}, "No trial is complete yet, so there is nothing to draw: ", h("code", {}, `calstudy run ${study.name}`), " goes on.")]],
    ["trials", "The trials", study.trials.length ? [trialTable(page, study, view)] : null],
    ["budgets", "What each method was given", [h("p", {}, study.budget.join(" ")), methodTable(page, study)]],
    ["failures", "What did not complete", [failureTable(study)]],
    ["noise", "The noise floor", study.trials.length ? noiseSection(page, study, view) : null],
    ["confirmation", "From validation to test", study.trials.length ? confirmationSection(study, view) : null],
    ["reproduce", "How to do it again", reproduceSection(study)],
  ].filter(([, , content]) => content);
  const made = h("article", { id, "aria-labelledby": `${id}-name` },
    h(page.studies.length > 1 ? "h2" : "h1", { id: `${id}-name` }, study.name),
    h("p", { class: "abstract" }, study.abstract.join(" ")),
    study.notes.map((note) => h("p", { class: "note" }, note)),
    h("details", { class: "facts", open: true }, h("summary", {}, "What was studied"),
      h("dl", {}, study.facts.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]))),
    h("nav", { class: "parts", "aria-label": `parts of ${study.name}` },
      parts.map(([part, title]) => h("a", { href: `#${id}-${part}` }, title))),
    parts.map(([part, title, content]) =>
      h("section", { id: `${id}-${part}`, "aria-label": title }, h("h3", {}, title), content)));
  return { made, view };
}

function reproduceSection(study) {
  const how = study.reproduce;
  const wide = Math.max(...how.commands.map(([command]) => command.length));
  return [
    h("pre", { class: "commands" }, h("code", {}, how.commands.map(([command, why]) => `${command.padEnd(wide)}  # ${why}\n`))),
    h("p", {}, "Data digest ", h("code", { class: "digest" }, how.data_digest), ". Begun ",
      h("time", { datetime: study.created }, study.created.slice(0, 10)), " with ",
      Object.entries(how.versions).map(([name, found]) => `${name} ${found}`).join(", "), "."),
    Object.entries(how.trained_with).map(([what, count]) =>
      h("p", { class: "note" }, `${plural(count, "trial")} ${count === 1 ? "was" : "were"} trained with another version: ${what}.`)),
    h("details", { class: "printed" }, h("summary", {}, "study.yaml, whole"), h("pre", {}, h("code", {}, how.spec))),
  ];
}

function index() {
  return h("nav", { class: "index", "aria-label": "studies" }, h("ol", {}, page.studies.map((study, place) =>
    h("li", {}, h("a", { href: `#study-${place + 1}` }, study.name), ` ${study.abstract[0]}`))));
}

function show() {
  const sections = page.studies.map(section);
  document.getElementById("head").append(
    h("p", { class: "kicker" }, "calstudy report"),
    ...(page.studies.length > 1 ? [h("h1", {}, `${page.studies.length} studies`), index()] : []),
    ...page.notes.map((note) => h("p", { class: "note" }, note)));
  document.getElementById("main").replaceChildren(...sections.map(({ made }) => made));
  document.getElementById("foot").append(
    h("p", {}, `Made by calstudy ${page.version} on ${page.made}. This file asks nobody for anything: keep it, print it, send it.`));
  for (const { view } of sections) {
    view.tell("drawn");
    view.tell("selected");
  }
}

// On paper what is folded is opened.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details.printed:not([open])")];
  for (const each of folded) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of folded) each.open = false;
});

show();
