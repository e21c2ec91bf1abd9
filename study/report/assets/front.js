// The Pareto front: every trial by two measures, the line through the non-dominated ones, and the trial pointed at.

const REACH = 6; // an axis extends this multiple of the range covered by half the front or a quarter of all trials

// The trials not dominated on the two axes, best x first; empty if an axis has no better direction.
function frontOf(trials, x, y) {
  if (!x.better || !y.better) return [];
  const cost = (measure, trial) => (measure.better === "higher" ? -measure.of(trial) : measure.of(trial));
  const ordered = [...trials].sort((a, b) => cost(x, a) - cost(x, b) || cost(y, a) - cost(y, b));
  let best = Infinity;
  let last = null;
  return ordered.filter((trial) => {
    const equal = last && cost(x, trial) === cost(x, last) && cost(y, trial) === cost(y, last);
    if (!equal && cost(y, trial) >= best) return false;
    best = cost(y, trial);
    last = trial;
    return true;
  });
}

// The range of an axis. Unless `all` is set it leaves out trials so much worse than most of the front that they would
// squash it. (A trial at chance accuracy is often perfectly calibrated, and so on the front.) `ends`: for each trial on
// the front, its value and the ends of its interval. `margin`: to either side, a fraction of the range.
function extent(values, ofFront, better, all, ends, always, margin = 0.06) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (!all && better && ofFront.length) {
    const sign = better === "higher" ? -1 : 1;
    const costs = values.map((value) => sign * value);
    const best = Math.min(...costs);
    const quantile = (gaps, share) => gaps.sort((a, b) => a - b)[Math.floor((gaps.length - 1) * share)];
    const worse = costs.map((cost) => cost - best).filter((gap) => gap > 0);
    if (worse.length) {
      const reach = REACH * Math.max(quantile(ofFront.map((value) => sign * value - best), 0.5), quantile(worse, 0.25));
      const kept = values.filter((value, k) => costs[k] - best <= reach);
      [low, high] = [Math.min(...kept, ...always), Math.max(...kept, ...always)];
    }
  }
  for (const end of ends.filter(([value]) => value >= low && value <= high).flat()) {
    [low, high] = [Math.min(low, end), Math.max(high, end)];
  }
  const more = high > low ? margin * (high - low) : 0.01 * Math.max(1, Math.abs(high));
  return [low - more, high + more];
}

function frontFigure(page, study, view) {
  const plot = h("div", { class: "plot" });
  const tip = h("div", { class: "tip", role: "status", hidden: true });
  const caption = h("figcaption");
  let drawn = null;

  function draw() {
    const focused = plot.contains(document.activeElement) ? document.activeElement.dataset?.trial : null;
    hide();
    drawn = drawFront(page, study, view, plot.clientWidth || 640);
    plot.replaceChildren(drawn.svg, tip);
    caption.replaceChildren(...frontCaption(study, view, drawn));
    explain(caption);
    mark(view.selected);
    if (focused) drawn.points.get(focused)?.node.focus();
  }

  function hide() {
    tip.hidden = true;
    drawn?.cursor.replaceChildren();
  }

  function show(name) {
    const point = drawn.points.get(name);
    if (!point) return;
    tip.replaceChildren(...tipOf(study, view, point.trial));
    tip.hidden = false;
    const scaled = plot.clientWidth / drawn.width; // in print and during a resize the drawing is scaled
    const left = Math.min(Math.max(0, point.x * scaled + 14), plot.clientWidth - tip.offsetWidth);
    const below = point.y * scaled + 16;
    const above = point.y * scaled - 14 - tip.offsetHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${above >= 0 ? above : below}px`;
    drawn.cursor.replaceChildren(
      ...whiskers(drawn, view, point.trial, "whisker active"),
      s("circle", { class: "cursor", cx: point.x, cy: point.y, r: 9 }),
    );
  }

  function mark(name) {
    for (const { node, trial } of drawn.points.values()) node.setAttribute("aria-selected", String(trial.name === name));
    const point = drawn.points.get(name);
    drawn.ring.replaceChildren(...(point ? [s("circle", { class: "ring", cx: point.x, cy: point.y, r: 11 })] : []));
  }

  function nearest(event) {
    const box = drawn.svg.getBoundingClientRect();
    const scaled = box.width / drawn.width;
    let [found, least] = [null, 22];
    for (const [name, point] of drawn.points) {
      const distance = Math.hypot(event.clientX - box.left - point.x * scaled, event.clientY - box.top - point.y * scaled);
      if (distance < least) [found, least] = [name, distance];
    }
    return found;
  }

  plot.addEventListener("pointermove", (event) => {
    const name = nearest(event);
    if (name) show(name);
    else hide();
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("click", (event) => {
    const name = nearest(event);
    if (name) view.select(name);
  });
  plot.addEventListener("focusin", (event) => event.target.dataset?.trial && show(event.target.dataset.trial));
  plot.addEventListener("focusout", hide);
  plot.addEventListener("keydown", (event) => {
    const name = event.target.dataset?.trial;
    if (!name) return;
    const go = { ArrowRight: ["byX", 1], ArrowLeft: ["byX", -1], ArrowUp: ["byY", 1], ArrowDown: ["byY", -1] }[event.key];
    if (go) focusPoint(drawn, drawn[go[0]][drawn[go[0]].indexOf(name) + go[1]]);
    else if (event.key === "Home") focusPoint(drawn, drawn.byX[0]);
    else if (event.key === "End") focusPoint(drawn, drawn.byX.at(-1));
    else if (event.key === "Enter" || event.key === " ") view.select(name);
    else if (event.key === "Escape") hide();
    else return;
    event.preventDefault();
  });

  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(plot.clientWidth - width) < 2 || matchMedia("print").matches) return;
    width = plot.clientWidth;
    draw();
  }).observe(plot);
  view.on("drawn", draw);
  view.on("selected", () => mark(view.selected));
  return h("figure", { class: "front" }, axisControls(study, view), plot, methodKey(page, study, view), caption);
}

// One point at a time is in the tab order; the arrow keys move it.
function focusPoint(drawn, name) {
  const point = drawn.points.get(name);
  if (!point) return;
  for (const { node } of drawn.points.values()) node.setAttribute("tabindex", "-1");
  point.node.setAttribute("tabindex", "0");
  point.node.focus();
}

function drawFront(page, study, view, width) {
  const { x, y } = view;
  const height = Math.round(Math.min(Math.max(0.66 * width, 290), 520));
  const box = { left: 58, right: width - 14, top: 34, bottom: height - 50 };
  const known = study.trials.filter((trial) => view.shows(trial) && [x, y].every((each) => Number.isFinite(each.of(trial))));
  const counted = known.filter((trial) => !trial.excluded);
  const front = frontOf(counted, x, y);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label":
    `${plural(known.length, "trial")} by ${x.label} and ${y.label}; move with the arrow keys, Enter shows the reliability diagram` });
  const drawn = { svg, width, height, box, front, outside: 0, aside: known.length - counted.length, lacking: study.trials.filter(view.shows).length - known.length,
    points: new Map(), beyond: new Set(), byX: [], byY: [], cursor: s("g"), ring: s("g") };
  if (!known.length) {
    svg.append(s("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "no complete trial to show"));
    return drawn;
  }
  const spanned = counted.length ? counted : known;
  const taken = counted.find((trial) => trial.name === study.answer?.trial); // it never lies outside the axes
  const reach = (measure) => extent(spanned.map(measure.of), front.map(measure.of), measure.better, view.all,
    front.map((trial) => [measure.of(trial), ...(measure.interval(trial) ?? [])]), taken ? [measure.of(taken)] : []);
  const [[xLow, xHigh], [yLow, yHigh]] = [reach(x), reach(y)];
  drawn.toX = scale(xLow, xHigh, box.left, box.right);
  drawn.toY = scale(yLow, yHigh, box.bottom, box.top);
  const inside = known.filter((t) => x.of(t) >= xLow && x.of(t) <= xHigh && y.of(t) >= yLow && y.of(t) <= yHigh);
  drawn.outside = known.length - inside.length;

  const clip = `clip-${view.id}`;
  const marks = s("g", { role: "listbox", "aria-label": "trials" });
  const bars = s("g", { "clip-path": `url(#${clip})` });
  const cross = noiseCross(study, view, drawn);
  drawn.noise = cross !== null;
  svg.append(
    s("clipPath", { id: clip },
      s("rect", { x: box.left, y: box.top - 8, width: box.right - box.left + 8, height: box.bottom - box.top + 16 })),
    ...axes(drawn, view, ticks(xLow, xHigh, Math.max(3, width / 110)), ticks(yLow, yHigh, height / 75)),
    s("g", { "clip-path": `url(#${clip})` }, cross),
    bars, s("g", { "clip-path": `url(#${clip})` }, frontLine(drawn, front, view)), drawn.ring, marks, drawn.cursor);
  drawn.cursor.setAttribute("clip-path", `url(#${clip})`);
  if (taken) svg.append(s("text", { class: "take", x: drawn.toX(x.of(taken)) + 14, y: drawn.toY(y.of(taken)) + 18 }, TAKE));

  const onFront = new Set(front);
  const ordered = [...inside].sort((a, b) => onFront.has(a) - onFront.has(b)); // front last, on top
  for (const trial of ordered) {
    const [left, top] = [drawn.toX(x.of(trial)), drawn.toY(y.of(trial))];
    const best = onFront.has(trial);
    if (best) bars.append(...whiskers(drawn, view, trial, "whisker"));
    const node = s("path", { class: best ? "point best" : trial.excluded ? "point aside" : "point", d: markOf(page, trial.method, best ? 6 : 4.5),
      transform: `translate(${left.toFixed(1)},${top.toFixed(1)})`, fill: colourOf(page, trial.method),
      role: "option", tabindex: "-1", "data-trial": trial.name, "aria-label":
        `${trial.title}: ${x.label} ${valueText(x, trial)}, ${y.label} ${valueText(y, trial)}${best ? ", on the line" : ""}` });
    marks.append(node);
    drawn.points.set(trial.name, { node, trial, x: left, y: top });
  }
  for (const trial of known.filter((each) => !inside.includes(each))) {
    const node = beyondMark(page, drawn, view, trial, onFront.has(trial));
    marks.append(node.mark);
    drawn.points.set(trial.name, { node: node.mark, trial, x: node.x, y: node.y });
    drawn.beyond.add(trial.name);
  }
  const order = (first, second) =>
    [...inside].sort((a, b) => first.of(a) - first.of(b) || second.of(a) - second.of(b)).map((trial) => trial.name);
  drawn.byX = order(x, y);
  drawn.byY = order(y, x);
  (drawn.points.get(view.selected) ?? drawn.points.get(drawn.byX[0]))?.node.setAttribute("tabindex", "0");
  return drawn;
}

// A trial outside the axes: an open triangle at their edge, pointing to where it lies.
function beyondMark(page, drawn, view, trial, best) {
  const { box } = drawn;
  const [left, top] = [drawn.toX(view.x.of(trial)), drawn.toY(view.y.of(trial))];
  const x = Math.min(Math.max(left, box.left), box.right);
  const y = Math.min(Math.max(top, box.top), box.bottom);
  const turned = left !== x ? (left < x ? -90 : 90) : top < y ? 0 : 180;
  const mark = s("path", { class: best ? "beyond best" : "beyond", d: "M0,-5L5,4H-5Z",
    transform: `translate(${x.toFixed(1)},${y.toFixed(1)}) rotate(${turned})`, stroke: colourOf(page, trial.method), fill: "none",
    role: "option", tabindex: "-1", "data-trial": trial.name, "aria-label":
      `${trial.title}, outside the axes: ${view.x.label} ${valueText(view.x, trial)}, ${view.y.label} ${valueText(view.y, trial)}` });
  return { mark, x, y };
}

function axes(drawn, view, xTicks, yTicks) {
  const { box, toX, toY, width } = drawn;
  const [xText, yText] = [tickText(xTicks), tickText(yTicks)];
  return [
    s("g", { class: "grid", "aria-hidden": "true" },
      xTicks.map((tick) => s("line", { x1: toX(tick), x2: toX(tick), y1: box.top, y2: box.bottom })),
      yTicks.map((tick) => s("line", { x1: box.left, x2: box.right, y1: toY(tick), y2: toY(tick) }))),
    s("g", { class: "ticks", "aria-hidden": "true" },
      xTicks.map((tick) => s("text", { x: toX(tick), y: box.bottom + 18, "text-anchor": "middle" }, xText(tick))),
      yTicks.map((tick) => s("text", { x: box.left - 8, y: toY(tick) + 4, "text-anchor": "end" }, yText(tick)))),
    s("text", { class: "axis", x: 2, y: 16 }, axisText(view.y)),
    s("text", { class: "axis", x: width - 14, y: box.bottom + 40, "text-anchor": "end" }, axisText(view.x)),
  ];
}

// Neighbours meet in the corner that is as bad as either: points behind the line are dominated.
function frontLine(drawn, front, view) {
  const places = front.map((trial) => [drawn.toX(view.x.of(trial)), drawn.toY(view.y.of(trial))]);
  const path = places.map(([x, y], k) => (k ? `H${x.toFixed(1)}V${y.toFixed(1)}` : `M${x.toFixed(1)},${y.toFixed(1)}`)).join("");
  return s("path", { class: "line", d: path, "aria-hidden": "true" });
}

function whiskers(drawn, view, trial, name) {
  const [x, y] = [drawn.toX(view.x.of(trial)), drawn.toY(view.y.of(trial))];
  const [wide, high] = [view.x.interval(trial), view.y.interval(trial)];
  return [
    wide && s("line", { class: name, x1: drawn.toX(wide[0]), x2: drawn.toX(wide[1]), y1: y, y2: y }),
    high && s("line", { class: name, x1: x, x2: x, y1: drawn.toY(high[0]), y2: drawn.toY(high[1]) }),
  ].filter(Boolean);
}

// One standard deviation over fresh seeds to either side, drawn in the worst corner.
function noiseCross(study, view, drawn) {
  const row = noiseRow(study);
  const spread = (measure) => (row && measure.place !== null ? row.spread[measure.place]?.[1] : null);
  const [wide, high] = [spread(view.x), spread(view.y)];
  if (!wide && !high) return null;
  const { box } = drawn;
  const half = [Math.abs(drawn.toX(wide ?? 0) - drawn.toX(0)), Math.abs(drawn.toY(high ?? 0) - drawn.toY(0))];
  if (half[0] > (box.right - box.left) / 2 || half[1] > (box.bottom - box.top) / 2) return null;
  const x = view.x.better === "higher" ? box.left + half[0] + 10 : box.right - half[0] - 10;
  const y = view.y.better === "higher" ? box.bottom - half[1] - 10 : box.top + half[1] + 10;
  return s("g", { class: "noise" },
    s("line", { x1: x - half[0], x2: x + half[0], y1: y, y2: y }),
    s("line", { x1: x, x2: x, y1: y - half[1], y2: y + half[1] }));
}

// Seed noise is taken from the method with the most repeated trials.
const noiseRow = (study) => study.noise.reduce((most, row) => (!most || row.trials > most.trials ? row : most), null);

function tipOf(study, view, trial) {
  const method = study.methods[trial.method];
  return [
    h("strong", {}, trial.title), method.name === method.label ? "" : ` ${method.name}`,
    h("dl", {},
      [view.x, view.y].flatMap((measure) => [h("dt", {}, measure.label), h("dd", {}, valueText(measure, trial))]),
      trial.share === undefined ? [] : [h("dt", {}, "on the Pareto front in"), h("dd", {}, `${shareText(trial.share)} of resamples`)],
      Object.entries(trial.params).flatMap(([path, value]) => [h("dt", {}, path), h("dd", {}, settingText(value))])),
    trial.front ? h("em", {}, "on the study's Pareto front") : "",
    trial.excluded ? h("em", {}, `excluded: ${trial.excluded}`) : "",
  ];
}

function frontCaption(study, view, drawn) {
  const sentences = [
    h("b", {}, "All complete trials, measured on the validation split. "),
    drawn.front.length === 1 ? "One of the trials shown is not dominated on these two axes. " :
      `The line joins the ${plural(drawn.front.length, "trial")} shown that no other trial dominates on these two axes. `,
  ];
  const searched = new Set(study.objectives);
  if (searched.size > 2 || ![view.x.name, view.y.name].every((name) => searched.has(name))) {
    const optimized = study.afterwards ? "The objectives given are" : "The study optimized";
    sentences.push(`${optimized} ${study.objectives.join(", ")}; the table marks the Pareto front of these objectives. `);
  }
  if (study.resamples) {
    sentences.push(`Whiskers: ${study.whiskers} from a paired bootstrap (${countText(study.resamples)} resamples of the same ` +
      `${study.resampled} of the validation split). Point at any trial to see its intervals; metrics that are not ` +
      "objectives have intervals only for trials on the study's Pareto front. ");
    if (!hasFloors(study) && [view.x, view.y].some((each) => study.trials.some(each.floor))) sentences.push(`${study.floor_note} `);
    const without = [view.x, view.y].filter((each) => each.place !== null && !each.resampled).map((each) => each.label);
    if (without.length) sentences.push(`No intervals of ${without.join(" and ")}: calstudy does not resample ${without.length > 1 ? "them" : "it"}. `);
  } else if (study.refused) {
    sentences.push("No intervals: the note at the top says why. ");
  } else {
    sentences.push("No intervals: add them with ", h("code", {}, `calstudy report ${study.name} --bootstrap 1000`), ". ");
  }
  const row = noiseRow(study);
  if (drawn.noise) sentences.push(`Grey cross: one standard deviation over ${row.trials} fresh seeds of ${row.label}. `);
  if (drawn.aside) sentences.push(`Fainter: ${plural(drawn.aside, "trial")} excluded, which the line leaves out. `);
  const joined = drawn.front.filter((trial) => drawn.beyond.has(trial.name)).length;
  if (drawn.outside) {
    sentences.push(`${plural(drawn.outside, "trial")} ${drawn.outside === 1 ? "lies" : "lie"} outside the axes` +
      `${joined ? `, ${countText(joined)} of them on the line` : ""}: ${drawn.outside === 1 ? "an open triangle" : "open triangles"} at the edge. `);
  }
  if (drawn.lacking) sentences.push(`${plural(drawn.lacking, "trial")} without these values ${drawn.lacking === 1 ? "is" : "are"} not shown. `);
  return sentences;
}

// ---- controls

function axisControls(study, view) {
  const group = (label, list) => h("optgroup", { label }, list.map((each) => h("option", { value: each.name }, each.label)));
  const select = (side, label) => {
    const all = view.measures;
    const node = h("select", { name: side, change: (event) => {
      view[side] = all.find((each) => each.name === event.target.value);
      view.tell("drawn");
    } },
      group("Validation", all.filter((each) => each.place !== null && !each.name.startsWith("ts_"))),
      group("Validation, after temperature scaling", all.filter((each) => each.name.startsWith("ts_"))),
      group("Cost", all.filter((each) => each.place === null)));
    node.value = view[side].name;
    return h("label", {}, h("span", {}, label), node);
  };
  const all = h("input", { type: "checkbox", name: "all", change: (event) => {
    view.all = event.target.checked;
    view.tell("drawn");
  } });
  return h("div", { class: "controls" }, select("y", "Vertical axis"), select("x", "Horizontal axis"),
    h("label", { class: "check" }, all, h("span", {}, "include outliers")));
}

// Legend, and selection of the methods shown.
function methodKey(page, study, view) {
  const boxes = study.methods.map((method, place) => h("input", { type: "checkbox", checked: true, name: method.label,
    change: (event) => {
      if (event.target.checked) view.hidden.delete(place);
      else view.hidden.add(place);
      view.tell("drawn");
    } }));
  const set = (shown) => () => {
    boxes.forEach((box, place) => {
      box.checked = shown;
      if (shown) view.hidden.delete(place);
      else view.hidden.add(place);
    });
    view.tell("drawn");
  };
  return h("fieldset", { class: "key" }, h("legend", {}, "Methods"),
    study.methods.map((method, place) =>
      h("label", {}, boxes[place], glyph(page, place), h("span", {}, method.label),
        h("small", {}, countText(method.states.complete)))),
    h("span", { class: "choose" },
      h("button", { type: "button", click: set(true) }, "all"), h("button", { type: "button", click: set(false) }, "none")));
}
