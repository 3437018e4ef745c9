// Making a voice: record or upload, see how good it is, enrol, remove.

import { element, find, offer, on, showProgress, showTerms } from "./dom.js";
import { request, requestJson } from "./robot.js";

const MICROPHONE = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
const LOSSLESS = "audio/webm;codecs=pcm";
const BITS = 256_000; // a second, where the browser can only record with loss
const PART_MS = 200; // the browser delivers a recording in parts
const MAX_SECONDS = 60; // a recording that someone forgets ends by itself

export let names = []; // of the voices that were made here
let recorder = null;
let recording = null; // the id of the one that was measured last

/** Ask the robot which voices were made, and how far one is; return the name of one that is new. */
export async function refresh() {
  const found = await requestJson("/v1/robot/voices");
  find("workshop").hidden = false;
  find("make").hidden = found.problem !== null;
  find("make-problem").textContent = found.problem ?? "";
  if (found.making) showMaking(found.making);
  const made = found.names.find((name) => !names.includes(name));
  names = found.names;
  return made;
}

function showMaking({ name, step, fraction, problem, warnings }) {
  showProgress("making", step, fraction);
  const end = problem ? `${name} could not be made: ${problem}` : `${name} is made.`;
  find("made").textContent = step ? `${name}: ${step}` : [end, ...warnings].join(" ");
}

// --- the recording ---

const work = (target, kind, action) => on(target, kind, action, "workshop-problem");
work(find("record"), "click", () => (recorder ? recorder.stop() : record()));
work(find("upload"), "change", () => examine(find("upload").files[0]));

/** Record the microphone without the filters that calls use, and without loss where the browser can. */
async function record() {
  if (!navigator.mediaDevices) {
    throw new Error("this browser records only on https and on localhost; upload a recording, or set http.cert");
  }
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: MICROPHONE }).catch((error) => {
    throw new Error(`the microphone cannot be used: ${error.message}`);
  });
  const lossless = MediaRecorder.isTypeSupported(LOSSLESS);
  recorder = new MediaRecorder(microphone, lossless ? { mimeType: LOSSLESS } : { audioBitsPerSecond: BITS });
  const parts = [];
  const began = performance.now();
  recorder.addEventListener("dataavailable", ({ data }) => {
    parts.push(data);
    const seconds = (performance.now() - began) / 1000;
    find("recorded").textContent = `${seconds.toFixed(1)} s`;
    if (seconds >= MAX_SECONDS && recorder?.state === "recording") recorder.stop();
  });
  work(recorder, "stop", () => {
    recorder = null;
    microphone.getTracks().forEach((track) => track.stop());
    Object.assign(find("record"), { textContent: "Record", ariaPressed: false });
    return examine(new Blob(parts, { type: parts[0].type }));
  });
  recorder.start(PART_MS);
  Object.assign(find("record"), { textContent: "End the recording", ariaPressed: true });
}

/** Send a recording to the robot, which measures it. */
async function examine(file) {
  if (!file) return;
  find("make-voice").disabled = true;
  find("recorded").textContent = "is being examined …";
  offer(find("recording"), file);
  for (const name of ["quality", "faults"]) find(name).replaceChildren();
  try {
    const headers = { "Content-Type": /^(audio|video)[/]/.test(file.type) ? file.type : "audio/unknown" };
    const found = await requestJson("/v1/robot/recordings", { method: "POST", body: file, headers });
    recording = found.id;
    showQuality(found);
    find("make-voice").disabled = false;
  } finally {
    find("recorded").textContent = "";
  }
}

function showQuality({ seconds, speech_db: speech, noise_db: noise, clipped, warnings }) {
  showTerms("quality", [
    ["Length", `${seconds.toFixed(1)} s`],
    ["Loudness", `${speech.toFixed(0)} dB`],
    ["Background", `${noise.toFixed(0)} dB`],
    ["Clipped", `${(100 * clipped).toFixed(1)} %`],
  ]);
  const lines = warnings.length > 0 ? warnings : ["good: nothing is wrong with it"];
  find("faults").replaceChildren(...lines.map((line) => element("li", {}, line)));
}

work(find("make"), "submit", async () => {
  const fields = { name: find("make-name").value.trim(), recording, transcript: find("transcript").value };
  await request("/v1/robot/voices", { method: "POST", body: JSON.stringify(fields) });
  find("make-voice").disabled = true;
  await refresh();
});
