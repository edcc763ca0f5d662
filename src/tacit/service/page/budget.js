// A privacy budget: what was promised, what of it is spent, and for whom.

import { card, facts, h, say, show } from "./dom.js";
import { chance, epsilon, figure, known } from "./format.js";

const FULL = 0.995; // spent shares above this are "all of it": what is left is rounding

export const unprotected = (report) => report.model === "none" || !known(report.target_epsilon);

export function unitOf(report) {
  if (unprotected(report)) return "no privacy";
  const lives = report.lives > 1 ? ` in each of ${report.lives} lives` : "";
  return (report.rounds_per_user === 1 ? "per visit" : `per person, up to ${report.rounds_per_user} visits`) + lives;
}

const share = (report) => Math.min(1, Math.max(0, report.spent_epsilon / report.target_epsilon));

// A bar that is also a sentence to those who do not see it.
export function meter(label) {
  const spent = h("span", { class: "meter-spent" });
  const element = h("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": "0" }, spent);
  return {
    element,
    set(report) {
      const open = unprotected(report);
      element.classList.toggle("meter-open", open);
      spent.style.width = `${open ? 100 : 100 * share(report)}%`;
      element.setAttribute("aria-valuemax", open ? "1" : String(report.target_epsilon));
      element.setAttribute("aria-valuenow", open ? "1" : String(Math.min(report.spent_epsilon, report.target_epsilon)));
      element.setAttribute("aria-valuetext", open ? "no privacy" : sentence(report));
    },
  };
}

export function sentence(report) {
  return `epsilon ${epsilon(report.spent_epsilon)} of ${epsilon(report.target_epsilon)} spent, ${unitOf(report)}`;
}

export function budgetCard() {
  const large = h("strong");
  const beside = h("span");
  const bar = meter("Privacy budget");
  const spent = h("span");
  const left = h("span");
  const unit = h("p");
  const reading = h("p");
  const guarantee = h("blockquote");
  const warnings = h("ul", { class: "warnings", hidden: true });
  const more = h("div");
  const legend = h("p", { class: "meter-legend" }, spent, left);
  const element = card("Privacy budget",
    h("p", { class: "large" }, large, " ", beside), bar.element, legend, unit, reading, warnings, guarantee, more);
  element.classList.add("budget");
  let seen = "";

  function set(report) {
    const text = JSON.stringify(report);
    if (text === seen) return;
    seen = text;
    bar.set(report);
    const open = unprotected(report);
    say(large, open ? "No privacy" : `ε ${epsilon(report.spent_epsilon)}`);
    say(beside, open ? "there is no budget" : `of ${epsilon(report.target_epsilon)} spent, ${unitOf(report)}`);
    show(legend, !open);
    say(spent, `Spent ${epsilon(report.spent_epsilon)}`);
    say(left, `Remaining ${epsilon(remaining(report))}`);
    unit.replaceChildren(...(open ? [] : protection(report)));
    show(unit, !open);
    say(reading, inWords(report, open));
    say(guarantee, report.guarantee);
    show(warnings, report.warnings.length > 0);
    warnings.replaceChildren(...report.warnings.map((warning) => h("li", {}, warning)));
    more.replaceChildren(open ? "" : details(report));
  }

  return { element, set };
}

// The report's own words, of which the first sentence says whom epsilon is about.
function protection(report) {
  const [first, ...rest] = `Protects ${report.protects}.`.split(/(?<=\.) /);
  return [h("strong", {}, first), rest.length ? ` ${rest.join(" ")}` : ""];
}

const remaining = (report) => (share(report) >= FULL ? 0 : Math.max(0, report.target_epsilon - report.spent_epsilon));

function inWords(report, open) {
  if (open) return "Whoever sees what this policy does may learn about single people.";
  if (!report.entries.length) return "Nothing was charged yet.";
  if (share(report) >= FULL) {
    return "The budget is committed in full. That pays for every release of the entries in the ledger, those still to " +
      `come included: the policy goes on learning, and no ${report.rounds_per_user === 1 ? "visit" : "person"} is charged more.`;
  }
  return "What remains can still be charged. The ledger refuses whatever would go beyond the target.";
}

function details(report) {
  return facts([
    ["Target ε", epsilon(report.target_epsilon)],
    ["δ", chance(report.delta)],
    ["Spent, as Gaussian µ of one visit", figure(report.spent_mu)],
    ["Remaining µ", report.remaining_mu < 1e-6 ? "0" : figure(report.remaining_mu)],
    ["Noise", report.noise],
    ["Accounting", report.accounting],
  ]);
}
