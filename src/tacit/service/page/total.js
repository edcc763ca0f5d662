// What all policies have spent together on somebody who is in each of them.

import { freshId, h, say, show, svg } from "./dom.js";
import { chance, epsilon, figure, known, plural } from "./format.js";

const SHADES = 5;

export function totalCard() {
  const id = freshId("heading");
  const large = h("strong");
  const beside = h("span");
  const words = h("p", { class: "calm" });
  const bar = svg("svg", { class: "shares", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img" });
  const legend = h("ul", { class: "legend" });
  const element = h("section", { class: "card total", "aria-labelledby": id },
    h("div", {}, h("h2", { id }, "All policies together"), h("p", { class: "large" }, large, " ", beside), words),
    h("div", { class: "shared", hidden: true }, bar, legend));

  // `named` are the parameters of the policies that have one.
  function set(total, named) {
    const policies = Object.keys(total.policies ?? {}).length || named.length;
    if (!known(total.mu) || !known(total.epsilon)) {
      say(large, "No bound");
      say(beside, "on what is spent on somebody who is in all policies");
      const without = named.filter(([, mu]) => !known(mu)).map(([name]) => name);
      say(words, without.length
        ? `${without.join(", ")} ${without.length === 1 ? "learns" : "learn"} without privacy. The other policies keep their own promises.`
        : "One of the policies has no privacy. The others keep their own promises.");
    } else {
      say(large, `ε ${epsilon(total.epsilon)}`);
      say(beside, `spent on somebody who is in ${["no", "the one policy so far", "both policies"][policies] ?? `all ${policies} policies`}`);
      say(words, `At δ ${chance(total.delta)}; Gaussian µ ${figure(total.mu)}. ` +
        `Counted: one visit${policies > 1 ? " in each" : ""}, or as many as are protected${policies > 1 ? " there" : ""}.`);
    }
    shares(named.filter(([, mu]) => known(mu) && mu > 0));
  }

  // Squares of µ add up: the bar divides the whole by them.
  function shares(parts) {
    const whole = parts.reduce((sum, [, mu]) => sum + mu * mu, 0);
    const several = parts.length > 1;
    show(bar.parentElement, several);
    if (!several) return;
    let x = 0;
    bar.replaceChildren(...parts.map(([, mu], at) => {
      const width = (100 * mu * mu) / whole;
      x += width;
      return svg("rect", { x: x - width, y: 0, width: Math.max(0.4, width - 0.4), height: 10, class: `shade-${at % SHADES}` });
    }));
    const texts = parts.map(([name, mu]) => `${name} ${Math.round((100 * mu * mu) / whole)}%`);
    bar.setAttribute("aria-label", `Shares of what was spent: ${texts.join(", ")}; ${plural(parts.length, "policy", "policies")}`);
    legend.replaceChildren(...texts.map((text, at) => h("li", {}, h("span", { class: `swatch shade-${at % SHADES}` }), text)));
  }

  return { element, set };
}
