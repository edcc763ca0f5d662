// The page: finds its key, follows the service, and shows one policy at a time.

import { Api, dropKey, keepKey, takeKey } from "./api.js";
import { unprotected } from "./budget.js";
import { freshId, h, say, show } from "./dom.js";
import { age, count, moment, plural } from "./format.js";
import { MODES, PolicyView } from "./policy.js";
import { startCard } from "./start.js";
import { totalCard } from "./total.js";

const find = (id) => document.getElementById(id);
const main = find("main");
const REST = 900; // milliseconds between two times that a policy's figures are fetched

class Page {
  constructor(key) {
    this.api = new Api(key);
    this.ending = new AbortController();
    this.policies = null; // summaries, as heard last
    this.reports = new Map();
    this.view = null;
    this.fresh = null; // the policy that was made here
    this.heard = 0;
    this.alive = true;
    this.list = h("ul");
    this.total = totalCard();
    this.stage = h("div", { class: "stage" });
    this.side = h("nav", { "aria-label": "Policies" }, h("h2", {}, "Policies"), this.list,
      h("a", { href: "#new", class: "new" }, "Make another policy"));
    this.whole = h("div", { class: "whole" }, this.total.element, h("div", { class: "columns" }, this.side, this.stage));
  }

  async open() {
    try {
      this.take(await this.api.get("v1/policies"));
    } catch (problem) {
      if (this.refused(problem)) return;
      this.state(false);
      this.wait();
    }
    show(find("leave"), true);
    const routed = () => this.route(true);
    addEventListener("hashchange", routed, { signal: this.ending.signal });
    this.timer = setInterval(() => this.older(), 1000);
    document.addEventListener("visibilitychange", () => this.follow(), { signal: this.ending.signal });
    this.follow();
  }

  // Browsers have few connections to a host: a page that nobody looks at gives its own back.
  follow() {
    this.following?.abort();
    if (document.visibilityState === "hidden") {
      if (this.alive) setStatus("paused", "Paused");
      return;
    }
    this.following = new AbortController();
    const signal = AbortSignal.any([this.ending.signal, this.following.signal]);
    this.api.follow((data) => this.take(data), (there, problem) => this.state(there, problem), signal);
  }

  close() {
    this.ending.abort();
    clearInterval(this.timer);
    this.view?.drop();
    show(find("banner"), false);
    show(find("leave"), false);
  }

  // A key that is not known or may not read ends the page: the form asks for another one.
  refused(problem) {
    if (problem?.status !== 401 && problem?.status !== 403) return false;
    this.close();
    dropKey();
    askKey(problem.status === 401 ? "The service does not know this key." : "This key may not look at policies: it needs the scope “read”.");
    return true;
  }

  state(there, problem) {
    if (this.refused(problem)) return;
    const back = there && !this.alive;
    this.alive = there;
    this.trouble = problem?.status ? problem.message : "The service does not answer.";
    setStatus(there ? "live" : "gone", there ? "Live" : "Not connected");
    if (there) this.heard = Date.now();
    if (back) this.refresh();
    this.older();
  }

  wait() {
    main.replaceChildren(h("p", { class: "card calm" }, "Waiting for the service …"));
  }

  // A summary of all policies.
  take(data) {
    const first = this.policies === null;
    const before = new Map((this.policies ?? []).map((each) => [each.name, each]));
    this.policies = data.policies;
    this.heard = Date.now();
    const changed = this.policies.filter((each) => differs(before.get(each.name), each)).map((each) => each.name);
    this.drawList();
    const now = this.view && this.policies.find((each) => each.name === this.view.name);
    if (now) this.view.summarize(now, this.now());
    if (first || before.size !== this.policies.length) this.route(false);
    else if (changed.length) this.refresh();
    this.older();
  }

  now() {
    return Date.now() / 1000 + this.api.ahead;
  }

  drawList() {
    const chosen = this.wanted();
    const items = this.policies.map((each) => {
      const here = each.name === chosen;
      return h("li", {}, h("a", { href: `#policy=${encodeURIComponent(each.name)}`, "aria-current": here ? "page" : null },
        h("span", { class: "name" }, each.name),
        h("span", { class: "note" }, `${plural(each.decisions, "decision")}, ${MODES[each.mode]?.[0].toLowerCase() ?? each.mode}`)));
    });
    if (this.list.children.length !== items.length) this.list.replaceChildren(...items);
    else items.forEach((item, at) => { if (!item.isEqualNode(this.list.children[at])) this.redrawn(item, at); });
  }

  redrawn(item, at) { // keeps the focus where it is
    const old = this.list.children[at];
    const focused = old.contains(document.activeElement);
    old.replaceWith(item);
    if (focused) item.firstElementChild.focus();
  }

  wanted() {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (asked.has("new")) return null;
    const name = asked.get("policy");
    return this.policies.some((each) => each.name === name) ? name : this.policies[0]?.name ?? null;
  }

  route(moved) {
    if (this.policies === null) return;
    const name = this.wanted();
    this.drawList();
    if (name !== null && this.view?.name === name && main.contains(this.view.element)) return;
    this.view?.drop();
    this.view = null;
    const none = this.policies.length === 0;
    if (name === null) {
      const start = startCard(this.api, none, (made) => this.made(made));
      if (!none) this.stage.replaceChildren(start);
      main.replaceChildren(none ? start : this.whole);
      document.title = "Make a policy · Tacit";
      if (moved) focusOn(start.querySelector("input"));
      if (!none) this.compose();
      return;
    }
    document.title = `${name} · Tacit`;
    this.stage.replaceChildren(h("p", { class: "card calm", role: "status" }, `Loading ${name} …`));
    if (!main.contains(this.whole)) main.replaceChildren(this.whole);
    this.refresh(moved);
  }

  async made(name) {
    this.fresh = name;
    this.take(await this.api.get("v1/policies"));
    if (this.wanted() === name) this.route(true);
    else location.hash = `policy=${encodeURIComponent(name)}`;
  }

  // Fetch what belongs to the policy that is shown; at most one at a time, and what comes meanwhile once more after it.
  async refresh(moved = false) {
    if (this.fetching) { this.again = true; return; }
    this.fetching = true;
    try {
      do {
        this.again = false;
        await this.fetchShown(moved);
        if (this.again) await new Promise((resolve) => setTimeout(resolve, REST));
      } while (this.again && !this.ending.signal.aborted);
    } catch (problem) {
      if (!this.refused(problem)) this.complain(problem);
    } finally {
      this.fetching = false;
    }
  }

  async fetchShown(moved) {
    const name = this.policies && this.wanted();
    if (!name) return;
    const path = `v1/policies/${encodeURIComponent(name)}`;
    const [detail, report, history] = await Promise.all([
      this.api.get(path), this.api.get(`${path}/privacy`), this.api.get(`${path}/history`), this.compose(),
    ]);
    const explanation = unprotected(report) ? null : await this.api.find(`${path}/explanation`);
    if (this.ending.signal.aborted) return;
    if (this.wanted() !== name) { this.again = true; return; }
    if (this.view?.name !== name) this.present(name, detail, moved);
    this.view.set({ detail, report, history: history?.releases ?? [], modes: history?.modes ?? [], explanation });
    this.view.summarize(detail, this.now());
    this.heard = Date.now();
    this.older();
  }

  present(name, detail, moved) {
    this.view?.drop();
    this.view = new PolicyView(this.api, name, detail, this.fresh === name);
    this.stage.replaceChildren(this.view.element);
    if (moved || this.fresh === name) focusOn(this.view.title);
    this.fresh = null;
  }

  // A key that is bound to some policies reads those, and is not told the total over all.
  async compose() {
    const total = await this.api.find("v1/privacy", 403);
    show(this.total.element, total !== null);
    if (total === null) return;
    const named = Object.entries(total.policies ?? {}).map(([name, part]) => [name, spentOn(part)]);
    this.total.set(total, named);
  }

  complain(problem) {
    if (problem.status === 0) { this.state(false); return; }
    if (!this.view) this.stage.replaceChildren(h("p", { class: "card answer bad", role: "alert" }, problem.message));
  }

  // What is shown of time that passes.
  older() {
    this.view?.older(this.now());
    const banner = find("banner");
    if (this.alive) { show(banner, false); return; }
    if (banner.hidden) {
      banner.replaceChildren(h("p", { role: "alert" }, ""), h("p", { class: "since" }));
      show(banner, true);
    }
    say(banner.firstChild, `${this.trouble} This page tries again by itself.`);
    say(banner.querySelector(".since"), this.heard
      ? `The figures below are those of ${moment(this.heard / 1000)} (${age((Date.now() - this.heard) / 1000)}).` : "");
  }
}

// The parameter of what a policy spends on a person; null where it has no bound.
function spentOn(part) {
  if (typeof part !== "object" || part === null) return typeof part === "number" ? part : null;
  if (typeof part.mu === "number") return part.mu;
  if (typeof part.mu_across_lives === "number") return part.mu_across_lives;
  return typeof part.spent_mu === "number" ? part.spent_mu * (part.rounds_per_user ?? 1) : null;
}

const differs = (before, now) => !before || before.releases !== now.releases || before.mode !== now.mode;

function focusOn(element) {
  element?.focus({ preventScroll: true });
  scrollTo({ top: 0 });
}

function setStatus(state, text) {
  find("status").dataset.state = state;
  say(find("status-text"), text);
}

let page = null;

function askKey(words) {
  page = null;
  setStatus("key", "No key");
  document.title = "Tacit";
  const id = freshId("key");
  const input = h("input", { id, type: "password", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-hint` });
  const form = h("form", { class: "stack" },
    h("label", { for: id }, "Key"), input,
    h("p", { class: "hint", id: `${id}-hint` }, "The service wrote one to the file admin.key in its data folder. This tab alone remembers it, until it is closed."),
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Show the figures")));
  form.addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    const key = input.value.trim();
    if (key) begin(key);
  });
  const heading = freshId("heading");
  main.replaceChildren(h("section", { class: "card key", "aria-labelledby": heading },
    h("h2", { id: heading }, "This page needs a key"),
    words ? h("p", { class: "answer bad", role: "alert" }, words) : null, form));
  input.focus();
}

function begin(key) {
  if (/[^\x21-\x7e]/.test(key)) { askKey("A key has letters, digits and signs alone, without spaces."); return; }
  keepKey(key);
  setStatus("loading", "Loading");
  page = new Page(key);
  page.open();
}

find("leave").addEventListener("click", () => {
  page?.close();
  dropKey();
  askKey();
});
document.querySelector(".skip").addEventListener("click", (clicked) => {
  clicked.preventDefault();
  main.focus();
});
addEventListener("hashchange", () => { // a key that comes while the page is open
  if (!new URLSearchParams(location.hash.slice(1)).has("key")) return;
  page?.close();
  begin(takeKey());
});

const key = takeKey();
if (key) begin(key);
else askKey();
