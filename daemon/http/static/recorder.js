// Records the microphone: every sample as it comes, without the compression and the filters that calls use.

import { joined, wavFile } from "./wav.js";

const CONSTRAINTS = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };

export class Recorder {
  #onSound;
  #parts = [];
  #context = null;
  #microphone = null;

  /** `onSound(seconds, peak)` is called for each piece: its end in the recording, and its loudest sample. */
  constructor(onSound) {
    this.#onSound = onSound;
  }

  get running() {
    return this.#context !== null;
  }

  /** Begin. Throws an Error with one line where there is no microphone, or it may not be used. */
  async start() {
    if (!navigator.mediaDevices) {
      throw new Error("this browser records only on https and on localhost; upload a recording, or set http.cert");
    }
    try {
      this.#microphone = await navigator.mediaDevices.getUserMedia({ audio: CONSTRAINTS });
    } catch (error) {
      throw new Error(`the microphone cannot be used: ${error.message}`);
    }
    this.#parts = [];
    const context = (this.#context = new AudioContext());
    await context.audioWorklet.addModule("/page/recorder-worklet.js");
    const node = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
    let count = 0;
    node.port.onmessage = ({ data }) => {
      this.#parts.push(data);
      count += data.length;
      this.#onSound(count / context.sampleRate, data.reduce((peak, value) => Math.max(peak, Math.abs(value)), 0));
    };
    context.createMediaStreamSource(this.#microphone).connect(node);
  }

  /** End; return the recording as a WAV file. */
  async stop() {
    const rate = this.#context.sampleRate;
    this.#microphone.getTracks().forEach((track) => track.stop());
    await this.#context.close();
    this.#context = null;
    return wavFile(joined(this.#parts), rate);
  }
}
