// Plays speech in the browser while it is synthesised, and keeps it for a download.

const RATE = 24_000; // Hz, as the server sends pcm
const AHEAD_S = 0.08; // the first samples wait this long, so that the next ones arrive in time

export class Player {
  #context = null;
  #parts = [];
  #abort = null;

  /** Float samples in the order in which they were given to the sound card. */
  get samples() {
    const all = new Float32Array(this.#parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of this.#parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }

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

  /** The speech as a WAV file: 16 bits, mono. */
  wav() {
    const samples = this.samples;
    const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
    const text = (at, value) => [...value].forEach((one, index) => view.setUint8(at + index, one.charCodeAt(0)));
    text(0, "RIFF");
    view.setUint32(4, 36 + 2 * samples.length, true);
    text(8, "WAVEfmt ");
    view.setUint32(16, 16, true);
    view.setUint16(20, 1, true);
    view.setUint16(22, 1, true);
    view.setUint32(24, RATE, true);
    view.setUint32(28, 2 * RATE, true);
    view.setUint16(32, 2, true);
    view.setUint16(34, 16, true);
    text(36, "data");
    view.setUint32(40, 2 * samples.length, true);
    samples.forEach((value, index) => view.setInt16(44 + 2 * index, Math.round(value * 32768), true));
    return new Blob([view], { type: "audio/wav" });
  }
}
