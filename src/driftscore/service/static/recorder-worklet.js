// Sends the samples of the microphone, one channel, to the page.

class Recorder extends AudioWorkletProcessor {
  process([channels]) {
    if (channels.length) this.port.postMessage(channels[0].slice());
    return true;
  }
}

registerProcessor("recorder", Recorder);
