// The card with the words: a field, and one chip per word, on which recordings of it are dropped.

import { html, useRef, useState } from "./vendor/htm-preact.js";
import { uploadExample } from "./api.js";
import { megabytes } from "./words.js";

export const NOT = "not"; // under which the server takes examples of what no word means

// What the words of a visitor have learnt: recordings by word, and words that are only names.
// `question(labels)` is what a request says of them.
export function useExamples(limits) {
  const [examples, setExamples] = useState({});
  const [named, setNamed] = useState({}); // words that are not used as words
  const [problems, setProblems] = useState({});
  const [busy, setBusy] = useState("");
  const of = (word) => examples[word] ?? [];
  const change = (word, values) => setExamples((old) => ({ ...old, [word]: values(old[word] ?? []) }));
  const add = async (word, files) => {
    setBusy(word);
    setProblems((old) => ({ ...old, [word]: "" }));
    for (const file of files) {
      try {
        if (file.size > limits.body_bytes) throw new Error(`${file.name} has ${megabytes(file.size)}; the server takes ${megabytes(limits.body_bytes)}.`);
        const { id } = await uploadExample(file);
        change(word, (old) => [...old.filter((one) => one.id !== id), { id, name: file.name }]);
      } catch (error) {
        setProblems((old) => ({ ...old, [word]: error.message }));
      }
    }
    setBusy("");
  };
  const question = (labels) => {
    const taught = [...labels, NOT].filter((word) => of(word).length);
    return {
      labels: labels.filter((word) => !(named[word] && of(word).length)),
      examples: Object.fromEntries(taught.map((word) => [word, of(word).map(({ id }) => id)])),
    };
  };
  return {
    of, add, question, busy, problems, named,
    any: Object.values(examples).some((list) => list.length),
    remove: (word, id) => change(word, (old) => old.filter((one) => one.id !== id)),
    name: (word, only) => setNamed((old) => ({ ...old, [word]: only })),
  };
}

function Chip({ word, title, taught, unclear, onChoose }) {
  const [over, setOver] = useState(false);
  const examples = taught.of(word);
  const dropped = (event) => {
    event.preventDefault();
    setOver(false);
    taught.add(word, [...event.dataTransfer.files]);
  };
  return html`<li class=${`chip ${over ? "over" : ""} ${unclear && !examples.length ? "unclear" : ""} ${examples.length ? "taught" : ""} ${word === NOT ? "other" : ""}`}
      onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${dropped}>
    <button type="button" class="quiet" title=${`Add recordings of ${title}`} onClick=${() => onChoose(word)}>
      <strong>${title}</strong> <span aria-hidden="true">${taught.busy === word ? "\u2026" : "+"}</span><span class="visually-hidden">: add recordings of it</span></button>
    ${examples.map(({ id, name }) => html`<button key=${id} type="button" class="quiet example" onClick=${() => taught.remove(word, id)}>
      <span>${name}</span> <span aria-hidden="true">\u00d7</span><span class="visually-hidden">: remove this example of ${title}</span></button>`)}
    ${examples.length > 0 && word !== NOT && html`<label class="only"><input type="checkbox" checked=${taught.named[word] ?? false} onChange=${(event) => taught.name(word, event.target.checked)} />
      by its examples alone</label>`}
    ${unclear && !examples.length && html`<span class="problem">${unclear}</span>`}
    ${taught.problems[word] && html`<span class="problem" role="alert">${taught.problems[word]}</span>`}
  </li>`;
}

// unclear: {word: sentence} and unlike: [sentence], of the server's last answer.
export function Words({ id = "words", text, labels, taught, problem, unclear = {}, unlike = [], onText, onEnter, children }) {
  const chooser = useRef();
  const word = useRef("");
  const choose = (chosen) => {
    word.current = chosen;
    chooser.current.click();
  };
  const typed = (event) => {
    if (!onEnter || event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    onEnter();
  };
  return html`<section class="card words" aria-labelledby=${`${id}-title`}>
    <h2 id=${`${id}-title`}><label for=${id}>Words</label></h2>
    <textarea id=${id} rows="2" spellcheck="false" autocomplete="off" aria-describedby=${`${id}-problem`} aria-invalid=${problem !== ""}
      placeholder="siren, dog bark, rain" value=${text} onInput=${(event) => onText(event.target.value)} onKeyDown=${typed}></textarea>
    <p class="hint">Any sounds, separated by commas. Drop recordings of your own on a word, or press it, to teach it.</p>
    <ul class="chips" aria-label="Words and their examples">
      ${labels.map((one) => html`<${Chip} key=${one} word=${one} title=${one} taught=${taught} unclear=${unclear[one]} onChoose=${choose} />`)}
      ${taught.any && html`<${Chip} key=${NOT} word=${NOT} title="other sounds" taught=${taught} onChoose=${choose} />`}
    </ul>
    <input ref=${chooser} id=${`${id}-examples`} type="file" accept="audio/*,video/*" multiple hidden aria-label="Examples of a word"
      onChange=${(event) => { taught.add(word.current, [...event.target.files]); event.target.value = ""; }} />
    <p class="problem" id=${`${id}-problem`} role="alert">${problem}</p>
    <p class="problem" role="status">${problem ? "" : unlike.join("; ")}</p>
    ${children}
  </section>`;
}
