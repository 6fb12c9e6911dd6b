// The page: its tabs, and a field for the token where the server needs one.

import { html, render, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { get, keepToken } from "./api.js";
import { readLink } from "./link.js";
import { Live } from "./live.js";
import { Search } from "./search.js";
import { Try } from "./try.js";

const TABS = { try: "Try", live: "Live", search: "Search" };
const FOOTERS = {
  try: (about) => `Recordings stay in the memory of this server until they are unused for ${about?.minutes ?? 30} minutes. Nothing is stored, nothing is sent elsewhere.`,
  live: () => "Events and verdicts are kept in the store of the listener, on this server. Nothing is sent elsewhere.",
  search: () => "The archive and its recordings stay on this server. Nothing is stored, nothing is sent elsewhere.",
};

function Tabs({ names, tab, onTab }) {
  const buttons = useRef({});
  const typed = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(tab) + step + names.length) % names.length];
    onTab(next);
    buttons.current[next].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label="Views" onKeyDown=${typed}>
    ${names.map((name) => html`<button key=${name} id=${`tab-${name}`} ref=${(node) => { buttons.current[name] = node; }} type="button" role="tab"
      aria-selected=${tab === name} aria-controls="panel" tabindex=${tab === name ? 0 : -1} onClick=${() => onTab(name)}>${TABS[name]}</button>`)}
  </div>`;
}

function Token({ onToken }) {
  const field = useRef();
  const given = (event) => {
    event.preventDefault();
    onToken(field.current.value.trim());
  };
  return html`<form class="card blank" onSubmit=${given}><h2><label for="token">This server needs its token</label></h2>
    <p>driftscore serve prints it when it starts. It is kept until this window is closed.</p>
    <div class="row"><input id="token" ref=${field} type="password" autocomplete="off" required /><button class="primary">Open</button></div></form>`;
}

function App() {
  const [link] = useState(readLink);
  const [chosen, setTab] = useState(link.tab);
  const [about, setAbout] = useState(null);
  const [problem, setProblem] = useState(null);
  const names = Object.keys(TABS).filter((name) => name !== "search" || about?.archive);
  const tab = names.includes(chosen) ? chosen : about?.archive ? "search" : "try";
  const load = async () => {
    try {
      setAbout(await get("/page/about"));
      setProblem(null);
    } catch (error) {
      setProblem(error);
      if (error.status === 503) setTimeout(load, 1000 * error.wait); // the model is being loaded
    }
  };
  useEffect(() => {
    const ignore = (event) => event.preventDefault(); // a file beside a card would replace the page
    for (const kind of ["dragover", "drop"]) window.addEventListener(kind, ignore);
    if (link.token) {
      keepToken(link.token);
      const rest = new URLSearchParams(location.hash.slice(1));
      rest.delete("token");
      history.replaceState(null, "", `#${rest}`);
    }
    load();
  }, []);
  useEffect(() => {
    if (about && tab !== "try") history.replaceState(null, "", `#tab=${tab}`);
  }, [tab, about !== null]);
  const main = about
    ? html`<${Try} about=${about} link=${link} hidden=${tab !== "try"} /><${Live} hidden=${tab !== "live"} />
      ${about.archive && html`<${Search} about=${about} hidden=${tab !== "search"} />`}`
    : problem?.status === 401
      ? html`<${Token} onToken=${(token) => { keepToken(token); load(); }} />`
      : html`<p class="notice" role="alert">${problem ? problem.message : ""}</p>`;
  return html`
    <header class="top"><div>
      <h1><img src="/static/icon.svg" alt="" width="28" height="28" />driftscore</h1>
      <${Tabs} names=${names} tab=${tab} onTab=${setTab} />
      <p class="model">${about ? html`model <strong>${about.model}</strong>` : "\u00a0"}</p>
    </div></header>
    <main><div id="panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>${main}</div></main>
    <footer>${FOOTERS[tab](about)}</footer>`;
}

render(html`<${App} />`, document.getElementById("page"));
