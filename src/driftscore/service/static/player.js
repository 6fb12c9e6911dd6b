// Plays sounds of the server, one at a time.

import { useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { ServerError, bytes } from "./api.js";

const NOTHING = { at: null, what: "" };

// `what` names what is played, `at` is the time in its recording. `play` again stops it; a failure
// goes to `onProblem` as a sentence.
export function usePlayer() {
  const [state, setState] = useState(NOTHING);
  const stop = useRef(() => {});
  const halt = () => {
    stop.current();
    stop.current = () => {};
    setState(NOTHING);
  };
  const play = async (path, what, from, onProblem) => {
    const again = state.what === what;
    halt();
    if (again) return;
    setState({ at: from, what });
    const context = new AudioContext();
    stop.current = () => context.close();
    try {
      const buffer = await context.decodeAudioData(await bytes(path));
      if (context.state === "closed") return; // stopped, or something else, meanwhile
      const source = context.createBufferSource();
      source.buffer = buffer;
      source.connect(context.destination);
      source.onended = halt;
      source.start();
      const begun = context.currentTime;
      let frame = requestAnimationFrame(function tick() {
        setState({ at: from + Math.min(buffer.duration, context.currentTime - begun), what });
        frame = requestAnimationFrame(tick);
      });
      stop.current = () => {
        source.onended = null;
        cancelAnimationFrame(frame);
        context.close();
      };
    } catch (error) {
      if (context.state === "closed") return;
      halt();
      onProblem(error instanceof ServerError ? error.message : "The browser cannot play it.");
    }
  };
  useEffect(() => halt, []);
  return { ...state, play, halt };
}
