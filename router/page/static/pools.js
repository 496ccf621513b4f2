// Each pool, and its workers: those first that need somebody's eyes.

import { drawBar, newBar, swatch } from "./charts.js";
import { byId, el, keep, say } from "./dom.js";
import { count, counted, inWords, ms, share } from "./format.js";

const STATES = [
  ["active", "in sequences"],
  ["exported", "pinned for a reader"],
  ["receiving", "reserved for KV under way"],
  ["cached", "cached prefixes"],
  ["free", "free"],
];
const FEW = 12;
const shown = new Set(); // pools whose workers are all shown

export function showPools(snapshot) {
  const legend = byId("legend");
  if (!legend.firstChild) {
    legend.append("KV blocks:", ...STATES.map(([name, words]) => el("span", {}, swatch(name), words)));
  }
  const pools = snapshot.pools.filter((pool) => pool.workers > 0);
  keep(byId("pools"), pools, (pool) => `${pool.role} ${pool.pool}`, newPool,
    (place, pool) => showPool(place, pool, snapshot));
}

const titleOf = (pool) => {
  const role = pool.role === "prefill" ? "Prefill" : "Decode";
  return pool.pool === pool.role ? role : `${role}: ${pool.pool}`;
};

function newPool(pool) {
  const id = `pool-${pool.role}-${pool.pool}`;
  const key = `${pool.role} ${pool.pool}`;
  const more = el("button", { type: "button", class: "more", "aria-expanded": "false" });
  more.addEventListener("click", () => {
    if (!shown.delete(key)) shown.add(key);
    more.setAttribute("aria-expanded", String(shown.has(key)));
    more.dispatchEvent(new CustomEvent("again", { bubbles: true }));
  });
  const head = ["State", "Running", "Waiting", "Speed"].map((title, at) =>
    el("th", { scope: "col", class: ["state-head", "num", "num", "num wide"][at] }, title));
  return el("div", {},
    el("div", { class: "pool-head" },
      el("h3", { id }, titleOf(pool)), el("p")),
    newBar(),
    el("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": id },
      el("table", { class: "workers" }, el("caption", { class: "unseen" }, `Workers of the ${pool.pool} pool`),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Worker"), ...head,
          el("th", { scope: "col", class: "kv" }, "KV blocks"))),
        el("tbody"))),
    more);
}

function showPool(place, pool, snapshot) {
  const [head, bar, region, more] = place.children;
  const total = totalOf(pool.blocks);
  say(head.lastChild, `${pool.ready} of ${counted(pool.workers, "worker")} ready, ` +
    `${count(pool.running)} running, ${count(pool.waiting)} waiting, ${blockWords(pool.blocks)}`);
  drawBar(bar, partsOf(pool.blocks), total);
  const own = snapshot.workers.filter((worker) => worker.role === pool.role && worker.pool === pool.pool);
  const sorted = own.length > FEW ? own.toSorted(byNeed) : own;
  const isAll = shown.has(`${pool.role} ${pool.pool}`) || own.length <= FEW;
  keep(region.querySelector("tbody"), isAll ? sorted : sorted.slice(0, FEW),
    (worker) => worker.id, newWorker, showWorker);
  more.hidden = own.length <= FEW;
  say(more, isAll ? `Show ${FEW} only` : `Show all ${count(own.length)} workers`);
}

function newWorker(worker) {
  return el("tr", {}, el("th", { scope: "row", title: worker.id }, worker.id), el("td", {}, el("span")),
    el("td", { class: "num" }), el("td", { class: "num" }), el("td", { class: "num wide" }),
    el("td", { class: "kv" }, newBar(),
      el("p", {}, el("span"), el("span", { class: "wide" }))));
}

function showWorker(row, worker) {
  const [, state, running, waiting, speed, kv] = row.cells;
  say(state.firstChild, inWords(worker.state).replace(",", ", "));
  state.firstChild.className = `mark ${mood(worker.state)}`;
  say(running, count(worker.running));
  say(waiting, count(worker.waiting));
  say(speed, speedOf(worker));
  drawBar(kv.firstChild, partsOf(worker.blocks), totalOf(worker.blocks));
  say(kv.lastChild.firstChild, heldWords(worker.blocks));
  say(kv.lastChild.lastChild, restWords(worker.blocks));
}

const partsOf = (blocks) => STATES.map(([name]) => [name, blocks[name]]);
const totalOf = (blocks) => Object.values(blocks).reduce((sum, number) => sum + number, 0);

const blockWords = (blocks) => `KV blocks: ${heldWords(blocks)}${restWords(blocks)}`;

/** What somebody holds, and what would be free for others. */
function heldWords(blocks) {
  const total = totalOf(blocks);
  const held = blocks.active + blocks.exported + blocks.receiving;
  return total ? `${count(held)} of ${count(total)} held (${share(held, total)})` : "not told yet";
}

function restWords(blocks) {
  const words = { exported: "pinned", receiving: "coming", cached: "cached" };
  return Object.entries(words).filter(([name]) => blocks[name])
    .map(([name, word]) => `, ${count(blocks[name])} ${word}`).join("");
}

function speedOf(worker) {
  if (worker.role === "decode") return worker.step_ms ? `${ms(worker.step_ms)} a step` : "–";
  return worker.prefill_tokens_per_s ? `${count(worker.prefill_tokens_per_s)} tokens/s` : "–";
}

/** By the first word: behind it may stand what the worker is held for. */
function mood(state) {
  const [health] = state.split(",");
  if (health === "ready") return "good";
  return ["silent", "connecting", "resting"].includes(health) ? "bad" : "warn";
}

const need = (worker) => (worker.state === "ready" ? 0 : 1e6) + worker.waiting * 1e3 + worker.running;
const byNeed = (a, b) => need(b) - need(a) || a.id.localeCompare(b.id);
