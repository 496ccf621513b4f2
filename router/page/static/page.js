// The page: takes snapshots, shows them, and says how old they are.

import { showDecisions } from "./decisions.js";
import { byId, say } from "./dom.js";
import { showSeries, showStages } from "./flight.js";
import { counted, duration, inWords } from "./format.js";
import { showLinks } from "./links.js";
import { FRESH_S, Live, signIn, signOut } from "./live.js";
import { showPools } from "./pools.js";
import { showQueue } from "./queue.js";

let newest = null; // the last snapshot that came
let cameAt = 0;
let link = "connecting";
let session = null;
let isPaused = false;
let told = ""; // the last state that was announced
let states = new Map(); // of workers, as they were shown last

const live = new Live({
  snapshot(data) {
    newest = data;
    cameAt = performance.now();
    if (!isPaused) show();
    showState();
  },
  state(word, detail) {
    link = word;
    if (detail) session = detail;
    if (word === "door") newest = null;
    showState();
  },
});

function show() {
  if (!newest) return;
  say(byId("model"), newest.model);
  say(byId("facts"), `up ${duration(newest.uptime_s)}, version ${newest.version}`);
  showStages(newest.stages);
  showSeries(newest.series);
  showPools(newest);
  showLinks(newest);
  showQueue(newest);
  showDecisions(newest.decisions);
  announceWorkers(newest.workers);
}

/** Pill, banner and what is visible; every second, for what is late says nothing by itself. */
function showState() {
  const ageS = (performance.now() - cameAt) / 1000;
  const [word, mood, words] = stateOf(ageS);
  const isStale = newest !== null && (link === "away" || ageS > FRESH_S);
  const pill = byId("state");
  say(pill, word);
  pill.className = `pill ${mood}`;
  const banner = byId("banner");
  banner.hidden = !words;
  banner.classList.toggle("bad", mood === "bad");
  say(banner, words);
  byId("content").toggleAttribute("data-stale", isStale);
  byId("fleet").hidden = !newest || !byId("door").hidden;
  byId("enter").hidden = !session?.can_sign_in || session.sight === "names" || !byId("door").hidden;
  byId("leave").hidden = !session?.can_sign_in || session.sight !== "names";
  if (link === "door") openDoor(false);
  announce(word, words);
}

/** A word, its mood, and a banner's words or none. */
function stateOf(ageS) {
  if (link === "door") return ["Signed out", "warn", ""];
  if (link === "full") return ["Full", "warn", "16 others watch this page already. Trying again."];
  if (!newest) {
    return link === "away" ? ["Not connected", "bad", "The router does not answer. Trying again."]
      : ["Connecting", "", ""];
  }
  if (link === "away" || ageS > FRESH_S) {
    return ["Stale", "bad", `The router does not answer: what is shown is ${duration(ageS)} old. Trying again.`];
  }
  if (newest.draining) return ["Draining", "warn", "The router stops: it ends what runs and takes nothing new."];
  if (!newest.num_workers) return ["Empty", "warn", "No worker has joined this router yet."];
  if (newest.problem) return ["Not ready", "bad", `No request can be served: ${newest.problem}.`];
  if (newest.given_up) return ["Degraded", "warn", `Given up while requests wait for long: ${newest.given_up}.`];
  return ["Ready", "good", ""];
}

/** Changes alone are read out: not numbers, and not the same again. */
function announce(word, words) {
  if (told === word) return;
  told = word;
  say(byId("announcer"), words || `The router is ${word.toLowerCase()}.`);
}

function announceWorkers(workers) {
  const now = new Map(workers.map((worker) => [worker.id, worker.state]));
  const changed = [...now].filter(([id, state]) => states.has(id) && states.get(id) !== state);
  const gone = [...states.keys()].filter((id) => !now.has(id));
  const come = states.size ? [...now.keys()].filter((id) => !states.has(id)) : [];
  states = now;
  const words = [
    ...changed.slice(0, 3).map(([id, state]) => `Worker ${id} is ${inWords(state)}.`),
    ...gone.slice(0, 3).map((id) => `Worker ${id} has left.`),
    ...come.slice(0, 3).map((id) => `Worker ${id} has joined.`),
  ];
  const more = changed.length + gone.length + come.length - words.length;
  if (more > 0) words.push(`${counted(more, "more change")} of workers.`);
  if (words.length) say(byId("announcer"), words.join(" "));
}

function openDoor(mayLeave) {
  const door = byId("door");
  byId("not-now").hidden = !mayLeave;
  if (!door.hidden) return;
  door.hidden = false;
  byId("fleet").hidden = true;
  byId("token").focus();
}

function closeDoor() {
  byId("door").hidden = true;
  byId("token").value = "";
  say(byId("refusal"), "");
  byId("content").focus();
}

byId("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const refusal = await signIn(byId("token").value);
  say(byId("refusal"), refusal && `Not signed in: ${refusal}.`);
  if (refusal) return;
  closeDoor();
  link = "connecting";
  live.open();
});
byId("enter").addEventListener("click", () => {
  openDoor(true);
  showState();
});
byId("not-now").addEventListener("click", () => {
  closeDoor();
  showState();
});
byId("leave").addEventListener("click", async () => {
  await signOut();
  newest = null;
  live.open();
});
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  show();
});
byId("pools").addEventListener("again", show);
setInterval(showState, 1000);
live.open();
