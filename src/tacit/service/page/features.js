// What matters to a policy, feature by feature: bars with two standard deviations to both sides.

import { card, h, say, show, svg } from "./dom.js";
import { known, places } from "./format.js";

const FEW = 12;
const WIDE = 200; // units of a drawing, the middle of which is zero

export function featuresCard() {
  const about = h("p", { class: "calm" });
  const body = h("tbody");
  const rows = h("table", { class: "features" },
    h("caption", { class: "unseen" }, "Features by their effect on the score, the strongest first"),
    h("thead", { class: "unseen" }, h("tr", {}, ["Feature", "Drawn", "Effect, with two standard deviations"].map((title) =>
      h("th", { scope: "col" }, title)))), body);
  const more = h("button", { type: "button", class: "quiet", "aria-expanded": "false" });
  const element = card("What matters", about, rows, more);
  let all = [];
  let open = false;
  more.addEventListener("click", () => { open = !open; draw(); });

  function draw() {
    const shown = open ? all : all.slice(0, FEW);
    const unit = Math.max(...shown.map((each) => Math.abs(each.effect) + spread(each)), 1e-9);
    body.replaceChildren(...shown.map((each) => row(each, unit)));
    show(more, all.length > FEW);
    more.setAttribute("aria-expanded", String(open));
    say(more, open ? "Show the strongest alone" : `Show all ${all.length}`);
  }

  // `explanation` is null where a policy has none, or none that may be shown; `words` say why.  Effects may all be 0
  // though something was released: whether anything was, their number alone says.
  function set(explanation, releases, words) {
    all = explanation?.features ?? [];
    const some = releases > 0 && all.length > 0;
    show(rows, some);
    show(more, some);
    if (some) draw();
    say(about, some
      ? "How far each feature can move the score of an arm, estimated from releases, with two standard deviations " +
        "(privacy noise included). Pale bars may be noise alone."
      : words ?? "Nothing was released yet, so that no feature is known to matter.");
  }

  return { element, set };
}

const spread = (each) => (known(each.sd) ? 2 * each.sd * each.largest : 0);

function row(each, unit) {
  const side = spread(each);
  const unsure = side > Math.abs(each.effect);
  const kind = `${each.effect < 0 ? "against" : "for"}${unsure ? " unsure" : ""}`;
  const text = side ? `${places(each.effect, true)} ± ${places(side)}` : places(each.effect, true);
  return h("tr", { class: kind },
    h("th", { scope: "row" }, each.name === "1" ? "1 (constant)" : each.name),
    h("td", { class: "drawn", "aria-hidden": "true" }, drawing(each.effect, side, unit)),
    h("td", { class: "number" }, text, unsure && side ? h("span", { class: "unseen" }, " may be noise") : null));
}

function drawing(effect, side, unit) {
  const middle = WIDE / 2;
  const at = (value) => middle + (value / unit) * (middle - 2);
  const parts = [
    svg("line", { class: "zero", x1: middle, x2: middle, y1: 0, y2: 16 }),
    svg("rect", { class: "bar", x: Math.min(middle, at(effect)), width: Math.abs(at(effect) - middle), y: 3, height: 10 }),
  ];
  if (side) parts.push(svg("line", { class: "whisker", x1: at(effect - side), x2: at(effect + side), y1: 8, y2: 8 }));
  return svg("svg", { viewBox: `0 0 ${WIDE} 16`, preserveAspectRatio: "none", focusable: "false" }, ...parts);
}
