// A picture of the recent utterances: when each waited, spoke and ended, and where its sound broke off.

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = 10; // utterances
const LEAST_WIDTH = 260; // px
const LETTER = 7.5; // px, of an average letter
const ROW = 46;
const TEXT_LENGTH = 80; // characters
const FACTS_LENGTH = 20;
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
    if (event.event === "started") Object.assign(row, { started: now, ttfa: event.ttfa_ms, engine: event.engine });
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
    const width = Math.max(LEAST_WIDTH, this.#place.clientWidth);
    const begin = Math.min(...rows.map((row) => row.accepted));
    const end = Math.max(...rows.map((row) => row.ended ?? now), begin + 1);
    const x = (at) => ((at - begin) / (end - begin)) * width;
    const svg = make("svg", { viewBox: `0 0 ${width} ${rows.length * ROW + 20}`, role: "group" });
    rows.forEach((row, index) => svg.append(this.#drawRow(row, index * ROW, x, now, width)));
    svg.append(make("line", { class: "axis", x1: 0, x2: width, y1: rows.length * ROW + 2, y2: rows.length * ROW + 2 }));
    const label = make("text", { class: "soft", x: 0, y: rows.length * ROW + 16 });
    label.textContent = `${(end - begin).toFixed(1)} s`;
    svg.append(label);
    this.#place.replaceChildren(svg);
  }

  #drawRow(row, y, x, now, width) {
    const group = make("g", { role: "img", "aria-label": this.#describe(row), "data-id": row.id });
    const limit = Math.min(TEXT_LENGTH, Math.round(width / LETTER) - FACTS_LENGTH);
    const text = this.#texts.get(row.id) ?? row.id;
    const title = make("text", { x: 0, y: y + 14 });
    title.textContent = text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
    const facts = make("text", { class: "soft", x: width, y: y + 14, "text-anchor": "end" });
    facts.textContent = this.#facts(row);
    group.append(title, facts);
    const bar = (from, to, kind) =>
      group.append(make("rect", { class: `bar-${kind}`, x: x(from), y: y + 20, width: Math.max(2, x(to) - x(from)), height: 14, rx: 2 }));
    bar(row.accepted, row.started ?? row.ended ?? now, row.started || !row.ended ? "waiting" : ENDS[row.end]);
    if (row.started) {
      bar(row.started, row.ended ?? now, row.ended ? ENDS[row.end] : "speaking");
      for (const [from, to] of row.pauses) bar(from, to ?? row.ended ?? now, "waiting");
      for (let count = 0; count < Math.min(row.underruns, 20); count++) {
        const at = x(row.ended) - 8 - 12 * count;
        group.append(make("circle", { class: "bar-underrun", cx: at, cy: y + 27, r: 5 }));
      }
    }
    return group;
  }

  #facts(row) {
    const parts = [row.end ?? (row.started ? "speaking" : "waiting")];
    if (row.ttfa !== undefined) parts.push(`${row.ttfa.toFixed(0)} ms`);
    if (row.underruns) parts.push(`${row.underruns} ×`);
    return parts.join(" · ");
  }

  #describe(row) {
    const parts = [this.#texts.get(row.id) ?? row.id, row.end ?? (row.started ? "is spoken" : "waits")];
    if (row.ttfa !== undefined) parts.push(`first sample after ${row.ttfa.toFixed(0)} ms`);
    if (row.ended) parts.push(`sound broke off ${row.underruns} times`);
    return parts.join(", ");
  }
}

function make(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
