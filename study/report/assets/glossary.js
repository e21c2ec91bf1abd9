// What the page's words mean: the one place for it. Shown on hover and focus, and listed at the end, also on paper.

const GLOSSARY = [ // id, name, pattern, meaning
  ["trial", "trial", /trials?/, "One training of one network, by one method with one setting of its searched values."],
  ["objective", "objective", /objectives?/, "A metric that the search optimizes. With two or more, there is a Pareto front instead of one best trial."],
  ["accuracy", "accuracy", /accuracy/, "The fraction of samples whose most probable class is the true one."],
  ["confidence", "confidence", /confidences?/, "The probability that a model gives to the class it predicts."],
  ["nll", "NLL", /NLL/, "Negative log-likelihood, or log loss: the mean of −ln of the probability given to the true class, in nats. It judges the whole prediction, accuracy and calibration together."],
  ["brier", "Brier score", /Brier score|Brier/, "The mean squared distance between the predicted probabilities and the true class (1 for it, 0 for the others). From 0 to 2; like NLL, it judges accuracy and calibration together."],
  ["ece", "ECE", /ECE/, "Expected calibration error: samples are grouped into bins of equal width by confidence; ECE is the mean gap between a bin's accuracy and its mean confidence, weighted by samples. Few samples make it look larger than it is."],
  ["adaptive", "adaptive ECE", /adaptive ECE/, "ECE with bins that hold equally many samples instead of bins of equal width."],
  ["classwise", "classwise ECE", /classwise ECE/, "ECE of the probability of each class in turn, averaged over the classes. ECE itself looks only at the predicted class."],
  ["mce", "MCE", /MCE/, "Maximum calibration error: the largest gap of any bin. It rests on few samples and is noisy."],
  ["l2", "debiased L2 error", /debiased L2 error/, "The root mean square of the gaps, less what chance alone adds to them."],
  ["temperature", "temperature", /temperature scaling|temperature/, "A number that divides all logits before the softmax. Above 1 it lowers the confidences, below 1 it raises them; it never changes the predicted class. It is fitted by NLL on validation."],
  ["trained", "as trained", /as trained/, "The network's own probabilities, before any temperature."],
  ["reliability", "reliability diagram", /reliability diagrams?|reliability/, "Accuracy against confidence, bin by bin. Where a model is calibrated, the two agree."],
  ["front", "Pareto front", /Pareto front/, "The trials that no other trial beats: none is at least as good in every objective and better in one."],
  ["aside", "excluded", /excluded/, "A complete trial that does not count: it guesses (its accuracy is not significantly above that of always predicting the most frequent class) or violates a constraint of the study. It is on no front and never selected."],
  ["served", "as deployed", /as deployed/, "As the registered model gives it: with its temperature, or as trained."],
  ["hypervolume", "hypervolume", /hypervolume/, "The volume of the objective space that the Pareto front dominates, up to a reference point: the worst of the methods' defaults that count. It grows when the front improves."],
  ["share", "share", /share/, "The fraction of bootstrap resamples of the validation split in which the trial is on the Pareto front: how firmly it belongs there."],
  ["interval", "interval", /intervals?/, "The range in which the metric would plausibly lie on infinitely many samples of this kind. It covers the luck of the samples, not that of the seed."],
  ["seed", "seed", /fresh seeds|seeds?/, "The number that fixes a training's random choices: first weights, order of the data, augmentation. Fresh seeds show how much of a result was luck."],
  ["validation", "validation", /validation/, "The samples the search measures trials on and selects by. The best of many trials looks better on them than it is."],
  ["test", "test", /test split|test/, "Samples kept sealed until calstudy confirm measures retrained trials on them. Nothing is selected by them."],
  ["candidate", "candidate", /candidates?/, "A trial that the search found and a confirmation retrains with fresh seeds."],
  ["default", "default", /published defaults?|defaults?/, "A method's published or recommended setting. It is tried first, and retrained in a confirmation for comparison."],
  ["baseline", "baseline", /baseline/, "Cross-entropy, the usual loss, with the study's own settings: what every other method has to beat."],
  ["shrinkage", "shrinkage", /shrinkage/, "How much better a trial scored when the search selected it than it scores on test. Positive: it looked better than it is."],
  ["floor", "floor", /floors?/, "What a perfectly calibrated model with these confidences would measure on as many samples: mean and range over labels drawn from its own probabilities. Noise alone gives that much. It is not subtracted: a miscalibrated model's error contains less of it."],
  ["noise", "noise floor", /noise floor/, "The spread over fresh seeds of a method with nothing to search. Smaller differences may be due to the seed."],
  ["importance", "importance", /importances?/, "How much a searched value alone separates the best quarter of the trials from the rest. A method's importances sum to 1 even if nothing matters."],
];
// Longer names first: `adaptive ECE` before `ECE`.
const TERMS = [...GLOSSARY].sort((a, b) => b[1].length - a[1].length);
const ANY_TERM = new RegExp(TERMS.map(([, , pattern]) => `\\b(${pattern.source})\\b`).join("|"), "i");
const EXPLAINED = "p, figcaption, dt, thead th, legend";
const NOT_EXPLAINED = "small, code, pre, a, button, select, label, svg, .term, .trial, .glossary";

// Mark the first place of each term under `root`. Only the article's first is a tab stop: the list has them all.
function explain(root) {
  const seen = new Set([...root.querySelectorAll(".term")].map((each) => each.dataset.term));
  const article = root.closest("article") ?? root;
  const stops = new Set([...article.querySelectorAll(".term[tabindex]")].map((each) => each.dataset.term));
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    if (!node.parentElement.closest(EXPLAINED) || node.parentElement.closest(NOT_EXPLAINED)) continue;
    const found = ANY_TERM.exec(node.data);
    if (!found) continue;
    const [id] = TERMS[found.slice(1).findIndex(Boolean)];
    const rest = node.splitText(found.index);
    rest.splitText(found[0].length);
    if (!seen.has(id)) {
      seen.add(id);
      const mark = h("span", { class: "term", "data-term": id, "aria-describedby": `term-${id}`, tabindex: stops.has(id) ? null : "0" }, found[0]);
      stops.add(id);
      rest.replaceWith(mark);
      walk.currentNode = mark.firstChild;
    } else {
      walk.currentNode = rest;
    }
  }
}

function glossarySection() {
  return h("details", { class: "printed glossary" }, h("summary", {}, "Glossary"),
    h("dl", {}, [...GLOSSARY].sort((a, b) => a[1].localeCompare(b[1])).flatMap(([id, name, , meaning]) =>
      [h("dt", {}, name), h("dd", { id: `term-${id}` }, meaning)])));
}

// One note for all terms. It stays while the pointer is on it; Escape hides it.
function glossaryNote() {
  const note = h("div", { class: "meaning", role: "tooltip", popover: "manual" });
  let [shown, leaving] = [null, null];
  const hide = () => {
    if (shown) note.hidePopover();
    shown = null;
  };
  const show = (mark) => {
    clearTimeout(leaving);
    const [, name, , meaning] = GLOSSARY.find(([id]) => id === mark.dataset.term);
    note.replaceChildren(h("strong", {}, name), ` ${meaning}`);
    if (!shown) note.showPopover();
    shown = mark;
    place();
  };
  const place = () => {
    if (!shown) return;
    const [at, box] = [shown.getBoundingClientRect(), note.getBoundingClientRect()];
    const under = at.bottom + 6 + box.height <= innerHeight;
    note.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - box.width - 8))}px`;
    note.style.top = `${under ? at.bottom + 6 : at.top - 6 - box.height}px`;
  };
  const markOfEvent = (event) => event.target.closest?.("[data-term]");
  for (const kind of ["pointerover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const mark = markOfEvent(event);
      if (mark) show(mark);
      else if (event.target === note || note.contains(event.target)) clearTimeout(leaving);
    });
  }
  document.addEventListener("pointerout", (event) => {
    if (markOfEvent(event) || note.contains(event.target)) leaving = setTimeout(hide, 150);
  });
  document.addEventListener("focusout", (event) => markOfEvent(event) && hide());
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("scroll", place, { passive: true, capture: true }); // focus may scroll the word into view
  return note;
}
