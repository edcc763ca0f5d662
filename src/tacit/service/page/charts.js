// Charts of releases.  Each has a name and a sentence for those who do not see it; tables hold the same figures.

import { h, say, show } from "./dom.js";
import { count, figure, mark, moment, reward } from "./format.js";

const HEIGHT = 210;
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Set();
dark.addEventListener("change", () => drawn.forEach((chart) => chart.redraw()));

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axis(values, size) {
  return {
    stroke: color("--muted"), font: "12px system-ui, sans-serif", size, values,
    grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, border: { show: false },
  };
}

class Chart {
  constructor(title, options) {
    this.options = options;
    this.place = h("div", { class: "plot", role: "img" });
    this.readout = h("span", { class: "readout", "aria-hidden": "true" });
    this.none = h("p", { class: "calm" }, options.none);
    this.element = h("figure", { class: "chart" },
      h("figcaption", {}, h("span", {}, title), this.readout), this.place, this.none);
    this.title = title;
    this.data = null;
    this.width = 0;
    new ResizeObserver(() => this.#fit()).observe(this.element);
    drawn.add(this);
  }

  // `rest` is what the readout says while nothing is pointed at, `words` the chart in a sentence.
  set(data, rest, words) {
    const some = data[0].length > 0;
    show(this.place, some);
    show(this.none, !some);
    this.rest = some ? rest : "";
    say(this.readout, this.rest);
    this.place.setAttribute("aria-label", `${this.title}. ${words}`);
    this.data = some ? data : null;
    if (this.plot && some) this.plot.setData(data);
    else this.redraw();
  }

  redraw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.data || !this.width) return;
    const pointed = (plot) => {
      const at = plot.cursor.idx;
      say(this.readout, at === null || at === undefined ? this.rest : this.options.read(plot.data, at));
    };
    this.plot = new uPlot({
      width: this.width, height: HEIGHT, padding: [12, 22, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
      hooks: { setCursor: [pointed] },
      ...this.options.form(),
    }, this.data, this.place);
  }

  #fit() {
    const width = Math.floor(this.element.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT });
    else this.redraw();
  }

  drop() {
    drawn.delete(this);
    this.plot?.destroy();
    this.plot = null;
  }
}

// Decisions, a public count, with a mark where something was released.
export function decisionsChart() {
  return new Chart("Decisions over time", {
    none: "No decisions yet.",
    read: (data, at) => `${moment(data[0][at])}: ${count(data[1][at])}${data[2][at] === null ? "" : ", a release"}`,
    form: () => ({
      scales: { x: { time: true, range: aMinute }, y: { range: (plot, low, high) => [0, Math.max(4, high * 1.06)] } },
      series: [{}, {
        stroke: color("--accent"), width: 2, fill: color("--accent-wash"), points: { show: false },
      }, {
        stroke: color("--accent"), paths: () => null,
        points: { show: true, size: 6, fill: color("--surface"), stroke: color("--accent"), width: 1.5 },
      }],
      axes: [
        { ...axis((plot, splits, at, space, step) => splits.map((time) => mark(time, step)), 30), space: 76 },
        axis((plot, splits) => splits.map((value) => (Number.isInteger(value) ? short(value) : "")), 44),
      ],
    }),
  });
}

// What the best arm would earn, by each release: it holds until the next one.
export function rewardChart() {
  return new Chart("Estimated best reward", {
    none: "No release has an estimate yet.",
    read: (data, at) => `after ${count(data[0][at])} decisions: ${reward(data[1][at])}`,
    form: () => ({
      scales: { x: { time: false }, y: { range: around } },
      series: [{}, {
        stroke: color("--second"), width: 2, paths: uPlot.paths.stepped({ align: 1 }),
        points: { show: (plot) => plot.data[0].length < 40, size: 5, fill: color("--second") },
      }],
      axes: [
        { ...axis((plot, splits) => splits.map((value) => (Number.isInteger(value) ? short(value) : "")), 30), space: 60 },
        axis((plot, splits) => splits.map((value) => figure(Number(value.toPrecision(6)))), 52),
      ],
    }),
  });
}

// A minute at least, so that marks differ.
const aMinute = (plot, low, high) => [Math.min(low, high - 60), high];

// From zero, unless all figures are far from it.
function around(plot, low, high) {
  const room = Math.max((high - low) * 0.15, Math.abs(high) * 0.05, 1e-3);
  return [low >= 0 && low < 0.75 * high ? 0 : low - room, high + room];
}

function short(value) {
  if (value >= 1e6) return `${figure(value / 1e6)}m`;
  return value >= 1e4 ? `${figure(value / 1e3)}k` : count(value);
}
