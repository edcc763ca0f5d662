// What was released and when: two charts and a table of the newest.

import { card, h, say, show, table } from "./dom.js";
import { age, count, known, moment, plural, reward } from "./format.js";
import { decisionsChart, rewardChart } from "./charts.js";

const STEP = 8;
const MOST_MARKS = 60; // releases that are marked in the chart: more would be a blot
const MOST_SEEN = 600; // decisions counts that this page heard of, for the chart

export function releasesCard() {
  const about = h("p", { class: "calm" });
  const decisions = decisionsChart();
  const rewards = rewardChart();
  const note = h("p", { class: "note" },
    "The estimated best reward is the mean reward of the best arm that there could be, by the estimate of each release. ",
    "It is made of releases alone; rewards themselves are never shown.");
  const list = h("div");
  const more = h("button", { type: "button", class: "quiet" }, "Show older releases");
  const element = card("Releases", about, h("div", { class: "charts" }, decisions.element, rewards.element), note,
    list, more);
  let history = [];
  let seen = [];
  let length = STEP;
  let latest = { releases: 0 };
  more.addEventListener("click", () => { length += 5 * STEP; draw(); });

  function draw() {
    const columns = [
      { title: "When" }, { title: "Age", number: true, minor: true }, { title: "Decisions so far", number: true },
      { title: "Since the one before", number: true, minor: true }, { title: "Estimated best reward", number: true },
    ];
    const newest = history.slice(-length).reverse();
    const first = history.length - newest.length;
    const rows = newest.map((point, at) => {
      const before = history[first + newest.length - 2 - at];
      const date = new Date(point.time * 1000).toISOString();
      return [h("time", { datetime: date }, moment(point.time)), h("span", { class: "age", "data-time": point.time }, "–"),
        count(point.decisions), before ? `+${count(point.decisions - before.decisions)}` : "–", reward(point.best_reward)];
    });
    list.replaceChildren(rows.length ? table("Releases, the newest first", columns, rows) : "");
    show(more, history.length > length);
  }

  function chart() {
    const points = new Map(history.map((point) => [point.time, [point.decisions, point.decisions]]));
    for (const { time, decisions: so_far } of seen) if (!points.has(time)) points.set(time, [so_far, null]);
    const times = [...points.keys()].sort((one, other) => one - other);
    const at = times.map((time) => points.get(time));
    const total = at.length ? at[at.length - 1][0] : 0;
    if (total === 0) times.length = at.length = 0;
    decisions.set([times, at.map((each) => each[0]), at.map((each) => (history.length > MOST_MARKS ? null : each[1]))],
      count(total), `${plural(total, "decision")} so far, ${plural(latest.releases, "release")}.`);
    const known_ones = history.filter((point) => known(point.best_reward));
    const best = known_ones.length ? known_ones[known_ones.length - 1].best_reward : null;
    rewards.set([known_ones.map((point) => point.decisions), known_ones.map((point) => point.best_reward)],
      `now ${reward(best)}`, best === null ? "No estimate yet." : `The newest release says ${reward(best)}.`);
  }

  return {
    element,
    // A decisions count that was heard of at a time; nothing else of it is kept.
    heard(time, so_far) {
      const last = seen[seen.length - 1];
      if (last && (last.decisions === so_far || time <= last.time)) return;
      seen = [...seen, { time, decisions: so_far }].slice(-MOST_SEEN);
      chart();
    },
    set(releases, points, raw) {
      history = points;
      latest = { releases };
      const estimates = !raw && (history.length === 0 || history.some((point) => known(point.best_reward)));
      show(rewards.element, estimates);
      show(note, estimates);
      const newest = history[history.length - 1];
      say(about, releases
        ? `${plural(releases, "release")} so far${newest ? `, the newest after ${plural(newest.decisions, "decision")}` : ""}. ` +
          "Their times follow from the count of decisions and from earlier releases alone."
        : raw ? "This policy releases nothing: it learns from raw data, which is not shown."
          : "Nothing was released yet: that takes more decisions.");
      draw();
      chart();
    },
    older(now) {
      for (const cell of list.querySelectorAll(".age")) say(cell, age(now - Number(cell.dataset.time)));
    },
    drop() {
      decisions.drop();
      rewards.drop();
    },
  };
}
