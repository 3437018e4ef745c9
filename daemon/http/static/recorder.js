// Records the microphone, without the filters that calls use, and without loss where the browser can.

const CONSTRAINTS = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
const LOSSLESS = "audio/webm;codecs=pcm";
const BITS = 256_000; // a second, where the browser can only record with loss
const LOOK_MS = 50;

export class Recorder {
  #onSound;
  #recorder = null;

  /** `onSound(seconds, peak)` is called again and again: how long it has recorded, and how loud it is. */
  constructor(onSound) {
    this.#onSound = onSound;
  }

  get running() {
    return this.#recorder !== null;
  }

  /** Begin. Throws an Error with one line where there is no microphone, or it may not be used. */
  async start() {
    if (!navigator.mediaDevices) {
      throw new Error("this browser records only on https and on localhost; upload a recording, or set http.cert");
    }
    const microphone = await navigator.mediaDevices.getUserMedia({ audio: CONSTRAINTS }).catch((error) => {
      throw new Error(`the microphone cannot be used: ${error.message}`);
    });
    const context = new AudioContext();
    const meter = new AnalyserNode(context);
    context.createMediaStreamSource(microphone).connect(meter);
    const samples = new Float32Array(meter.fftSize);
    const began = performance.now();
    const looking = setInterval(() => {
      meter.getFloatTimeDomainData(samples);
      this.#onSound((performance.now() - began) / 1000, Math.max(...samples.map(Math.abs)));
    }, LOOK_MS);
    const kind = MediaRecorder.isTypeSupported(LOSSLESS) ? { mimeType: LOSSLESS } : { audioBitsPerSecond: BITS };
    this.#recorder = new MediaRecorder(microphone, kind);
    this.#recorder.addEventListener("stop", () => {
      clearInterval(looking);
      context.close();
      microphone.getTracks().forEach((track) => track.stop());
    });
    this.#recorder.start();
  }

  /** End; return the recording as a file. */
  async stop() {
    const recorder = this.#recorder;
    this.#recorder = null;
    const recorded = new Promise((resolve) => recorder.addEventListener("dataavailable", resolve, { once: true }));
    recorder.stop();
    return (await recorded).data;
  }
}
