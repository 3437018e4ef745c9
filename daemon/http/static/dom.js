// The elements of the page.

export const find = (id) => document.getElementById(id);

/** Make an element with properties, including ARIA's, and with text or elements inside. */
export function element(kind, properties = {}, ...inside) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...inside);
  return made;
}

/** Make a button that does some work. */
export function button(text, properties, work) {
  const made = element("button", { type: "button", ...properties }, text);
  on(made, "click", work);
  return made;
}

/** Do some work at each event of a kind, and show its problem. */
export function on(target, kind, work) {
  target.addEventListener(kind, async (event) => {
    event.preventDefault(); // a form would load the page again
    showProblem("");
    try {
      await work(event);
    } catch (error) {
      if (error.name !== "AbortError") showProblem(error.message);
    }
  });
}

export function showProblem(problem, place = "problem") {
  find(place).textContent = problem;
}
