"use strict";
const facts = JSON.parse(document.getElementById("facts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const NUMBERS = ["error", "zeros", "C_C", "C_S", "C_R", "C_M"];
const sorted = { key: null, down: true };

const byId = (id) => document.getElementById(id);

function theme() {
  const style = getComputedStyle(document.body);
  const ink = style.getPropertyValue("--ink").trim();
  const line = style.getPropertyValue("--line").trim();
  const text = { labelColor: ink, titleColor: ink };
  return {
    background: null,
    font: "system-ui, sans-serif",
    axis: { ...text, gridColor: line, domainColor: line, tickColor: line },
    header: text,
    legend: text,
    title: { color: ink },
    text: { color: ink },
    view: { stroke: line },
  };
}

async function show(id, spec) {
  const place = byId(id);
  if (!spec) return;
  const { view } = await vegaEmbed(place, spec, { actions: false, renderer: "svg", config: theme() });
  place.dataset.drawn = String(Number(place.dataset.drawn || 0) + 1);
  return view;
}

function fill(select, values) {
  select.replaceChildren(...values.map((value) => new Option(value, value)));
}

function cell(tag, text, isNumber) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (isNumber) made.className = "number";
  return made;
}

function shown(key, value) {
  if (value === null) return "";
  if (key === "error") return value.toFixed(3);
  return NUMBERS.includes(key) ? `${(100 * value).toFixed(1)} %` : String(value);
}

function ordered(rows) {
  if (sorted.key === null) return rows;
  const way = sorted.down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [a[sorted.key], b[sorted.key]];
    if (x === y) return 0;
    if (x === null) return 1;
    if (y === null) return -1;
    return (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true })) * way;
  });
}

function drawLayers() {
  const heads = [...document.querySelectorAll("#layers th")];
  const keys = heads.map((head) => head.dataset.key);
  for (const head of heads) {
    if (head.dataset.key === sorted.key) head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  const rows = ordered(facts.layers[byId("run").value]).map((row) => {
    const line = document.createElement("tr");
    line.append(...keys.map((key) => cell(key === "layer" ? "th" : "td", shown(key, row[key]), NUMBERS.includes(key))));
    line.firstChild.scope = "row";
    return line;
  });
  document.querySelector("#layers tbody").replaceChildren(...rows);
}

function pickRun() {
  const run = byId("run").value;
  drawLayers();
  const layers = Object.keys(facts.kernels[run]);
  byId("s-kernels").hidden = layers.length === 0;
  fill(byId("layer"), layers);
  byId("s-times").hidden = !(run in facts.times);
  show("times", facts.times[run]);
  return pickLayer();
}

function pickLayer() {
  const kernels = facts.kernels[byId("run").value][byId("layer").value];
  if (!kernels) return;
  fill(byId("kernel"), kernels.map((entry) => entry.kernel));
  return drawKernel();
}

function drawKernel() {
  const kernels = facts.kernels[byId("run").value][byId("layer").value];
  const wanted = Number(byId("kernel").value);
  const datasets = kernelData(kernels.find((entry) => entry.kernel === wanted));
  const layer = facts.kernelChart.layer.filter((part) => datasets[part.data.name].length > 0);
  return show("kernels", { ...facts.kernelChart, datasets, layer });
}

function kernelData({ low, high, counts, thresholds, levels }) {
  const width = (high - low) / counts.length;
  const bins = counts.map((count, i) => ({ from: low + i * width, to: low + (i + 1) * width, count }));
  return { bins, thresholds: thresholds.map((threshold) => ({ threshold })), levels };
}

function drawAll() {
  byId("s-ratios").hidden = !facts.ratios;
  return Promise.all([
    show("curves", facts.curves),
    show("temperature", facts.temperature),
    show("rate", facts.rate),
    show("costs", facts.costs[byId("metric").value]),
    show("ratios", facts.ratios),
    pickRun(),
  ]);
}

for (const button of document.querySelectorAll("#layers th button")) {
  button.addEventListener("click", () => {
    const key = button.parentElement.dataset.key;
    sorted.down = sorted.key === key ? !sorted.down : true;
    sorted.key = key;
    drawLayers();
  });
}
fill(byId("metric"), Object.keys(facts.costs));
byId("metric").value = "C_S";
fill(byId("run"), Object.keys(facts.layers));
byId("run").value = facts.subject;
byId("metric").addEventListener("change", () => show("costs", facts.costs[byId("metric").value]));
byId("run").addEventListener("change", pickRun);
byId("layer").addEventListener("change", pickLayer);
byId("kernel").addEventListener("change", drawKernel);
dark.addEventListener("change", drawAll);
drawAll().then(() => { document.body.dataset.ready = "yes"; });
