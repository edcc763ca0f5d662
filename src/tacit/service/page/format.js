// Numbers, times and lengths of time as people read them.

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const shortClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const fullDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export const known = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (known(value) ? whole.format(value) : "–");

export const plural = (value, one, several = `${one}s`) => `${count(value)} ${value === 1 ? one : several}`;

// Three significant digits; powers of ten where decimals would be hard to count.
export function figure(value, digits = 3) {
  if (!known(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return power(value, digits);
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return new Intl.NumberFormat("en", { maximumFractionDigits: Math.min(decimals, 6) }).format(value).replace("-", "−");
}

function power(value, digits) {
  const [factor, exponent] = value.toExponential(digits - 1).split("e");
  const raised = `10${[...String(Number(exponent))].map((sign) => RAISED[sign]).join("")}`;
  const plain = String(Number(factor)).replace("-", "−");
  return plain === "1" ? raised : `${plain} × ${raised}`;
}

// A mean reward: as many decimals for all, so that they can be compared.
export function reward(value) {
  return known(value) && Math.abs(value) < 10 ? value.toFixed(3).replace("-", "−") : figure(value);
}

// Two decimals, for figures that stand below each other.
export function places(value, sign = false) {
  return `${sign && value > 0 ? "+" : ""}${value.toFixed(2).replace("-", "−")}`;
}

// Epsilon: two decimals are what anybody needs, and a budget that is used up to rounding reads as used up.
export function epsilon(value) {
  if (!known(value)) return "unlimited";
  if (value !== 0 && Math.abs(value) < 0.005) return figure(value, 2);
  return value.toFixed(2).replace(/\.?0+$/, "");
}

// How likely, in words, for small probabilities.
export function chance(value) {
  if (!known(value) || value <= 0) return figure(value);
  return `${figure(value)} (1 in ${whole.format(Number((1 / value).toPrecision(2)))})`;
}

const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

export function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 1) return `${figure(seconds)} seconds`;
  const at = UNITS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = UNITS[at];
  const first = Math.floor(seconds / size);
  const next = UNITS[at + 1];
  const second = next ? Math.round((seconds - first * size) / next[1]) : 0;
  return plural(first, unit) + (second > 0 ? ` ${plural(second, next[0])}` : "");
}

export function age(seconds) {
  if (seconds < 2) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${plural(Math.floor(seconds / 86400), "day")} ago`;
}

// A moment, with its day unless that is today.
export function moment(time) {
  const date = new Date(time * 1000);
  const today = new Date().toDateString() === date.toDateString();
  return today ? clock.format(date) : `${fullDay.format(date)}, ${shortClock.format(date)}`;
}

// Marks of a time axis whose steps are this long.
export function mark(time, step) {
  const date = new Date(time * 1000);
  if (step >= 86400) return day.format(date);
  return (step >= 60 ? shortClock : clock).format(date);
}
