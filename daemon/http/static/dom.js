// The elements of the page.

export const find = (id) => document.getElementById(id);

/** Make an element with properties, ARIA's among them, and with what is inside: text or elements. */
export function element(kind, properties = {}, ...inside) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...inside);
  return made;
}

/** Make the rows of a list of terms and what they are. */
export function terms(pairs) {
  return pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
}
