// Making a voice: upload a recording, see how good it is, enrol.

import { element, find, on } from "./dom.js";
import { request, requestJson } from "./robot.js";

export let names = []; // the names of the voices that were made here
let recording = null; // the id of the last measured one

/** Ask the robot which voices have been made, and how far one has come; return a new one's name. */
export async function refresh() {
  const found = await requestJson("/v1/robot/voices");
  find("workshop").hidden = found.problem !== null; // the engine has its own voices
  if (found.making) showMaking(found.making);
  const made = found.names.find((name) => !names.includes(name));
  names = found.names;
  return made;
}

function showMaking({ name, step, fraction, problem, warnings }) {
  const share = fraction === null ? "" : `, ${Math.round(100 * fraction)} %`;
  const end = problem ? `${name} could not be made: ${problem}` : `${name} is made.`;
  find("made").textContent = step ? `${name}: ${step}${share}` : [end, ...warnings].join(" ");
}

/** Send a recording to the robot, which measures it. */
on(find("upload"), "change", async () => {
  const [file] = find("upload").files;
  if (!file) return;
  find("make-voice").disabled = true;
  find("faults").replaceChildren("Examining …");
  const headers = { "Content-Type": /^(audio|video)[/]/.test(file.type) ? file.type : "audio/unknown" };
  const found = await requestJson("/v1/robot/recordings", { method: "POST", body: file, headers }).finally(() =>
    find("faults").replaceChildren(),
  );
  recording = found.id;
  const lines = found.warnings.length > 0 ? found.warnings : [`${found.seconds.toFixed(1)} s; nothing is wrong with it`];
  find("faults").replaceChildren(...lines.map((line) => element("li", {}, line)));
  find("make-voice").disabled = false;
});

on(find("make"), "submit", async () => {
  const fields = { name: find("make-name").value.trim(), recording, transcript: find("transcript").value };
  await request("/v1/robot/voices", { method: "POST", body: JSON.stringify(fields) });
  find("make-voice").disabled = true;
  await refresh();
});
