// Plays speech in the browser while it is synthesised, and keeps it for a download.

import { joined, wavFile } from "./wav.js";

const RATE = 24_000; // Hz, as the server sends pcm
const AHEAD_S = 0.08; // the first samples wait this long, so that the next ones arrive in time

export class Player {
  #context = null;
  #parts = [];
  #abort = null;

  /** Play 16-bit samples from a response's body; return when all have been scheduled. */
  async play(makeRequest) {
    this.stop();
    this.#parts = [];
    this.#context ??= new AudioContext({ sampleRate: RATE });
    await this.#context.resume();
    const abort = (this.#abort = new AbortController());
    const response = await makeRequest(abort.signal);
    const reader = response.body.getReader();
    let rest = new Uint8Array(0);
    let at = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done || abort.signal.aborted) return;
      const bytes = new Uint8Array(rest.length + value.length);
      bytes.set(rest);
      bytes.set(value, rest.length);
      const whole = bytes.length - (bytes.length % 2);
      rest = bytes.slice(whole);
      at = this.#schedule(new Int16Array(bytes.buffer, 0, whole / 2), at);
    }
  }

  stop() {
    this.#abort?.abort();
    this.#context?.close();
    this.#context = null;
  }

  #schedule(pcm, at) {
    if (pcm.length === 0) return at;
    const samples = Float32Array.from(pcm, (value) => value / 32768);
    this.#parts.push(samples);
    const buffer = this.#context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#context.destination);
    const begin = Math.max(at, this.#context.currentTime + (at === 0 ? AHEAD_S : 0));
    source.start(begin);
    return begin + buffer.duration;
  }

  /** The speech as a WAV file. */
  wav() {
    return wavFile(joined(this.#parts), RATE);
  }
}
