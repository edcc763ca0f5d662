// One policy: its figures, its budget, its releases, what matters to it, its ledger and its terms.

import { card, facts, h, say, show, table } from "./dom.js";
import { age, count, duration, figure, known, moment, plural, reward } from "./format.js";
import { askPanel, pretty } from "./ask.js";
import { budgetCard, unprotected } from "./budget.js";
import { featuresCard } from "./features.js";
import { releasesCard } from "./releases.js";

export const MODES = {
  online: ["Online", "chooses arms and learns"],
  apprentice: ["Apprentice", "answers the first arm and learns from it"],
  off: ["Off", "refuses decisions, still takes rewards"],
  deleted: ["Deleted", "only what is public is left; what was spent stays in the total"],
};
const FEW_ENTRIES = 20;
const FEW_CHANGES = 3;
const MODELS = {
  joint: "joint privacy", shuffle: "shuffle privacy", local: "local privacy", central: "central privacy",
};

function tile(label) {
  const value = h("dd");
  const note = h("dd", { class: "note" });
  return { element: h("div", {}, h("dt", {}, label), value, note), set(text, beside = "") { say(value, text); say(note, beside); } };
}

export class PolicyView {
  constructor(api, name, detail, fresh) {
    this.name = name;
    this.mode = h("span", { class: "badge" });
    this.kind = h("p", { class: "calm" });
    this.changes = h("p", { class: "note" });
    this.title = h("h2", { tabindex: "-1" }, name);
    this.tiles = {
      decisions: tile("Decisions"), releases: tile("Releases"), best: tile("Estimated best reward"), health: tile("Health"),
    };
    this.budget = budgetCard();
    this.releases = releasesCard();
    this.features = featuresCard();
    this.ledger = h("div");
    this.terms = card("Terms", termFacts(detail.terms), configuration(detail));
    this.ask = h("details", { class: "card try", open: fresh },
      h("summary", {}, h("h3", {}, "Try a decision")),
      h("p", {}, fresh ? "The policy is ready. Ask it which arm to show." :
        "This is a decision like any other: it counts, and its reward is learned from. Say that it was never shown, and it teaches nothing."),
      askPanel(api, name, detail));
    this.element = h("article", { class: "policy" },
      h("div", { class: "title" }, this.title, this.mode), this.kind, this.changes,
      h("dl", { class: "tiles" }, Object.values(this.tiles).map((each) => each.element)),
      fresh ? this.ask : null, this.budget.element, this.releases.element, this.features.element,
      card("Ledger", h("p", { class: "calm" }, "Every charge against the budget. An entry that covers a stream is paid once, ",
        "for all of its releases. Visits belong to one cohort each, and are charged for that one."), this.ledger),
      this.terms, fresh ? null : this.ask);
    this.latest = null;
    this.charged = "";
  }

  // Everything that was fetched of the policy.
  set({ detail, report, history, modes, explanation }) {
    const open = unprotected(report);
    const points = open ? [] : history;
    this.latest = points[points.length - 1] ?? null;
    say(this.kind, [detail.policy, open ? "no privacy" : MODELS[report.model] ?? report.model].join(" · "));
    say(this.changes, changesOf(modes));
    this.budget.set(report);
    this.releases.set(detail.releases, points, open);
    this.features.set(open ? null : explanation, detail.releases, open ? "What this policy learned is raw data, which is not shown."
      : explanation ? null : "This policy does not say which features matter.");
    this.tiles.health.set(...healthOf(detail));
    const best = this.latest?.best_reward;
    this.tiles.best.set(known(best) ? reward(best) : "–", known(best) ? "by the newest release"
      : open ? "not shown" : detail.releases ? "not estimated" : "no release yet");
    const charged = JSON.stringify(report.entries);
    if (charged !== this.charged) {
      this.charged = charged;
      this.ledger.replaceChildren(...ledgerTable(report.entries));
    }
    this.summarize(detail);
  }

  // What the stream says of the policy: public counts and its mode.
  summarize(summary, time) {
    const [word, meaning] = MODES[summary.mode] ?? [summary.mode, ""];
    say(this.mode, word);
    this.mode.dataset.mode = summary.mode;
    this.tiles.decisions.set(count(summary.decisions), meaning);
    this.total = summary.releases;
    if (time) this.releases.heard(time, summary.decisions);
  }

  // Ages, which change while nothing else does.
  older(now) {
    this.tiles.releases.set(count(this.total), this.latest ? `newest ${age(now - this.latest.time)}` : this.total ? "" : "none yet");
    this.releases.older(now);
  }

  drop() {
    this.releases.drop();
    this.element.remove();
  }
}

// The newest changes of mode in words; a policy that was always online has none.
function changesOf(modes) {
  const words = modes.slice(-FEW_CHANGES).reverse().map(({ mode, time, decisions }) =>
    `${MODES[mode]?.[0] ?? mode} since ${moment(time)}, after ${plural(decisions, "decision")}`);
  const earlier = modes.length - words.length;
  return [...words, ...(earlier ? [plural(earlier, "earlier change")] : [])].join("; before that: ");
}

function healthOf(detail) {
  const health = detail.health;
  const status = typeof health === "string" ? health : health?.status ?? (health?.ok === false ? "not well" : "ok");
  const note = typeof health === "object" && health !== null ? health.reason ?? "" : "";
  const well = status === "ok" || status === "ready";
  if (status === "off") return ["Off", "refuses decisions"];
  return [well ? "Good" : status, note || (well ? "answers and keeps what it answers" : "")];
}

function ledgerTable(entries) {
  if (!entries.length) return [h("p", { class: "calm" }, "No charges.")];
  const columns = [
    { title: "Release" }, { title: "Cohort" }, { title: "Noise" }, { title: "Sensitivity", number: true },
    { title: "Noise sd", number: true }, { title: "Count", number: true }, { title: "µ", number: true }, { title: "Note" },
  ];
  const filled = (some) => table("Ledger of the privacy budget", columns, some.map((entry) => [
    entry.name, entry.cohort ?? "all", entry.kind, figure(entry.sensitivity), figure(entry.noise_sd), count(entry.count),
    entry.mu === null ? "curve" : figure(entry.mu), entry.note || "–",
  ]));
  const shown = filled(entries.slice(0, FEW_ENTRIES));
  if (entries.length <= FEW_ENTRIES) return [shown];
  const more = h("button", { type: "button", class: "quiet" }, `Show all ${entries.length}`);
  more.addEventListener("click", () => { shown.replaceWith(filled(entries)); more.remove(); });
  return [shown, more];
}

function termFacts(terms) {
  const absent = known(terms.default_reward)
    ? `A decision without a reward counts as ${figure(terms.default_reward)}` : "A decision without a reward teaches nothing";
  return facts([
    ["Rewards are waited for", duration(terms.reward_wait)],
    ["Rewards count", terms.hold ? "when that time is over, however early they came" : "as soon as they come"],
    ["After that", absent],
    ["Ids are remembered for", duration(terms.event_memory ?? terms.reward_wait)],
    ["People", terms.user_level ? "every decision names its user, whose first visits count" : "decisions name no user: the promise is per visit"],
  ]);
}

function configuration(detail) {
  const given = Object.fromEntries(Object.entries(detail.config).filter(([, value]) => value !== null));
  const schema = detail.config.features;
  const words = schema ? `${plural(schema.user.length, "field")} of a visitor, ${plural(schema.arm.length, "field")} of an arm` : "no schema";
  return h("details", {}, h("summary", {}, `Configuration (${words})`),
    h("pre", { tabindex: "0", role: "region", "aria-label": "Configuration" }, h("code", {}, pretty(given))));
}
