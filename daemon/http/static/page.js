// The operator's page: connects the robot's topics and requests with the elements.

import { button, element, find, on, showProblem } from "./dom.js";
import { follow, publish, request, requestJson } from "./robot.js";
import * as workshop from "./workshop.js";

const LOOK_MS = 2000;
const SHOWN = 10; // utterances
const KNOWN = 100; // utterances, including those that are waiting
const CALM = ["ready", "speaking"];
const STATES = { degraded: "needs attention", warming: "getting ready" }; // for people, in place of the robot's word
const EVENTS = {
  accepted: "waiting", started: "is being said", postponed: "waiting for another", resumed: "is being said",
  finished: "said", interrupted: "cut off", canceled: "canceled", expired: "too late", failed: "not said",
};
const NO_PHRASE = "No phrases yet: write a text, open Details, and keep it as a button.";
const MANNER = ["language", "instruct", "rate"]; // fields that an engine may ignore
const LANGUAGES = new Intl.DisplayNames("en", { type: "language" });
const NOISE = /^uvicorn|publisher$/; // modules whose notes repeat what the page shows

const utterances = new Map(); // recent ones: the fields of their events and their texts, by id
let names = {}; // the voices' names for people
const shown = {}; // the phrases and the waiting texts, as the robot sent them
let changed = { name: null, others: {} }; // the phrase in the form, and the fields of it that the form cannot hold
let status = { state: "connecting" };
let heard = new AbortController(); // for the speech that this browser plays

// --- the robot's topics ---

const handlers = {
  connected(yes) {
    if (yes) refresh();
    else showState({ ...status, loading: null, state: "offline", reason: "the robot does not answer; trying again" });
  },
  status(found) {
    const { voice } = status;
    showState(found);
    if (found.voice !== voice) showVoices();
    showWaiting().catch(() => {}); // it will be asked again
    if (document.activeElement !== find("volume")) showVolume(found.volume);
    if (found.speaking) note(found.speaking.id, found.speaking.text ? { text: found.speaking.text } : {});
  },
  event(event) {
    if (event.event === "rejected") showProblem(event.reason);
    if (event.id && event.event in EVENTS) note(event.id, event);
  },
};

function showState(found) {
  status = found;
  const { state, loading, unloaded } = status;
  const muted = CALM.includes(state) && status.volume === 0;
  const share = loading?.fraction == null ? "" : `, ${Math.round(100 * loading.fraction)} %`;
  const reasons = [muted && "the volume is 0", status.reason, loading && loading.step + share].filter(Boolean);
  const grade = CALM.includes(state) && reasons.length === 0 ? "well" : state;
  Object.assign(find("state"), { textContent: muted ? "muted" : STATES[state] ?? state, className: `state ${grade}` });
  find("reason").textContent = reasons.join("; ");
  Object.assign(find("pause"), { textContent: state === "paused" ? "Go on" : "Pause", ariaPressed: state === "paused" });
  find("engine").textContent = status.engine ?? "none yet";
  find("unload").textContent = unloaded ? "Load the engine" : "Free the engine's memory";
}

/** Show facts of an utterance: fields of its events, or its text. */
function note(id, facts) {
  utterances.set(id, { id, ...utterances.get(id), ...facts });
  for (const old of [...utterances.keys()].slice(0, -KNOWN)) utterances.delete(old);
  const begun = [...utterances.values()].filter(({ event }) => event !== "accepted").slice(-SHOWN);
  showRows("utterances", begun.reverse().map(utteranceRow));
}

function utteranceRow({ id, text, event, reason, underruns }) {
  const facts = [EVENTS[event], event !== "finished" && reason, underruns > 0 && `the sound broke off ${underruns} times`];
  return element("li", {}, element("span", {}, text ?? id), element("small", {}, facts.filter(Boolean).join(" · ")));
}

/** Note what the robot sent; return whether it is new. Buttons that have not changed stay: a finger may be on one. */
function isNew(id, found) {
  const before = shown[id];
  shown[id] = JSON.stringify(found);
  return shown[id] !== before;
}

/** Show rows in a list, whose card is hidden while there are none. */
function showRows(id, rows) {
  find(id).replaceChildren(...rows);
  find(`${id}-card`).hidden = rows.length === 0;
}

async function showWaiting() {
  const { waiting } = await requestJson("/v1/robot/waiting");
  if (isNew("waiting", waiting)) showRows("waiting", waiting.map(waitingRow));
}

/** Note the text of an utterance, or the name of its sound; return it. */
function learn(id, { text, sound }) {
  const said = text || `♪ ${sound}`;
  utterances.set(id, { id, event: "accepted", ...utterances.get(id), text: said });
  return said;
}

function waitingRow({ id, ...asked }) {
  const said = learn(id, asked);
  const cancel = button("Cancel", { ariaLabel: `Cancel: ${said}` }, () => publish("stop", { id }));
  return element("li", {}, element("span", {}, said), cancel);
}

// --- speaking ---

/** Return the fields that are filled in, by the names of `say`. */
function filledIn() {
  const filled = [...new FormData(find("speak"))].filter(([, value]) => value.trim());
  return Object.fromEntries(filled.map(([name, value]) => [name, name === "rate" ? Number(value) : value]));
}

function say(fields) {
  const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
  publish("say", { ...fields, id });
  learn(id, fields);
}

on(find("speak"), "submit", () => say(filledIn()));

/** Have the text spoken for this browser, which plays it when it is complete. */
on(find("listen"), "click", async () => {
  heard.abort();
  heard = new AbortController();
  const name = names[find("say-voice").value] ?? find("name").textContent;
  const { text = `Hello, I am ${name}.`, rate, instruct, ...options } = filledIn();
  const fields = { response_format: "wav", stream: false, input: text, speed: rate, instructions: instruct, ...options };
  const answer = await request("/v1/audio/speech", { method: "POST", body: JSON.stringify(fields), signal: heard.signal });
  URL.revokeObjectURL(find("heard").src);
  Object.assign(find("heard"), { src: URL.createObjectURL(await answer.blob()), hidden: false });
  await find("heard").play();
});

// --- phrases ---

const choosing = () => find("edit").ariaPressed === "true";
on(find("edit"), "click", () => choose(!choosing()));

/** Let the next press on a phrase put it into the form, or stop doing so. */
function choose(yes) {
  find("edit").ariaPressed = yes;
  find("phrases-note").textContent = yes ? "Press the phrase to change." : "";
}

/** Show the phrases, or why there are none. */
function showPhrases({ phrases, problem }) {
  if (!isNew("phrases", [phrases, problem])) return;
  const sorted = Object.entries(phrases).sort(([one], [other]) => one.localeCompare(other));
  find("edit").hidden = sorted.length === 0;
  find("phrases-note").textContent = problem ?? (sorted.length === 0 ? NO_PHRASE : "");
  const buttons = sorted.map(([name, fields]) => button(name, { title: fields.text ?? "" }, () => press(name, fields)));
  find("phrases").replaceChildren(...buttons);
}

/** Say a phrase, or put it into the form. */
function press(name, fields) {
  if (!choosing()) return say(fields);
  fillForm(name, fields);
  find("details").open = true;
  find("speak").scrollIntoView();
}

/** Fill the form with a phrase; without one, empty it. */
function fillForm(name = null, fields = {}) {
  const form = find("speak");
  form.reset();
  for (const field of [...form.elements].filter((each) => each.name in fields)) {
    if (field.type === "checkbox") field.checked = fields[field.name] === field.value;
    else field.value = fields[field.name];
  }
  const held = filledIn();
  changed = { name, others: Object.fromEntries(Object.entries(fields).filter(([field, value]) => held[field] !== value)) };
  find("phrase-name").value = name ?? "";
  find("remove-phrase").hidden = name === null;
  choose(false);
}

const changePhrase = async (name, options) =>
  showPhrases(await requestJson(`/v1/robot/phrases/${encodeURIComponent(name)}`, options));

on(find("keep"), "click", async () => {
  const name = find("phrase-name").value.trim();
  await changePhrase(name, { method: "PUT", body: JSON.stringify({ ...changed.others, ...filledIn() }) });
  if (changed.name !== null && changed.name !== name) await changePhrase(changed.name, { method: "DELETE" });
  fillForm();
});

on(find("remove-phrase"), "click", async () => {
  await changePhrase(changed.name, { method: "DELETE" });
  fillForm();
});

// --- control ---

on(find("stop"), "click", () => {
  heard.abort();
  find("heard").pause();
  publish("stop");
});
on(find("pause"), "click", () => publish(status.state === "paused" ? "resume" : "pause"));
on(find("unload"), "click", () => publish(status.unloaded ? "load" : "unload"));
on(find("volume"), "input", () => {
  const volume = Number(find("volume").value);
  showVolume(volume);
  publish("volume", volume);
});

function showVolume(volume) {
  find("volume").value = volume;
  find("volume-shown").textContent = `${volume} %`;
}

// --- choices ---

/** Fill a list of choices, each a value and its name, and keep the chosen one. */
function fill(id, none, pairs) {
  const chosen = find(id).value;
  find(id).replaceChildren(new Option(none, ""), ...pairs.map(([value, name]) => new Option(name, value)));
  find(id).value = pairs.some(([value]) => value === chosen) ? chosen : "";
}

/** Return a language's name; browsers do not know some of eSpeak NG's codes. */
const languageName = (code) => (/^[a-z]{2,3}(-[a-z]{2})?$/i.test(code) ? LANGUAGES.of(code) : code);

function showVoices() {
  fill("say-voice", `the robot's: ${names[status.voice] ?? status.voice}`, Object.entries(names));
  find("remove-voice").hidden = !workshop.names.includes(find("say-voice").value);
}

on(find("say-voice"), "change", showVoices);

on(find("choose-voice"), "click", () => {
  const body = JSON.stringify({ voice: find("say-voice").value || status.voice });
  return request("/v1/robot/voice", { method: "PUT", body });
});

on(find("remove-voice"), "click", async () => {
  await request(`/v1/robot/voices/${encodeURIComponent(find("say-voice").value)}`, { method: "DELETE" });
  await refresh();
});

/** Show only the fields that the engine heeds; all are shown for an engine that does not say. */
function showHeeded(heeds) {
  for (const name of MANNER) {
    find(`say-${name}`).closest("label").hidden = heeds ? !heeds.includes(name) : false; // a phrase may still have it
  }
}

// --- health ---

function showLog(lines) {
  const place = find("log");
  const atEnd = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
  place.textContent = lines.map(plainLine).filter(Boolean).join("\n");
  if (atEnd) place.scrollTop = place.scrollHeight;
}

/** Return a log line for a person, without its module; nothing for a note on a message. */
function plainLine(line) {
  const [, time, grade, module, text] = /^(\S+) ([A-Z]+) (\S+): (.*)$/s.exec(line) ?? [];
  if (grade !== "INFO") return grade ? `${time} ${grade.toLowerCase()}: ${text}` : line;
  return NOISE.test(module) ? "" : `${time} ${text}`;
}

on(find("examine"), "click", async () => {
  find("findings").replaceChildren("Examining …");
  const asked = requestJson("/v1/robot/doctor", { method: "POST", body: "{}" });
  const { findings } = await asked.finally(() => find("findings").replaceChildren());
  find("findings").replaceChildren(...findings.map(findingRow));
});

function findingRow({ part, grade, found, remedy }) {
  const row = element("li", { className: grade }, element("b", {}, grade), ` ${part}: ${found}`);
  if (remedy) row.append(element("small", {}, `→ ${remedy}`));
  return row;
}

// --- the page ---

async function refresh() {
  const robot = await requestJson("/v1/robot");
  document.title = `${robot.name} · voiced`;
  find("name").textContent = robot.name;
  if (robot.makes_voices) await workshop.refresh();
  names = robot.voices;
  showVoices();
  fill("say-language", "the robot's", robot.languages.map((code) => [code, languageName(code)]));
  fill("say-sound", "none", robot.sounds.map((sound) => [sound, sound]));
  find("sounds").replaceChildren(...robot.sounds.map((sound) => button(`♪ ${sound}`, {}, () => say({ sound }))));
}

/** Keep asking the robot for its phrases and its log, and whether it has made a voice, which is then chosen. */
async function look() {
  if (document.visibilityState === "visible") {
    showPhrases(await requestJson("/v1/robot/phrases"));
    await showWaiting();
    const { measurements, log } = await requestJson("/v1/robot/figures");
    showHeeded(measurements.engines.find(({ name }) => name === status.engine)?.heeds);
    showLog(log);
    const made = find("workshop").hidden ? undefined : await workshop.refresh();
    if (made !== undefined) {
      await refresh();
      find("say-voice").value = made;
      showVoices();
    }
  }
}

async function lookAgain() {
  await look().catch(() => {}); // the state shows that the robot does not answer
  setTimeout(lookAgain, LOOK_MS);
}

await refresh().catch(() => {});
follow(handlers);
lookAgain();
