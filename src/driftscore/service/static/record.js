// Records the microphone as a WAV file: an AudioWorklet gives the samples, so that every browser
// sends the same format. The browser's own clean-up is switched off; it would remove the noise.

export const LONGEST_S = 30;

export function cannotRecord() {
  if (navigator.mediaDevices?.getUserMedia && window.AudioWorkletNode) return "";
  if (!window.isSecureContext) {
    return "Recording is off: browsers give the microphone only to https pages and to localhost. A file works.";
  }
  return "This browser cannot record here. A file works.";
}

const REASONS = {
  NotAllowedError: "The microphone was not allowed. Allow it in the address bar and press Record again.",
  NotFoundError: "No microphone was found. Connect one, or give a file.",
  NotReadableError: "The microphone is in use by another program.",
};

export async function startRecording(onLevel) {
  const raw = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: raw });
  } catch (error) {
    throw new Error(REASONS[error.name] ?? `The microphone cannot be used: ${error.message}`);
  }
  const context = new AudioContext();
  await context.audioWorklet.addModule("/static/recorder-worklet.js");
  const source = context.createMediaStreamSource(stream);
  const recorder = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
  const blocks = [];
  let count = 0;
  recorder.port.onmessage = ({ data }) => {
    blocks.push(data);
    count += data.length;
    if (blocks.length % 16 === 0) onLevel(count / context.sampleRate, level(data));
  };
  source.connect(recorder);
  return async function stop() {
    source.disconnect();
    stream.getTracks().forEach((track) => track.stop());
    await context.close();
    if (!count) throw new Error("The microphone sent no samples. Press Record again.");
    return wav(blocks, count, context.sampleRate);
  };
}

function level(samples) {
  const power = samples.reduce((sum, v) => sum + v * v, 0) / samples.length;
  return Math.max(-80, 10 * Math.log10(power + 1e-12));
}

function wav(blocks, count, rate) {
  const bytes = new DataView(new ArrayBuffer(44 + 2 * count));
  const text = (at, word) => [...word].forEach((sign, i) => bytes.setUint8(at + i, sign.charCodeAt(0)));
  text(0, "RIFF");
  bytes.setUint32(4, 36 + 2 * count, true);
  text(8, "WAVEfmt ");
  bytes.setUint32(16, 16, true);
  bytes.setUint16(20, 1, true); // PCM
  bytes.setUint16(22, 1, true); // one channel
  bytes.setUint32(24, rate, true);
  bytes.setUint32(28, 2 * rate, true);
  bytes.setUint16(32, 2, true);
  bytes.setUint16(34, 16, true);
  text(36, "data");
  bytes.setUint32(40, 2 * count, true);
  let at = 44;
  for (const block of blocks) {
    for (const value of block) {
      bytes.setInt16(at, Math.max(-1, Math.min(1, value)) * 32767, true);
      at += 2;
    }
  }
  return new Blob([bytes], { type: "audio/wav" });
}
