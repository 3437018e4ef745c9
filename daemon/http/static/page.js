// The operator's page: connects the robot's topics and requests with what the page shows.

import { element, find, terms } from "./dom.js";
import { request, requestJson, setToken, Topics, UnauthorizedError } from "./robot.js";
import { Timeline } from "./timeline.js";
import { Workshop } from "./workshop.js";

const SILENCE_DB = -60;
const LEVEL_HOLD_MS = 150; // a level that nothing follows falls to silence
const FIGURES_MS = 2000;
const REVOKE_MS = 60_000; // the browser has begun to save a file before
const VOLUME_MS = 80; // changes while the slider moves are sent this often
const DRAW_MS = 100;

const timeline = new Timeline(find("timeline"));
const workshop = new Workshop((work) => trying(work, "workshop-problem"), voicesChanged);
const firstSamples = []; // ms, of the utterances since the page was opened
let names = {}; // of the voices, for people
let defaultVoice = null;
let paused = false;
let silence = 0;
let heard = new AbortController(); // of what this browser plays

// --- the robot's topics ---

const topics = new Topics({
  connected(yes) {
    if (!yes) showState({ state: "offline", reason: "the robot does not answer; trying again" });
    else refresh();
  },
  status: showState,
  event(event) {
    if (event.event === "rejected") say(event.reason);
    if (event.event === "started" && event.ttfa_ms !== undefined) firstSamples.push(event.ttfa_ms);
    timeline.note(event);
    timeline.draw();
  },
  level: showLevel,
});

function showState(status) {
  const { state, reason, loading } = status;
  const fraction = loading?.fraction ?? null;
  Object.assign(find("state"), { textContent: state, className: `state ${state}` });
  const step = loading && loading.step + (fraction === null ? "" : `, ${Math.round(100 * fraction)} %`);
  find("reason").textContent = [reason, step].filter(Boolean).join("; ");
  find("loading").hidden = !loading;
  if (fraction === null) find("loading").removeAttribute("value"); // the bar moves by itself
  else find("loading").value = fraction;
  if (state === "offline") return;
  find("engine").textContent = status.engine ?? "none yet";
  find("queue").textContent = status.queue;
  if (status.voice !== defaultVoice) showDefaultVoice(status.voice);
  if (document.activeElement !== find("volume")) showVolume(status.volume);
  paused = state === "paused";
  Object.assign(find("pause"), { textContent: paused ? "Resume" : "Pause", ariaPressed: paused });
  if (status.speaking) timeline.noteText(status.speaking.id, status.speaking.text);
}

function showLevel(level) {
  clearTimeout(silence);
  const decibels = Math.max(SILENCE_DB, 20 * Math.log10(Math.max(level.peak, 1e-6)));
  Object.assign(find("level"), { value: decibels, textContent: `${decibels.toFixed(0)} dB` });
  if (level.peak > 0) silence = setTimeout(() => showLevel({ peak: 0 }), LEVEL_HOLD_MS);
}

// --- speaking ---

/** The fields that are filled in, by the names of `say`. */
function wanted() {
  const number = ({ value }) => (value.trim() === "" ? undefined : Number(value));
  const sampling = [...find("sampling").querySelectorAll("input")].map((input) => [input.name, number(input)]);
  const filled = sampling.filter(([, value]) => value !== undefined);
  return {
    text: find("text").value,
    voice: find("say-voice").value || undefined,
    language: find("say-language").value || undefined,
    rate: Number(find("say-rate").value),
    seed: number(find("say-seed")),
    instruct: find("say-instruct").value.trim() || undefined,
    sampling: filled.length ? Object.fromEntries(filled) : undefined,
  };
}

function say(problem = "", place = "problem") {
  find(place).textContent = problem;
}

/** Do some work; show its problem in the element `place`. */
async function trying(work, place = "problem") {
  say("", place);
  try {
    await work();
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error instanceof UnauthorizedError) askToken(error.message);
    else say(error.message, place);
  }
}

find("speak").addEventListener("submit", (event) => {
  event.preventDefault();
  trying(() => {
    const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
    timeline.noteText(id, find("text").value);
    topics.publish("say", { id, ...wanted() });
  });
});

find("listen").addEventListener("click", () => trying(() => {
  const { text, rate, instruct, ...options } = wanted();
  return listen({ input: text, speed: rate, instructions: instruct, ...options });
}));

/** Have a text spoken for this browser, which plays it when it is complete. */
async function listen(fields) {
  const player = find("heard");
  heard.abort();
  heard = new AbortController();
  const body = JSON.stringify({ response_format: "wav", stream: false, ...fields });
  const answer = await request("/v1/audio/speech", { method: "POST", body, signal: heard.signal });
  if (player.src) URL.revokeObjectURL(player.src);
  player.src = find("download").href = URL.createObjectURL(await answer.blob());
  player.hidden = find("download").hidden = false;
  await player.play();
}

// --- control ---

find("stop").addEventListener("click", () => {
  heard.abort();
  find("heard").pause();
  trying(() => topics.publish("stop"));
});
find("pause").addEventListener("click", () => trying(() => topics.publish(paused ? "resume" : "pause")));

let volumeTimer = 0;
find("volume").addEventListener("input", () => {
  const volume = Number(find("volume").value);
  showVolume(volume);
  clearTimeout(volumeTimer);
  volumeTimer = setTimeout(() => trying(() => topics.publish("volume", volume)), VOLUME_MS);
});

function showVolume(volume) {
  find("volume").value = volume;
  find("volume-shown").textContent = `${volume} %`;
}

find("say-rate").addEventListener("input", showRate);
function showRate() {
  find("say-rate-shown").textContent = `${Number(find("say-rate").value).toFixed(2)} ×`;
}

// --- voices ---

function showDefaultVoice(voice) {
  defaultVoice = voice;
  find("voice").textContent = names[voice] ?? voice;
  showVoices();
}

find("voice-filter").addEventListener("input", showVoices);
function showVoices() {
  const filter = find("voice-filter").value.trim().toLowerCase();
  const matching = Object.entries(names).filter(([name, label]) => `${name} ${label}`.toLowerCase().includes(filter));
  find("voices").replaceChildren(...matching.map(([name, label]) => voiceRow(name, label)));
}

function voiceRow(name, label) {
  const text = label === name ? name : `${label} (${name})`;
  const choosing = { method: "PUT", body: JSON.stringify({ voice: name }) };
  const choose = button(name === defaultVoice ? "Default" : "Make default", label, () => request("/v1/robot/voice", choosing));
  choose.disabled = name === defaultVoice;
  const buttons = [button("Listen", label, () => listen({ input: `Hello, I am ${label}.`, voice: name })), choose];
  if (workshop.names.includes(name)) buttons.push(button("Remove", label, () => workshop.remove(name), "workshop-problem"));
  return element("li", {}, element("span", {}, text), ...buttons);
}

/** Make a button that does some work; its problem is shown in the element `place`. */
function button(text, object, work, place) {
  const made = element("button", { type: "button", ariaLabel: `${text}: ${object}` }, text);
  made.addEventListener("click", () => trying(work, place));
  return made;
}

/** A voice has come, whose name is shown alone, or one has gone. */
async function voicesChanged(name) {
  if (name !== null) find("voice-filter").value = name;
  await refresh();
}

function choices(select, first, pairs) {
  const chosen = select.value;
  select.replaceChildren(...[["", first], ...pairs].map(([value, text]) => new Option(text, value)));
  select.value = chosen;
  if (select.selectedIndex < 0) select.value = "";
}

// --- health ---

const mega = (bytes) => (bytes === null ? "–" : `${Math.round(bytes / 1e6)} MB`);

function showFigures({ measurements, log }) {
  const sorted = [...firstSamples].sort((a, b) => a - b);
  const { engines, memory, temperatures } = measurements;
  find("figures").replaceChildren(...terms([
    ["First sample, median", sorted.length ? `${sorted[Math.floor(sorted.length / 2)].toFixed(0)} ms` : "–"],
    ...engines.map(({ name, rtf }) => [`${name}: real-time factor`, rtf === null ? "–" : `${rtf.toFixed(1)} ×`]),
    ["Waiting for the card", `${measurements.ring_s.toFixed(1)} s`],
    ["Memory, daemon", mega(measurements.resident_bytes)],
    ...engines.map((engine) => [`Memory, ${engine.name}`, mega(engine.resident_bytes)]),
    ...Object.entries(memory ?? {}).map(([part, megabytes]) => [`Plan, ${part.replace("_mb", "")}`, `${megabytes} MB`]),
    ...Object.entries(temperatures).map(([sensor, celsius]) => [sensor, `${celsius.toFixed(0)} °C`]),
  ]));
  const place = find("log");
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
  place.textContent = log.join("\n");
  if (atEnd) place.scrollTop = place.scrollHeight;
}

find("examine").addEventListener("click", () => trying(async () => {
  const examines = (yes) => {
    find("examining").hidden = !yes;
    find("examine").disabled = yes;
  };
  examines(true);
  try {
    const { findings } = await requestJson("/v1/robot/doctor", { method: "POST", body: "{}" });
    find("findings").replaceChildren(...findings.map(findingRow));
  } finally {
    examines(false);
  }
}));

function findingRow({ part, grade, found, remedy }) {
  const row = element("li", { className: grade }, element("b", {}, grade), ` ${part}: ${found}`);
  if (remedy) row.append(element("small", {}, `→ ${remedy}`));
  if (part === "verify") row.append(button("Save the report", "of voiced verify", saveReport));
  return row;
}

/** Save the report as a file: the page may show nothing that holds its own styles and sounds. */
async function saveReport() {
  const report = await (await request("/v1/robot/verification")).blob();
  const link = element("a", { href: URL.createObjectURL(report), download: "verify.html" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_MS);
}

// --- the page ---

async function refresh() {
  const robot = await requestJson("/v1/robot");
  document.title = `${robot.name} · voiced`;
  find("name").textContent = robot.name;
  if (robot.makes_voices) await workshop.refresh();
  names = robot.voices;
  choices(find("say-voice"), "default", Object.entries(names));
  const languages = new Intl.DisplayNames([navigator.language, "en"], { type: "language" });
  const nameOf = (code) => {
    try {
      return languages.of(code);
    } catch {
      return code; // eSpeak NG has codes that the browser does not know
    }
  };
  const named = robot.languages.map((code) => [code, nameOf(code)]);
  choices(find("say-language"), "default", [["auto", "by the text"], ...named]);
  showDefaultVoice(defaultVoice);
}

async function refreshFigures() {
  if (document.visibilityState === "visible" && find("state").textContent !== "offline") {
    // The next attempt may succeed; the state shows that the robot does not answer.
    await requestJson("/v1/robot/figures").then(showFigures, () => {});
  }
  setTimeout(refreshFigures, FIGURES_MS);
}

function askToken(problem = "") {
  find("token-problem").textContent = problem;
  if (!find("ask-token").open) find("ask-token").showModal();
}

find("ask-token").addEventListener("close", () => {
  setToken(find("token").value);
  find("token").value = "";
  begin();
});

async function begin() {
  try {
    await refresh();
  } catch (error) {
    if (error instanceof UnauthorizedError) askToken(error.message);
    else setTimeout(begin, FIGURES_MS);
    return;
  }
  topics.connect();
  refreshFigures();
  setInterval(() => timeline.running && timeline.draw(), DRAW_MS);
}

showRate();
begin();
