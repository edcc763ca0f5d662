// Make a policy: a small form with sensible defaults, and the command that does the same.

import { copyable, freshId, h, say, show } from "./dom.js";
import { curl, during, fail } from "./ask.js";

const number = (name, low, high) => ({ kind: "number", name, low, high, weight: 1 });
const category = (name, values) => ({ kind: "category", name, values, other: false, weight: 1 });
const flag = (name) => ({ kind: "flag", name, weight: 1 });

// An example that people can read: articles, of which one is shown to a reader.
const ARTICLES = {
  format: "tacit.features",
  version: 1,
  user: [number("age", 0, 100), category("device", ["phone", "tablet", "computer"]), flag("subscriber")],
  arm: [category("topic", ["news", "sport", "culture", "science", "food"]), number("minutes", 0, 20)],
  crosses: [["age", "topic"], ["device", "topic"]],
  per_arm: null,
  intercept: true,
};

export const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/;

function field(label, control, hint) {
  const id = freshId("field");
  control.id = id;
  const note = hint ? h("p", { class: "hint", id: `${id}-hint` }, hint) : null;
  if (note) control.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, note);
}

export function startCard(api, first, made) {
  const name = h("input", { value: first ? "articles" : "", required: true, autocomplete: "off", maxlength: "64" });
  const shape = h("select", {},
    h("option", { value: "articles" }, "Example: articles for readers"), h("option", { value: "numbers" }, "Plain numbers"));
  const dim = h("input", { type: "number", min: "1", max: "500", value: "3", required: true });
  const epsilon = h("input", { type: "number", min: "0.01", max: "50", step: "any", value: "1", required: true });
  const delta = h("input", { type: "text", inputmode: "decimal", value: "1e-6", required: true });
  const unit = h("select", {},
    h("option", { value: "visit" }, "each visit"), h("option", { value: "person" }, "each person"));
  const rounds = h("input", { type: "number", min: "2", max: "1000", value: "10", required: true });
  const wait = h("select", {}, [[60, "1 minute"], [600, "10 minutes"], [3600, "1 hour"], [86400, "1 day"]].map(
    ([seconds, words]) => h("option", { value: String(seconds), selected: seconds === 600 }, words)));
  const dimField = field("Numbers per arm", dim, "How many numbers describe an arm as a visitor sees it.");
  const roundsField = field("Visits per person", rounds, "Later visits are answered, and teach nothing.");
  const make = h("button", { type: "submit", class: "primary" }, "Make the policy");
  const answer = h("div", { class: "answer", role: "alert" });
  const command = copyable("The same on the command line", "");

  const form = h("form", { class: "stack", novalidate: true },
    h("div", { class: "fields" },
      field("Name", name, "Letters, digits, dots, dashes. It never changes."),
      field("What arms look like", shape, "Features can be described once, and are checked from then on."),
      dimField,
      field("Privacy budget ε", epsilon, "Smaller protects more and learns more slowly; 1 is a common choice."),
      field("δ", delta, "Chance that the promise fails: far below 1 in the number of visitors."),
      field("Protects", unit, "Whether the budget is for one visit, or for all visits of a person."),
      roundsField,
      field("Wait for rewards", wait, "Rewards count when this time is over, so that quick ones are not preferred.")),
    h("div", { class: "row" }, make), answer, command.element);

  function body() {
    const described = shape.value === "articles"
      ? { features: ARTICLES, base_rate: 0.08, theta_bound: 3.5 } : { dim: Number(dim.value) };
    const person = unit.value === "person" ? { rounds_per_user: Number(rounds.value), user_level: true } : {};
    return { policy: "stream-glm", epsilon: Number(epsilon.value), delta: Number(delta.value), ...described, ...person,
      reward_wait: Number(wait.value) };
  }

  const path = () => `v1/policies/${encodeURIComponent(name.value.trim())}`;
  function follow() {
    show(dimField, shape.value === "numbers");
    show(roundsField, unit.value === "person");
    command.set(curl("PUT", path(), body()));
  }
  form.addEventListener("input", follow);
  follow();

  form.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    say(answer, "");
    const wrong = complaint(name, epsilon, delta, shape, dim, unit, rounds);
    if (wrong) { fail(answer, wrong[1]); wrong[0].focus(); return; }
    await during([make], answer, async () => {
      await api.call("PUT", path(), body());
      made(name.value.trim());
    });
  });

  const id = freshId("heading");
  return h("section", { class: "card start", "aria-labelledby": id },
    h("h2", { id }, first ? "Make your first policy" : "Make a policy"),
    h("p", {}, "A policy decides which arm (an article, an offer, a design) a visitor is shown, and learns from rewards ",
      "within a privacy budget that is fixed now. Everything below but the name has a sensible default."),
    first ? h("ol", { class: "steps" }, h("li", {}, "Make a policy"), h("li", {}, "Ask it for a decision"),
      h("li", {}, "Report the reward, and watch the figures here")) : null,
    form);
}

function complaint(name, epsilon, delta, shape, dim, unit, rounds) {
  if (!NAME.test(name.value.trim())) return [name, "The name needs letters, digits or underscores; dots and dashes may follow."];
  if (!(Number(epsilon.value) > 0)) return [epsilon, "ε must be a number above 0."];
  if (!(Number(delta.value) > 0 && Number(delta.value) < 1)) return [delta, "δ must be between 0 and 1, as in 1e-6."];
  if (shape.value === "numbers" && !(Number.isInteger(Number(dim.value)) && Number(dim.value) >= 1)) {
    return [dim, "Numbers per arm must be a whole number, at least 1."];
  }
  if (unit.value === "person" && !(Number.isInteger(Number(rounds.value)) && Number(rounds.value) >= 1)) {
    return [rounds, "Visits per person must be a whole number, at least 1."];
  }
  return null;
}
