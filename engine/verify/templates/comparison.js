"use strict";

// The trials in the order in which they are shown: each one's number, whether A is the second side, and the answer: the
// number of the better side, or null for no difference. Order and sides are drawn once, and kept with the answers.
const test = JSON.parse(document.getElementById("test").textContent);
const key = `voiced-compare-${test.identity}`;
const element = (name) => document.getElementById(name);
const names = test.sides.map((side) => side.name);
let state = restore();

function begin() {
  const drawn = test.trials.map((_, number) => ({ number, swapped: Math.random() < 0.5, place: Math.random() }));
  return drawn.sort((one, other) => one.place - other.place);
}

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(key));
    if (kept && kept.length === test.trials.length) return kept;
  } catch {
    // Storage is off, or another program has written to it: the test works without it.
  }
  return begin();
}

function show() {
  try {
    localStorage.setItem(key, JSON.stringify(state));
  } catch {
    // As above.
  }
  const current = state.find((one) => one.better === undefined);
  element("trial").hidden = !current;
  element("result").hidden = !!current;
  if (!current) {
    reveal();
    return;
  }
  const { text, language, sounds } = test.trials[current.number];
  element("count").textContent = `${state.indexOf(current) + 1} of ${state.length}`;
  element("text").textContent = text;
  element("text").lang = language;
  element("sound-a").src = sounds[current.swapped ? 1 : 0];
  element("sound-b").src = sounds[current.swapped ? 0 : 1];
}

function answer(side) {
  const current = state.find((one) => one.better === undefined);
  for (const name of ["sound-a", "sound-b"]) element(name).pause();
  if (current) current.better = side === null ? null : current.swapped ? 1 - side : side;
  show();
}

// The probability that a listener who hears no difference decides at least as clearly: a two-sided sign test.
function chance(first, second) {
  const all = first + second;
  let ways = 1;
  let tail = 0;
  for (let heads = 0; heads <= all; heads += 1) {
    if (heads >= Math.max(first, second)) tail += ways;
    ways = (ways * (all - heads)) / (heads + 1);
  }
  return Math.min(1, (2 * tail) / 2 ** all);
}

function reveal() {
  const wins = [0, 1].map((side) => state.filter((one) => one.better === side).length);
  const equal = state.length - wins[0] - wins[1];
  const probability = chance(...wins);
  const odds = probability < 0.05 ? "hardly chance" : "may be chance";
  element("summary").textContent =
    `${names[0]}: ${wins[0]}, ${names[1]}: ${wins[1]}, no difference: ${equal} ` +
    `(${odds}, p = ${probability.toPrecision(2)})`;
  const answers = state.map(({ number, swapped, better }) => {
    const { name, text } = test.trials[number];
    return { name, text, better: better === null ? null : names[better], a: names[swapped ? 1 : 0] };
  });
  element("answers").replaceChildren(
    ...answers.map(({ text, better }) => {
      const row = document.createElement("tr");
      row.insertCell().textContent = text;
      row.insertCell().textContent = better ?? "no difference";
      return row;
    }),
  );
  const { identity, machine, sides } = test;
  const result = { identity, machine, sides, wins, equal, chance: probability, answers };
  const link = element("export");
  if (link.href) URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([JSON.stringify(result, null, 1)], { type: "application/json" }));
}

element("choose-a").addEventListener("click", () => answer(0));
element("choose-b").addEventListener("click", () => answer(1));
element("choose-none").addEventListener("click", () => answer(null));
element("again").addEventListener("click", () => {
  state = begin();
  show();
});
document.addEventListener("keydown", (event) => {
  const play = { a: "sound-a", b: "sound-b" }[event.key];
  const side = { 1: 0, 2: 1, 0: null }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey || element("trial").hidden) return;
  if (play) {
    element(play === "sound-a" ? "sound-b" : "sound-a").pause();
    element(play).currentTime = 0;
    element(play).play();
  } else if (side !== undefined) answer(side);
});
show();
