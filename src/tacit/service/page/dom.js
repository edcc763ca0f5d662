// Elements, made and changed without markup in text: nothing that comes from the service is ever parsed as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Changes what differs alone, so that a selection or a screen reader's place is kept.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, visible) {
  if (element.hidden === visible) element.hidden = !visible;
}

let numbers = 0;
export function freshId(stem) {
  numbers += 1;
  return `${stem}-${numbers}`;
}

// A section with a heading that names it.
export function card(title, ...children) {
  const id = freshId("heading");
  return h("section", { class: "card", "aria-labelledby": id }, h("h3", { id }, title), ...children);
}

// Terms and what they are; values may be text or elements.
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value))));
}

// A table whose cells name their column, for small screens: there it becomes a list, or leaves out its minor columns.
export function table(caption, columns, rows) {
  const kind = (column) => [column.number ? "number" : "", column.minor ? "minor" : ""].join(" ").trim() || null;
  const head = columns.map((column) => h("th", { scope: "col", class: kind(column) }, column.title));
  const body = rows.map((cells) =>
    h("tr", {}, cells.map((cell, at) =>
      h("td", { "data-label": columns[at].title, class: kind(columns[at]) }, cell))));
  return h("table", { class: columns.some((column) => column.minor) ? "narrows" : "stacks" },
    h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
}

export function copyable(label, text) {
  const code = h("code", {}, text);
  const done = h("span", { class: "copied", role: "status" });
  const button = h("button", { type: "button", class: "quiet", "aria-label": `Copy: ${label}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      say(done, "Copied");
    } catch {
      getSelection().selectAllChildren(code);
      say(done, "Selected: copy it with the keyboard");
    }
    setTimeout(() => say(done, ""), 4000);
  });
  const box = h("figure", { class: "code" },
    h("figcaption", {}, h("span", {}, label), h("span", { class: "tools" }, done, button)),
    h("pre", { tabindex: "0", role: "region", "aria-label": label }, code));
  return { element: box, set: (changed) => say(code, changed) };
}
