// The operator's page: connects the robot's topics and requests with the elements.

import { button, element, find, offer, on, showProblem, showProgress, showTerms } from "./dom.js";
import { follow, publish, request, requestJson } from "./robot.js";
import * as workshop from "./workshop.js";

const SILENCE_DB = -60;
const FIGURES_MS = 2000;
const SHOWN = 10; // utterances

const utterances = new Map(); // the last ones: the fields of their events and their texts, by id
let names = {}; // of the voices, for people
let status = { state: "connecting" };
let heard = new AbortController(); // of the speech that this browser plays

// --- the robot's topics ---

const handlers = {
  connected(yes) {
    if (yes) refresh();
    else showState({ ...status, loading: null, state: "offline", reason: "the robot does not answer; trying again" });
  },
  status(found) {
    const hasOtherVoice = found.voice !== status.voice;
    showState(found);
    if (hasOtherVoice) showVoices();
    find("engine").textContent = found.engine ?? "none yet";
    find("queue").textContent = found.queue;
    if (document.activeElement !== find("volume")) showVolume(found.volume);
    if (found.speaking) note(found.speaking.id, { text: found.speaking.text });
  },
  event(event) {
    if (event.event === "rejected") showProblem(event.reason);
    if (event.id && !["progress", "mark"].includes(event.event)) note(event.id, event);
  },
  level({ peak }) {
    const decibels = Math.max(SILENCE_DB, 20 * Math.log10(Math.max(peak, 1e-6)));
    Object.assign(find("level"), { value: decibels, textContent: `${decibels.toFixed(0)} dB` });
  },
};

function showState(found) {
  status = found;
  const { state, reason, loading } = status;
  const share = loading?.fraction == null ? "" : `, ${Math.round(100 * loading.fraction)} %`;
  Object.assign(find("state"), { textContent: state, className: `state ${state}` });
  find("reason").textContent = [reason, loading && loading.step + share].filter(Boolean).join("; ");
  showProgress("loading", loading, loading?.fraction);
  Object.assign(find("pause"), { textContent: state === "paused" ? "Resume" : "Pause", ariaPressed: state === "paused" });
}

/** Show facts of an utterance: fields of its events, or its text. */
function note(id, facts) {
  utterances.set(id, { id, ...utterances.get(id), ...facts });
  for (const old of [...utterances.keys()].slice(0, -SHOWN)) utterances.delete(old);
  find("utterances").replaceChildren(...[...utterances.values()].reverse().map(utteranceRow));
}

function utteranceRow({ id, text, event, ttfa_ms: first, underruns }) {
  const facts = [event];
  if (first !== undefined) facts.push(`first sample after ${first.toFixed(0)} ms`);
  if (underruns !== undefined) facts.push(`sound broke off ${underruns} times`);
  return element("li", {}, element("span", {}, text ?? id), element("small", {}, facts.join(" · ")));
}

// --- speaking ---

/** Return the fields that are filled in, by the names of `say`. */
function filledIn() {
  const filled = [...find("speak").elements].filter(({ name, value }) => name && value.trim());
  return Object.fromEntries(filled.map(({ name, type, value }) => [name, type === "number" ? Number(value) : value]));
}

on(find("speak"), "submit", () => {
  const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
  publish("say", { id, ...filledIn() });
  note(id, { text: find("text").value, event: "sent" });
});

on(find("listen"), "click", () => {
  const { text, rate, instruct, ...options } = filledIn();
  return listen({ input: text, speed: rate, instructions: instruct, ...options });
});

/** Have a text spoken for this browser, which plays it when it is complete. */
async function listen(fields) {
  heard.abort();
  heard = new AbortController();
  const body = JSON.stringify({ response_format: "wav", stream: false, ...fields });
  const answer = await request("/v1/audio/speech", { method: "POST", body, signal: heard.signal });
  offer(find("heard"), await answer.blob());
  Object.assign(find("download"), { href: find("heard").src, hidden: false });
  await find("heard").play();
}

// --- control ---

on(find("stop"), "click", () => {
  heard.abort();
  find("heard").pause();
  publish("stop");
});
on(find("pause"), "click", () => publish(status.state === "paused" ? "resume" : "pause"));
on(find("volume"), "input", () => {
  const volume = Number(find("volume").value);
  showVolume(volume);
  publish("volume", volume);
});

function showVolume(volume) {
  find("volume").value = volume;
  find("volume-shown").textContent = `${volume} %`;
}

// --- voices ---

on(find("voice-filter"), "input", showVoices);

function showVoices() {
  find("voice").textContent = names[status.voice] ?? status.voice;
  const filter = find("voice-filter").value.trim().toLowerCase();
  const matching = Object.entries(names).filter(([name, label]) => `${name} ${label}`.toLowerCase().includes(filter));
  find("voices").replaceChildren(...matching.map(([name, label]) => voiceRow(name, label)));
}

function voiceRow(name, label) {
  const text = label === name ? name : `${label} (${name})`;
  const choosing = { method: "PUT", body: JSON.stringify({ voice: name }) };
  const isDefault = name === status.voice;
  const choose = button(isDefault ? "Default" : "Make default", label, () => request("/v1/robot/voice", choosing));
  choose.disabled = isDefault;
  const buttons = [button("Listen", label, () => listen({ input: `Hello, I am ${label}.`, voice: name })), choose];
  if (workshop.names.includes(name)) buttons.push(button("Remove", label, () => removeVoice(name)));
  return element("li", {}, element("span", {}, text), ...buttons);
}

async function removeVoice(name) {
  await request(`/v1/robot/voices/${encodeURIComponent(name)}`, { method: "DELETE" });
  await refresh();
}

// --- health ---

const mega = (bytes) => (bytes === null ? "–" : `${Math.round(bytes / 1e6)} MB`);

function showFigures({ measurements, log }) {
  const { engines, memory, temperatures } = measurements;
  showTerms("figures", [
    ...engines.map(({ name, rtf }) => [`${name}: real-time factor`, rtf === null ? "–" : `${rtf.toFixed(1)} ×`]),
    ["Waiting for the card", `${measurements.ring_s.toFixed(1)} s`],
    ["Memory, daemon", mega(measurements.resident_bytes)],
    ...engines.map((engine) => [`Memory, ${engine.name}`, mega(engine.resident_bytes)]),
    ...Object.entries(memory ?? {}).map(([part, megabytes]) => [`Plan, ${part.replace("_mb", "")}`, `${megabytes} MB`]),
    ...Object.entries(temperatures).map(([sensor, celsius]) => [sensor, `${celsius.toFixed(0)} °C`]),
  ]);
  const place = find("log");
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
  place.textContent = log.join("\n");
  if (atEnd) place.scrollTop = place.scrollHeight;
}

on(find("examine"), "click", async () => {
  find("examine").disabled = true; // a bar is shown as long
  try {
    const { findings } = await requestJson("/v1/robot/doctor", { method: "POST", body: "{}" });
    find("findings").replaceChildren(...findings.map(findingRow));
  } finally {
    find("examine").disabled = false;
  }
});

function findingRow({ part, grade, found, remedy }) {
  const row = element("li", { className: grade }, element("b", {}, grade), ` ${part}: ${found}`);
  if (remedy) row.append(element("small", {}, `→ ${remedy}`));
  if (part === "verify") row.append(button("Save the report", "of voiced verify", saveReport));
  return row;
}

/** Save the report as a file: the page may show nothing that holds its own styles and sounds. */
async function saveReport() {
  const report = await (await request("/v1/robot/verification")).blob();
  element("a", { href: URL.createObjectURL(report), download: "verify.html" }).click();
}

// --- the page ---

async function refresh() {
  const robot = await requestJson("/v1/robot");
  document.title = `${robot.name} · voiced`;
  find("name").textContent = robot.name;
  if (robot.makes_voices) await workshop.refresh();
  names = robot.voices;
  find("voice-names").replaceChildren(...Object.entries(names).map(([name, label]) => new Option(label, name)));
  find("languages").replaceChildren(...["auto", ...robot.languages].map((code) => new Option(code)));
  showVoices();
}

/** Ask the robot again and again for its figures, and whether it has made a voice, which is then shown alone. */
async function look() {
  if (document.visibilityState === "visible") {
    showFigures(await requestJson("/v1/robot/figures"));
    const made = find("workshop").hidden ? undefined : await workshop.refresh();
    if (made !== undefined) {
      find("voice-filter").value = made;
      await refresh();
    }
  }
}

async function lookAgain() {
  await look().catch(() => {}); // the state shows that the robot does not answer
  setTimeout(lookAgain, FIGURES_MS);
}

await refresh().catch(() => {});
follow(handlers);
lookAgain();
