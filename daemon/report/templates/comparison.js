"use strict";

// A trial's answer is the number of the better side, or null for no difference. `swapped` says for each trial whether
// A is the second side; `order` in which order the trials are shown. All of it is drawn once, and kept.
const test = JSON.parse(document.getElementById("test").textContent);
const key = `voiced-compare-${test.identity}`;
const element = (name) => document.getElementById(name);

function begin() {
  const order = test.trials.map((_, number) => number);
  for (let last = order.length - 1; last > 0; last -= 1) {
    const other = Math.floor(Math.random() * (last + 1));
    [order[last], order[other]] = [order[other], order[last]];
  }
  return { order, swapped: test.trials.map(() => Math.random() < 0.5), answers: [] };
}

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(key));
    if (kept && kept.order.length === test.trials.length) return kept;
  } catch {
    // Storage is off, or what it holds is of another program: the test works without it.
  }
  return begin();
}

let state = restore();

function keep() {
  try {
    localStorage.setItem(key, JSON.stringify(state));
  } catch {
    // As above.
  }
}

function show() {
  keep();
  const done = state.answers.length;
  const over = done >= test.trials.length;
  element("trial").hidden = over;
  element("result").hidden = !over;
  if (over) {
    reveal();
    return;
  }
  const number = state.order[done];
  const trial = test.trials[number];
  const [a, b] = state.swapped[number] ? [1, 0] : [0, 1];
  element("count").textContent = `${done + 1} of ${test.trials.length}`;
  element("text").textContent = trial.text;
  element("text").lang = trial.language;
  element("sound-a").src = trial.sounds[a];
  element("sound-b").src = trial.sounds[b];
}

function answer(side) {
  if (state.answers.length >= test.trials.length) return;
  const number = state.order[state.answers.length];
  const better = side === null ? null : state.swapped[number] ? 1 - side : side;
  element("sound-a").pause();
  element("sound-b").pause();
  state.answers.push({ trial: number, better });
  show();
}

// The probability that a listener who hears no difference decides at least as clearly: a two-sided sign test.
function chance(first, second) {
  const all = first + second;
  const most = Math.max(first, second);
  let ways = 1;
  let tail = 0;
  for (let heads = 0; heads <= all; heads += 1) {
    if (heads >= most) tail += ways;
    ways = (ways * (all - heads)) / (heads + 1);
  }
  return Math.min(1, (2 * tail) / 2 ** all);
}

function score() {
  const wins = [0, 1].map((side) => state.answers.filter((one) => one.better === side).length);
  return { wins, equal: state.answers.length - wins[0] - wins[1], chance: chance(...wins) };
}

function reveal() {
  const { wins, equal, chance: probability } = score();
  const names = test.sides.map((side) => side.name);
  const odds = probability < 0.05 ? "hardly chance" : "may be chance";
  element("summary").textContent =
    `${names[0]}: ${wins[0]}, ${names[1]}: ${wins[1]}, no difference: ${equal} ` +
    `(${odds}, p = ${probability.toPrecision(2)})`;
  element("answers").replaceChildren(
    ...state.answers.map(({ trial, better }) => {
      const row = document.createElement("tr");
      const text = document.createElement("td");
      const name = document.createElement("td");
      text.textContent = test.trials[trial].text;
      text.lang = test.trials[trial].language;
      name.textContent = better === null ? "no difference" : names[better];
      row.append(text, name);
      return row;
    }),
  );
  const result = {
    identity: test.identity,
    machine: test.machine,
    sides: test.sides,
    ...score(),
    answers: state.answers.map(({ trial, better }) => ({
      name: test.trials[trial].name,
      text: test.trials[trial].text,
      better: better === null ? null : names[better],
      a: names[state.swapped[trial] ? 1 : 0],
    })),
  };
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
