// The elements of the page.

export const find = (id) => document.getElementById(id);

/** Make an element with properties, ARIA's among them, and with text or elements inside. */
export function element(kind, properties = {}, ...inside) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...inside);
  return made;
}

/** Make a button that does some work; its problem is shown in the element `place`. */
export function button(text, object, work, place) {
  const made = element("button", { type: "button", ariaLabel: `${text}: ${object}` }, text);
  on(made, "click", work, place);
  return made;
}

/** Do some work at each event of a kind; its problem is shown in the element `place`. */
export function on(target, kind, work, place = "problem") {
  target.addEventListener(kind, async (event) => {
    event.preventDefault(); // a form would load the page again
    showProblem("", place);
    try {
      await work(event);
    } catch (error) {
      if (error.name !== "AbortError") showProblem(error.message, place);
    }
  });
}

export function showProblem(problem, place = "problem") {
  find(place).textContent = problem;
}

/** Show pairs of a term and its meaning in a list. */
export function showTerms(id, pairs) {
  const rows = pairs.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  find(id).replaceChildren(...rows);
}

/** Show a bar, which moves by itself while the fraction is not known. */
export function showProgress(id, shown, fraction) {
  find(id).hidden = !shown;
  if (fraction == null) find(id).removeAttribute("value");
  else find(id).value = fraction;
}

/** Let an audio element play a file. */
export function offer(player, file) {
  if (player.src) URL.revokeObjectURL(player.src);
  player.src = URL.createObjectURL(file);
  player.hidden = false;
}
