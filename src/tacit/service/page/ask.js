// Try a decision and its reward from the page, with the commands that do the same.

import { copyable, freshId, h, say, show } from "./dom.js";
import { duration } from "./format.js";

// What could be asked of a policy, by its configuration.
export function sampleRequest(config, terms) {
  const person = terms.user_level ? { user_id: "visitor-1" } : {};
  const schema = config.features;
  if (!schema) return { contexts: axes(config.dim ?? 2), ...person };
  return { user: record(schema.user, 1), arms: [0, 1, 2].map((at) => record(schema.arm, at)), ...person };
}

function axes(dim) {
  const arms = Math.min(dim, 3);
  return Array.from({ length: arms }, (_, arm) => Array.from({ length: dim }, (_, at) => (at === arm ? 1 : 0)));
}

function record(fields, at) {
  return Object.fromEntries((fields ?? []).map((field) => [field.name, sample(field, at)]));
}

function sample(field, at) {
  if (field.kind === "number") return field.low + ((field.high - field.low) * (at + 1)) / 4;
  if (field.kind === "flag") return at % 2 === 1;
  if (Array.isArray(field.values) && field.values.length) return field.values[at % field.values.length];
  return `example-${at + 1}`;
}

// JSON with short lists and records on one line.
export function pretty(value, indent = "") {
  const flat = JSON.stringify(value);
  if (value === null || typeof value !== "object" || flat.length + indent.length <= 84) return spaced(value);
  const inner = `${indent}  `;
  const parts = Array.isArray(value)
    ? value.map((each) => `${inner}${pretty(each, inner)}`)
    : Object.entries(value).map(([name, each]) => `${inner}${JSON.stringify(name)}: ${pretty(each, inner)}`);
  return Array.isArray(value) ? `[\n${parts.join(",\n")}\n${indent}]` : `{\n${parts.join(",\n")}\n${indent}}`;
}

function spaced(value) {
  if (Array.isArray(value)) return `[${value.map(spaced).join(", ")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${spaced(each)}`).join(", ")}}`;
}

export function curl(method, path, body) {
  const quoted = pretty(body).replaceAll("'", "'\\''");
  return `curl -X ${method} ${new URL(path, document.baseURI).href} \\\n  -H "Authorization: Bearer $TACIT_KEY" \\\n` +
    `  -H "Content-Type: application/json" \\\n  -d '${quoted}'`;
}

export function askPanel(api, name, detail) {
  const base = `v1/policies/${encodeURIComponent(name)}/decisions`;
  const fieldId = freshId("request");
  const rewardId = freshId("reward");
  const field = h("textarea", { id: fieldId, spellcheck: "false", autocomplete: "off" });
  field.value = pretty(sampleRequest(detail.config, detail.terms));
  field.rows = Math.min(14, field.value.split("\n").length + 1);
  const ask = h("button", { type: "submit", class: "primary" }, "Ask for a decision");
  const command = copyable("The same on the command line", "");
  const answer = h("div", { class: "answer", role: "status" });
  const reward = h("input", { id: rewardId, type: "number", step: "any", value: "1", min: "0", required: true });
  const send = h("button", { type: "submit", class: "primary" }, "Report the reward");
  const abandon = h("button", { type: "button" }, "It was never shown");
  const rewardCommand = copyable("The same on the command line", "");
  const outcome = h("div", { class: "answer", role: "status" });
  const asking = h("form", { class: "stack" },
    h("label", { for: fieldId }, "What is asked, as JSON"), field, h("div", { class: "row" }, ask), answer, command.element);
  const rewarding = h("form", { class: "stack", hidden: true },
    h("h4", {}, "Then tell what it earned"),
    h("div", { class: "row" }, h("label", { for: rewardId }, "Reward"), reward, send, abandon), outcome,
    rewardCommand.element);
  let event = null;

  function follow() {
    const body = parsed(field.value);
    command.set(body ? curl("POST", base, body) : "The request is not JSON yet.");
  }
  field.addEventListener("input", follow);
  follow();

  asking.addEventListener("submit", async (submitted) => {
    submitted.preventDefault();
    const body = parsed(field.value);
    if (!body) { fail(answer, "The request is not JSON: check its commas and quotes."); return; }
    await during([ask], answer, async () => {
      const { status, data } = await api.call("POST", base, body);
      event = data.event_id;
      tell(answer, `Arm ${data.arm} is to be shown${described(body, data.arm)}.`, status, data);
      outcome.className = "answer";
      outcome.replaceChildren();
      show(rewarding, true);
      followReward();
    });
  });

  function followReward() {
    rewardCommand.set(curl("PUT", `${base}/${encodeURIComponent(event)}/reward`, { reward: Number(reward.value) }));
  }
  reward.addEventListener("input", followReward);

  async function report(body, words) {
    await during([send, abandon], outcome, async () => {
      const { status, data } = await api.call("PUT", `${base}/${encodeURIComponent(event)}/reward`, body);
      tell(outcome, status === 200 ? "The same was reported before: nothing changed." : words, status, data);
    });
  }
  rewarding.addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    report({ reward: Number(reward.value) }, kept(detail.terms));
  });
  abandon.addEventListener("click", () => report({ abandoned: true }, "Taken: this decision will teach nothing."));

  return h("div", { class: "ask" }, asking, rewarding);
}

function kept(terms) {
  return terms.hold
    ? `Taken. It is on the disk, and will count when its waiting time of ${duration(terms.reward_wait)} is over.`
    : "Taken. It is on the disk, and counts from now on.";
}

function described(body, arm) {
  const chosen = body.arms?.[arm];
  return chosen ? `: ${Object.entries(chosen).map(([name, value]) => `${name} ${value}`).join(", ")}` : "";
}

function parsed(text) {
  try {
    const body = JSON.parse(text);
    return body !== null && typeof body === "object" && !Array.isArray(body) ? body : null;
  } catch {
    return null;
  }
}

function tell(place, words, status, data) {
  place.className = "answer good";
  place.replaceChildren(h("p", {}, words), h("pre", {}, h("code", {}, `${status}  ${pretty(data)}`)));
}

export function fail(place, words) {
  place.className = "answer bad";
  place.replaceChildren(h("p", {}, words));
}

// Buttons rest while a call is under way; what goes wrong is said in words.
export async function during(buttons, place, call) {
  buttons.forEach((button) => { button.disabled = true; });
  place.className = "answer";
  place.replaceChildren();
  const slow = setTimeout(() => place.replaceChildren(h("p", { class: "calm" },
    "Still at work: a large policy is tried out before it is kept.")), 1500);
  try {
    await call();
  } catch (problem) {
    clearTimeout(slow);
    fail(place, problem.message);
  } finally {
    clearTimeout(slow);
    buttons.forEach((button) => { button.disabled = false; });
  }
}
