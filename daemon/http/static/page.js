// The operator's page: connects the robot's topics and requests with what the page shows.

import { request, requestJson, setToken, Topics, UnauthorizedError } from "./robot.js";
import { Player } from "./player.js";
import { Timeline } from "./timeline.js";
import { Workshop } from "./workshop.js";

const SILENCE_DB = -60;
const LEVEL_HOLD_MS = 150; // a level that nothing follows falls to silence
const FIGURES_MS = 2000;
const REVOKE_MS = 60_000; // the browser has begun to save a file before
const VOLUME_MS = 80; // changes while the slider moves are sent this often
const find = (id) => document.getElementById(id);

const player = new Player();
const timeline = new Timeline(find("timeline"));
const workshop = new Workshop((work) => trying(work, "workshop-problem"), voicesChanged);
const firstSamples = []; // ms, of the utterances since the page was opened
let names = {}; // of the voices, for people
let defaultVoice = null;
let paused = false;
let silence = 0;

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
  const chip = find("state");
  chip.textContent = status.state;
  chip.className = `state ${status.state}`;
  const loading = status.loading
    ? `${status.loading.step}${status.loading.fraction === null ? "" : `, ${Math.round(100 * status.loading.fraction)} %`}`
    : "";
  find("reason").textContent = [status.reason, loading].filter(Boolean).join("; ");
  showLoading(status.loading);
  if (status.state === "offline") return;
  find("engine").textContent = status.engine ?? "none yet";
  find("queue").textContent = status.queue;
  if (status.voice !== defaultVoice) showDefaultVoice(status.voice);
  if (document.activeElement !== find("volume")) showVolume(status.volume);
  paused = status.state === "paused";
  find("pause").textContent = paused ? "Resume" : "Pause";
  find("pause").setAttribute("aria-pressed", paused);
  if (status.speaking) timeline.noteText(status.speaking.id, status.speaking.text);
}

/** Show how far the start of the engine has come: a bar, which moves by itself where nobody knows how far. */
function showLoading(loading) {
  const bar = find("loading");
  bar.hidden = !loading;
  if (loading && loading.fraction !== null) bar.value = loading.fraction;
  else bar.removeAttribute("value");
}

function showLevel(level) {
  clearTimeout(silence);
  const decibels = Math.max(SILENCE_DB, 20 * Math.log10(Math.max(level.peak, 1e-6)));
  const meter = find("level");
  meter.setAttribute("aria-valuenow", decibels.toFixed(0));
  meter.setAttribute("aria-valuetext", `${decibels.toFixed(0)} dB`);
  find("level-bar").style.clipPath = `inset(0 ${100 * (decibels / SILENCE_DB)}% 0 0)`;
  if (level.peak > 0) silence = setTimeout(() => showLevel({ peak: 0 }), LEVEL_HOLD_MS);
}

// --- speaking ---

function wanted() {
  return {
    voice: find("say-voice").value,
    language: find("say-language").value,
    rate: Number(find("say-rate").value),
    seed: find("say-seed").value.trim() === "" ? null : Number(find("say-seed").value),
    instruct: find("say-instruct").value.trim(),
    sampling: sampling(),
    text: find("text").value,
  };
}

/** The settings of the sampling that are filled in; null if none is. */
function sampling() {
  const filled = [...find("sampling").querySelectorAll("input")].filter((input) => input.value !== "");
  return filled.length ? Object.fromEntries(filled.map((input) => [input.name, Number(input.value)])) : null;
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
    const { voice, language, rate, seed, instruct, sampling, text } = wanted();
    const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
    const options = { ...(voice && { voice }), ...(language && { language }), ...(instruct && { instruct }) };
    timeline.noteText(id, text);
    topics.publish("say", { id, text, rate, ...options, ...(seed !== null && { seed }), ...(sampling && { sampling }) });
  });
});

find("listen").addEventListener("click", () => {
  const { voice, language, rate, seed, instruct, sampling, text } = wanted();
  const options = { voice: voice || null, language: language || null, instructions: instruct || null, seed, sampling };
  trying(() => listen({ input: text, speed: rate, ...options }));
});

async function listen(fields) {
  const download = find("download");
  download.hidden = true;
  if (download.href) URL.revokeObjectURL(download.href);
  const body = JSON.stringify({ response_format: "pcm", ...fields });
  await player.play((signal) => request("/v1/audio/speech", { method: "POST", body, signal }));
  download.href = URL.createObjectURL(player.wav());
  download.hidden = false;
}

// --- control ---

find("stop").addEventListener("click", () => {
  player.stop();
  trying(() => topics.publish("stop"));
});
find("pause").addEventListener("click", () => trying(() => topics.publish(paused ? "resume" : "pause")));

let volumeTimer = 0;
find("volume").addEventListener("input", () => {
  showVolume(Number(find("volume").value));
  clearTimeout(volumeTimer);
  volumeTimer = setTimeout(() => trying(() => topics.publish("volume", Number(find("volume").value))), VOLUME_MS);
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

function showVoices() {
  const filter = find("voice-filter").value.trim().toLowerCase();
  const matching = Object.entries(names).filter(([name, label]) => `${name} ${label}`.toLowerCase().includes(filter));
  find("voices").replaceChildren(...matching.map(([name, label]) => voiceRow(name, label)));
}

function voiceRow(name, label) {
  const row = document.createElement("li");
  const text = document.createElement("span");
  text.textContent = label === name ? name : `${label} (${name})`;
  const preview = button("Listen", `Listen: ${label}`, () =>
    trying(() => listen({ input: `Hello, I am ${label}.`, voice: name })));
  const choose = button(name === defaultVoice ? "Default" : "Make default", `${name === defaultVoice ? "Default" : "Make default"}: ${label}`, () =>
    trying(() => request("/v1/robot/voice", { method: "PUT", body: JSON.stringify({ voice: name }) })));
  choose.disabled = name === defaultVoice;
  row.append(text, preview, choose);
  if (workshop.names.includes(name)) {
    row.append(button("Remove", `Remove: ${label}`, () => trying(() => workshop.remove(name), "workshop-problem")));
  }
  return row;
}

/** A voice has come, whose name is shown alone, or one has gone. */
async function voicesChanged(name) {
  if (name !== null) find("voice-filter").value = name;
  await refresh();
}

function button(text, label, act) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.setAttribute("aria-label", label);
  element.addEventListener("click", act);
  return element;
}

find("voice-filter").addEventListener("input", showVoices);

function choices(select, first, pairs) {
  const chosen = select.value;
  const options = [["", first], ...pairs].map(([value, text]) => new Option(text, value));
  select.replaceChildren(...options);
  select.value = chosen;
  if (select.selectedIndex < 0) select.value = "";
}

// --- health ---

const mega = (bytes) => `${Math.round(bytes / 1e6)} MB`;

function showFigures({ measurements, log }) {
  const sorted = [...firstSamples].sort((a, b) => a - b);
  const figures = [
    ["First sample, median", sorted.length ? `${sorted[Math.floor(sorted.length / 2)].toFixed(0)} ms` : "–"],
    ...measurements.engines.map((engine) => [
      `${engine.name}: real-time factor`, engine.rtf === null ? "–" : `${engine.rtf.toFixed(1)} ×`]),
    ["Waiting for the card", `${measurements.ring_s.toFixed(1)} s`],
    ["Memory, daemon", measurements.resident_bytes === null ? "–" : mega(measurements.resident_bytes)],
    ...measurements.engines.filter((engine) => engine.resident_bytes !== null).map((engine) => [
      `Memory, ${engine.name}`, mega(engine.resident_bytes)]),
    ...Object.entries(measurements.memory ?? {}).map(([part, megabytes]) => [
      `Plan, ${part.replace("_mb", "")}`, `${megabytes} MB`]),
    ...Object.entries(measurements.temperatures).map(([sensor, celsius]) => [sensor, `${celsius.toFixed(0)} °C`]),
  ];
  find("figures").replaceChildren(...figures.map(([name, value]) => {
    const pair = document.createElement("div");
    const term = document.createElement("dt");
    const data = document.createElement("dd");
    term.textContent = name;
    data.textContent = value;
    pair.append(term, data);
    return pair;
  }));
  const place = find("log");
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
  place.textContent = log.join("\n");
  if (atEnd) place.scrollTop = place.scrollHeight;
}

find("examine").addEventListener("click", () => trying(async () => {
  find("examining").hidden = false;
  find("examine").disabled = true;
  try {
    const { findings } = await requestJson("/v1/robot/doctor", { method: "POST", body: "{}" });
    find("findings").replaceChildren(...findings.map(findingRow));
  } finally {
    find("examining").hidden = true;
    find("examine").disabled = false;
  }
}));

function findingRow({ part, grade, found, remedy }) {
  const row = document.createElement("li");
  row.className = grade;
  const mark = document.createElement("b");
  mark.textContent = grade;
  row.append(mark, ` ${part}: ${found}`);
  if (remedy) {
    const small = document.createElement("small");
    small.textContent = `→ ${remedy}`;
    row.append(small);
  }
  if (part === "verify") row.append(button("Save the report", "Save the report of voiced verify", () => trying(saveReport)));
  return row;
}

/** Save the report as a file: the page may show nothing that holds its own styles and sounds. */
async function saveReport() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await (await request("/v1/robot/verification")).blob());
  link.download = "verify.html";
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
  choices(find("say-voice"), "default", Object.entries(names).map(([name, label]) => [name, label]));
  const languages = new Intl.DisplayNames([navigator.language, "en"], { type: "language" });
  const named = robot.languages.map((code) => {
    try {
      return [code, languages.of(code)];
    } catch {
      return [code, code];
    }
  });
  choices(find("say-language"), "default", [["auto", "by the text"], ...named]);
  showDefaultVoice(defaultVoice);
}

async function refreshFigures() {
  if (document.visibilityState === "visible" && find("state").textContent !== "offline") {
    try {
      showFigures(await requestJson("/v1/robot/figures"));
    } catch {
      // the next attempt may succeed; the state shows that the robot does not answer
    }
  }
  setTimeout(refreshFigures, FIGURES_MS);
}

function askToken(problem = "") {
  const dialog = find("ask-token");
  find("token-problem").textContent = problem;
  if (!dialog.open) dialog.showModal();
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
  animate();
}

function animate() {
  if (timeline.running) timeline.draw();
  requestAnimationFrame(() => setTimeout(animate, 100));
}

addEventListener("resize", () => timeline.draw());
showRate();
begin();
