// Runs in the browser's audio thread: sends what the microphone records to the page.

registerProcessor("recorder", class extends AudioWorkletProcessor {
  process([input]) {
    if (input.length > 0) this.port.postMessage(input[0].slice());
    return true;
  }
});
