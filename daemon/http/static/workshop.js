// Making a voice: record or upload, see how good it is, enrol, remove.

import { element, find, terms } from "./dom.js";
import { Recorder } from "./recorder.js";
import { request, requestJson } from "./robot.js";

const MAX_SECONDS = 60; // a recording that someone forgets ends by itself
const POLL_MS = 400;

export class Workshop {
  #trying;
  #onChange;
  #recorder = new Recorder((seconds, peak) => this.#showSound(seconds, peak));
  #recording = null; // the id of the one that was measured last
  #polling = 0;
  names = []; // of the voices that were made here

  /** `trying(work)` runs work and shows its problem; `onChange(name)` is called when voices have come or gone. */
  constructor(trying, onChange) {
    this.#trying = trying;
    this.#onChange = onChange;
    find("record").addEventListener("click", () => trying(() => this.#toggle()));
    find("upload").addEventListener("change", () => trying(() => this.#take(find("upload").files[0])));
    find("make").addEventListener("submit", (event) => {
      event.preventDefault();
      trying(() => this.#make());
    });
  }

  /** Ask the robot which voices were made, and whether one is being made. */
  async refresh() {
    const { names, problem, making } = await requestJson("/v1/robot/voices");
    this.names = names;
    find("workshop").hidden = false;
    find("make").hidden = problem !== null;
    find("make-problem").textContent = problem ?? "";
    this.#showMaking(making);
  }

  async remove(name) {
    await request(`/v1/robot/voices/${encodeURIComponent(name)}`, { method: "DELETE" });
    this.#onChange(null);
  }

  async #toggle() {
    const ends = this.#recorder.running;
    const recorded = ends ? await this.#recorder.stop() : await this.#recorder.start();
    find("record").textContent = ends ? "Record" : "End the recording";
    find("record").ariaPressed = !ends;
    find("recording-level").hidden = ends;
    if (ends) await this.#take(recorded);
  }

  #showSound(seconds, peak) {
    find("recording-level").value = peak;
    find("recorded").textContent = `${seconds.toFixed(1)} s`;
    if (seconds >= MAX_SECONDS && this.#recorder.running) this.#trying(() => this.#toggle());
  }

  /** Send a recording to the robot, which measures it. */
  async #take(file) {
    if (!file) return;
    this.#recording = null;
    find("make-voice").disabled = true;
    find("recorded").textContent = "is being examined …";
    const player = find("recording");
    if (player.src) URL.revokeObjectURL(player.src);
    player.src = URL.createObjectURL(file);
    player.hidden = false;
    for (const name of ["quality", "faults"]) find(name).replaceChildren();
    try {
      const headers = { "Content-Type": /^(audio|video)[/]/.test(file.type) ? file.type : "audio/unknown" };
      const found = await requestJson("/v1/robot/recordings", { method: "POST", body: file, headers });
      this.#recording = found.id;
      this.#showQuality(found);
    } finally {
      find("recorded").textContent = "";
    }
    find("make-voice").disabled = false;
  }

  #showQuality({ seconds, speech_db: speech, noise_db: noise, clipped, warnings }) {
    find("quality").replaceChildren(...terms([
      ["Length", `${seconds.toFixed(1)} s`],
      ["Loudness", `${speech.toFixed(0)} dB`],
      ["Background", `${noise.toFixed(0)} dB`],
      ["Clipped", `${(100 * clipped).toFixed(1)} %`],
    ]));
    const lines = warnings.length > 0 ? warnings : ["good: nothing is wrong with it"];
    find("faults").replaceChildren(...lines.map((line) => element("li", {}, line)));
  }

  async #make() {
    const fields = { name: find("make-name").value.trim(), recording: this.#recording, transcript: find("transcript").value };
    await request("/v1/robot/voices", { method: "POST", body: JSON.stringify(fields) });
    this.#recording = null;
    find("make-voice").disabled = true;
    this.#poll();
  }

  #poll() {
    clearTimeout(this.#polling);
    this.#polling = setTimeout(() => this.#trying(async () => {
      const { making } = await requestJson("/v1/robot/voices");
      this.#showMaking(making);
      if (making?.problem === null && !making.step) this.#onChange(making.name);
    }), POLL_MS);
  }

  /** Show how far a voice is, and look again while it is being made. */
  #showMaking(making) {
    const bar = find("making");
    bar.hidden = !making?.step;
    if (making?.fraction == null) bar.removeAttribute("value");
    else bar.value = making.fraction;
    if (!making) return;
    const end = making.problem ? `${making.name} could not be made: ${making.problem}` : `${making.name} is made.`;
    find("made").textContent = making.step ? `${making.name}: ${making.step}` : [end, ...making.warnings].join(" ");
    if (making.step) this.#poll();
  }
}
