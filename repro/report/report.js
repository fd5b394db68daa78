"use strict";

/* -- what is embedded -------------------------------------------------------------------------------------------- */

const {curves: CURVES, axes: AXES, quantiles: T} = JSON.parse(document.getElementById("data").textContent);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

/* -- the filter: words that all must be there, and verdicts of which one must be ----------------------------------- */

const targets = all("article.target").map((article) => ({
  article,
  text: article.dataset.search.toLowerCase(),
  finding: (article.dataset.search + " " + article.querySelector(".finding").textContent).toLowerCase(),
  results: all("section.result", article).map((section) => ({
    section,
    row: document.querySelector(`.matrix [data-result="${section.id}"]`),
    claims: all("tr.claim", section).map((row) => ({
      row,
      cell: document.querySelector(`.matrix a[href="#${row.id}"]`),
      text: (row.textContent + " " + row.dataset.id + " scale " + section.id).toLowerCase(),
    })),
  })),
}));

function filter() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const verdicts = all(".chip[aria-pressed=true]").map((chip) => chip.dataset.verdict);
  let claims = 0, every = 0, shown = 0;
  for (const target of targets) {
    const found = (claim) => words.every((word) => claim.text.includes(word) || target.text.includes(word));
    // A target is shown whole if it is what was asked for, or if its finding alone speaks of that.
    const whole = words.every((word) => target.text.includes(word))
      || (words.every((word) => target.finding.includes(word)) && !target.results.some((result) => result.claims.some(found)));
    let any = !target.results.length && whole && !verdicts.length;
    for (const result of target.results) {
      let left = 0;
      for (const claim of result.claims) {
        const matches = (whole || found(claim)) && (!verdicts.length || verdicts.includes(claim.row.dataset.verdict));
        claim.row.hidden = !matches;
        claim.cell.classList.toggle("dim", !matches);
        left += matches;
      }
      result.section.hidden = result.row.hidden = !left;
      claims += left;
      every += result.claims.length;
      any = any || left > 0;
    }
    if (!target.results.length) document.querySelector(`.matrix [data-result="${target.article.id}"]`).hidden = !any;
    target.article.hidden = !any;
    shown += any;
  }
  for (const body of all(".matrix tbody")) body.hidden = all(".row", body).every((row) => row.hidden);
  document.getElementById("nothing").hidden = shown > 0;
  document.getElementById("matching").textContent = words.length || verdicts.length
    ? `${claims} of ${every} claims and checks, ${shown} of ${targets.length} targets` : "";
}

document.getElementById("filter").addEventListener("input", filter);
for (const chip of all(".chip")) {
  chip.addEventListener("click", () => {
    chip.setAttribute("aria-pressed", chip.getAttribute("aria-pressed") !== "true");
    filter();
  });
}

/* -- what a cell says of its claim --------------------------------------------------------------------------------- */

const tip = document.getElementById("tip");

function describe(cell) {
  const row = document.querySelector(cell.getAttribute("href"));
  const says = (selector) => (row.querySelector(selector).firstChild?.textContent ?? "").trim();
  const lines = [
    [`${says(".verdict span:last-child")}${row.querySelector(".check") ? " (a check)" : ""}: `, says(".statement")],
    ["ours: ", says(".ours")], ["the paper: ", says(".paper")], ["after Holm's correction: ", says(".holm")],
  ].filter(([, text]) => text);
  tip.replaceChildren(...lines.map(([begin, text], place) => {
    const line = document.createElement(place ? "span" : "b");
    line.textContent = begin + text;
    if (place) line.style.display = "block";
    return line;
  }));
  tip.hidden = false;
  const box = cell.getBoundingClientRect(), width = tip.offsetWidth;
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - width - 24)) + scrollX}px`;
  tip.style.top = `${box.bottom + 6 + scrollY}px`;
}

for (const event of ["mouseover", "focusin"]) {
  document.querySelector(".matrix").addEventListener(event, ({target}) => {
    if (target.matches("a.cell")) describe(target); else tip.hidden = true;
  });
}
for (const event of ["mouseleave", "focusout"]) {
  document.querySelector(".matrix").addEventListener(event, () => { tip.hidden = true; });
}

/* -- curves -------------------------------------------------------------------------------------------------------- */

const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f"];
/** The colours that algorithms have in the pictures. */
const OWN = {"SD-CFR": "#0072b2", "Deep CFR": "#d55e00", "D2CFR": "#009e73"};
const DASHES = ["solid", "dash", "dot", "dashdot"];
/** So many curves can be told apart with all their seeds and intervals. */
const FEW = 8;
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Where a seed's points stand on an axis, or null where that was not measured. */
function along(series, seed, axis) {
  return axis === "iteration" ? series.steps : series[axis] && series[axis][seed];
}

/** The mean over seeds at each point, and its 95% interval (Student's t) where there are two or more. */
function average(series, seeds, axis) {
  const points = [];
  for (let i = 0; i < series.steps.length; i++) {
    const there = seeds.filter((s) => series.values[s][i] !== null && along(series, s, axis)?.[i] != null);
    if (!there.length) continue;
    const values = there.map((s) => series.values[s][i]), middle = mean(values), n = values.length;
    const spread = n > 1 ? Math.sqrt(values.reduce((sum, v) => sum + (v - middle) ** 2, 0) / (n - 1) / n) * (T[n - 1] ?? 1.96) : 0;
    points.push({x: mean(there.map((s) => along(series, s, axis)[i])), y: middle, spread, n});
  }
  return points;
}

/** Of each series a colour and, where there are more series than colours, a dash. */
function looks(every) {
  const free = COLOURS.filter((colour) => !every.some((series) => OWN[series.label] === colour));
  let others = 0;
  return every.map((series) => {
    if (OWN[series.label]) return {colour: OWN[series.label], dash: "solid"};
    const place = others++;
    return {colour: free[place % free.length], dash: DASHES[Math.floor(place / free.length) % DASHES.length]};
  });
}

function tracesOf(series, {colour, dash}, state) {
  const seeds = series.seeds.map((_, s) => s).filter((s) => !state.without.has(series.seeds[s]) && along(series, s, state.axis));
  const points = average(series, seeds, state.axis), group = {legendgroup: series.label, name: series.label, type: "scatter", mode: "lines"};
  if (!points.length) return [];
  const sure = points.filter((p) => p.n > 1 && !(state.logY && p.y - p.spread <= 0));
  const traces = [];
  if (sure.length && state.detail) {
    const back = [...sure].reverse();
    traces.push({...group, uid: `${series.label} interval`, x: [...sure, ...back].map((p) => p.x), fill: "toself", fillcolor: colour, opacity: .15,
      y: [...sure.map((p) => p.y + p.spread), ...back.map((p) => p.y - p.spread)], line: {width: 0}, showlegend: false, hoverinfo: "skip"});
  }
  if (seeds.length > 1 && state.detail) {
    for (const s of seeds) {
      traces.push({...group, uid: `${series.label} ${series.seeds[s]}`, x: along(series, s, state.axis), y: series.values[s], line: {color: colour, width: .8, dash}, opacity: .45,
        showlegend: false, hovertemplate: `${series.label}, seed ${series.seeds[s]}: %{y:.4g}<extra></extra>`});
    }
  }
  const marks = points.length < 30 ? {mode: "lines+markers", marker: {size: 5}} : {};
  traces.push({...group, ...marks, uid: series.label, x: points.map((p) => p.x), y: points.map((p) => p.y), line: {color: colour, width: 2.4, dash},
    customdata: points.map((p) => p.n > 1 ? `${(p.y - p.spread).toPrecision(3)}, ${(p.y + p.spread).toPrecision(3)}` : "one run"),
    hovertemplate: `<b>${series.label}</b>: %{y:.4g} [%{customdata}]<br>%{x:,.4~g} ${AXES[state.axis]}<extra></extra>`});
  return traces;
}

function draw(box, metrics, state) {
  const metric = metrics[state.metric], narrow = box.clientWidth < 700;
  const look = looks(metric.series);
  const traces = metric.series.flatMap((series, place) => tracesOf(series, look[place], state));
  const many = metric.series.length > 18, beside = !narrow && !many;
  const legend = beside ? {x: 1.01, y: 1, tracegroupgap: 0} : {orientation: "h", y: -.22};
  Plotly.react(box.querySelector(".plot"), traces, {
    uirevision: metric.metric, height: Math.max(400, beside ? 72 + 20 * metric.series.length : 0) + (narrow ? 60 : 0) + (many ? 160 : 0), showlegend: true,
    margin: {l: 66, r: 12, t: 16, b: 48}, font: {size: 12}, hovermode: "closest",
    legend: {...legend, title: {text: ""}, font: {size: 11}},
    xaxis: {title: {text: AXES[state.axis]}, type: state.logX ? "log" : "linear", gridcolor: "#e8ebee", zeroline: false, exponentformat: "SI"},
    yaxis: {title: {text: metric.label}, type: state.logY ? "log" : "linear", gridcolor: "#e8ebee", zeroline: !state.logY, exponentformat: "SI"},
  }, {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]});
}

/** How a metric is first shown: levels that fall by orders of magnitude on logarithms, winnings as they are. */
function opening(metrics, number) {
  const metric = metrics[number], values = metric.series.flatMap((s) => s.values.flat()).filter((v) => v !== null);
  const steps = metric.series.flatMap((s) => s.steps), low = Math.min(...values);
  return {
    metric: number, axis: "iteration", without: new Set(), detail: metric.series.length <= FEW,
    logY: low > 0 && metric.metric === "exploitability",
    logX: metric.metric === "exploitability" && Math.min(...steps) > 0 && Math.max(...steps) / Math.min(...steps) > 30,
  };
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function controls(box, metrics, state) {
  const again = () => { draw(box, metrics, state); };
  const bar = box.querySelector(".controls"), metric = metrics[state.metric];
  const choice = element("select", {className: "metric", ariaLabel: "what is shown", onchange() {
    Object.assign(state, opening(metrics, Number(this.value)));
    controls(box, metrics, state);
    again();
  }}, ...metrics.map((m, value) => element("option", {value, selected: value === state.metric}, m.label)));
  const axes = Object.entries(AXES).filter(([axis]) => axis === "iteration" || metric.series.some((s) => s[axis]));
  const by = element("fieldset", {className: "axis"}, element("legend", {}, "by"), ...axes.map(([axis, name]) => element("label", {},
    element("input", {type: "radio", name: `axis-${box.id}`, value: axis, checked: axis === state.axis, onchange() { state.axis = axis; again(); }}), ` ${name}`)));
  const logs = element("fieldset", {}, ...[["logX", "log x"], ["logY", "log y"], ["detail", "seeds and intervals"]].map(([key, name]) => element("label", {},
    element("input", {type: "checkbox", name: key, checked: state[key], onchange() { state[key] = this.checked; again(); }}), ` ${name}`)));
  const seeds = [...new Set(metric.series.flatMap((s) => s.seeds))].sort((a, b) => a - b);
  const choose = element("fieldset", {className: "seeds"}, element("legend", {}, "seeds"), ...seeds.map((seed) => {
    const button = element("button", {type: "button", className: "seed", title: "hide or show this seed", onclick() {
      if (!state.without.delete(seed)) state.without.add(seed);
      button.setAttribute("aria-pressed", !state.without.has(seed));
      again();
    }}, String(seed));
    button.setAttribute("aria-pressed", "true");
    return button;
  }));
  bar.replaceChildren(choice, by, logs, ...(seeds.length > 1 ? [choose] : []));
}

const watcher = new IntersectionObserver((entries) => {
  for (const {target: box} of entries.filter((entry) => entry.isIntersecting)) {
    watcher.unobserve(box);
    const metrics = CURVES[box.dataset.result], state = opening(metrics, 0);
    controls(box, metrics, state);
    draw(box, metrics, state);
  }
}, {rootMargin: "400px"});
for (const box of all(".curves")) watcher.observe(box);

/* -- paper --------------------------------------------------------------------------------------------------------- */

addEventListener("beforeprint", () => {
  for (const details of all("details")) details.open = true;
  for (const image of all("img[loading]")) image.loading = "eager";
});
