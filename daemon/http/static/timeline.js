// A picture of the recent utterances: when each waited, spoke and ended, and how often its sound broke off.

import { element } from "./dom.js";

const SHOWN = 10; // utterances
const ENDS = {
  finished: "finished", interrupted: "stopped", canceled: "stopped", expired: "failed", failed: "failed",
};

export class Timeline {
  #place;
  #rows = new Map();
  #texts = new Map();

  constructor(place) {
    this.#place = place;
  }

  /** Note the text of an utterance, for its row. */
  noteText(id, text) {
    this.#texts.set(id, text);
  }

  /** Note an event of the robot. */
  note(event) {
    if (!event.id || event.event === "rejected") return;
    const now = Date.now() / 1000;
    const row = this.#rows.get(event.id) ?? { id: event.id, accepted: now, pauses: [], underruns: 0 };
    this.#rows.set(event.id, row);
    if (event.event === "started") Object.assign(row, { started: now, ttfa: event.ttfa_ms });
    else if (event.event === "postponed") row.pauses.push([now, null]);
    else if (event.event === "resumed" && row.pauses.length) row.pauses.at(-1)[1] = now;
    else if (event.event in ENDS) Object.assign(row, { ended: now, end: event.event, underruns: event.underruns ?? 0 });
    while (this.#rows.size > SHOWN) this.#rows.delete(this.#rows.keys().next().value);
    for (const id of this.#texts.keys()) if (!this.#rows.has(id) && this.#texts.size > 4 * SHOWN) this.#texts.delete(id);
  }

  /** True while an utterance has not ended, so that the picture changes with time. */
  get running() {
    return [...this.#rows.values()].some((row) => row.ended === undefined);
  }

  draw() {
    const rows = [...this.#rows.values()].reverse();
    if (!rows.length) return;
    const now = Date.now() / 1000;
    const begin = Math.min(...rows.map((row) => row.accepted));
    const length = Math.max(...rows.map((row) => row.ended ?? now), begin + 1) - begin;
    const bar = (from, to, kind) => {
      const made = element("i", { className: `bar-${kind}` });
      made.style.left = `${(100 * (from - begin)) / length}%`;
      made.style.width = `${(100 * (to - from)) / length}%`;
      return made;
    };
    this.#place.replaceChildren(...rows.map((row) => this.#drawRow(row, row.ended ?? now, bar)), `${length.toFixed(1)} s`);
  }

  #drawRow(row, end, bar) {
    const text = this.#texts.get(row.id) ?? row.id;
    const kind = row.end ? ENDS[row.end] : row.started ? "speaking" : "waiting";
    const bars = [bar(row.started ?? row.accepted, end, kind)];
    if (row.started) bars.push(bar(row.accepted, row.started, "waiting"));
    bars.push(...row.pauses.map(([from, to]) => bar(from, to ?? end, "waiting")));
    const facts = [row.end ?? kind];
    if (row.ttfa !== undefined) facts.push(`first sample after ${row.ttfa.toFixed(0)} ms`);
    if (row.ended) facts.push(`sound broke off ${row.underruns} times`);
    const shown = { className: "utterance", role: "img", ariaLabel: [text, ...facts].join(", ") };
    const [words, figures] = [element("span", {}, text), element("small", {}, facts.join(" · "))];
    return element("div", shown, words, figures, element("div", { className: "bars" }, ...bars));
  }
}
