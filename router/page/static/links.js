// From prefill to decode workers: a matrix where that is readable, else the busiest as a list.

import { byId, el, keep, say } from "./dom.js";
import { count, counted, rate } from "./format.js";

const MOST = 8; // rows and columns of a matrix

export function showLinks(snapshot) {
  const place = byId("links");
  const rows = namesOf(snapshot, "prefill");
  const columns = namesOf(snapshot, "decode");
  if (!rows.length || !columns.length) {
    show(place, "none", "", () => el("p", { class: "none" },
      "There are no pairs: decode workers compute prompts themselves."));
  } else if (rows.length <= MOST && columns.length <= MOST) {
    show(place, "matrix", [...rows, "", ...columns].join("\n"), () => newMatrix(rows, columns));
    fillMatrix(place, snapshot.links);
  } else {
    show(place, "list", "", newList);
    fillList(place, snapshot);
  }
}

const namesOf = (snapshot, role) =>
  snapshot.workers.filter((worker) => worker.role === role).map((worker) => worker.id).sort();

/** Makes it anew only where it is of another kind, or of other workers. */
function show(place, kind, of, make) {
  const key = `${kind}\n${of}`;
  if (place.dataset.shows === key) return;
  place.dataset.shows = key;
  place.replaceChildren(make());
}

function newMatrix(rows, columns) {
  const cells = (row) => columns.map((column) =>
    el("td", { "data-link": `${row}\n${column}` }, el("b"), el("p", { class: "soft" })));
  return el("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": "links-title" },
    el("table", { class: "matrix" },
      el("caption", {}, "Speed from prefill (rows) to decode workers, and requests of the pair"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "from \\ to"),
        ...columns.map((column) => el("th", { scope: "col" }, column)))),
      el("tbody", {}, ...rows.map((row) =>
        el("tr", {}, el("th", { scope: "row" }, row), ...cells(row))))));
}

function fillMatrix(place, links) {
  const known = new Map(links.map((link) => [`${link.prefill}\n${link.decode}`, link]));
  const highest = Math.max(1, ...links.map((link) => link.bytes_per_s ?? 0));
  for (const cell of place.querySelectorAll("td")) {
    const link = known.get(cell.dataset.link);
    const speed = link?.bytes_per_s ?? null;
    say(cell.firstChild, rate(speed));
    say(cell.lastChild, pairWords(link));
    cell.className = speed === null ? "" : `tint-${1 + Math.min(2, Math.floor((3 * speed) / highest))}`;
  }
}

function pairWords(link) {
  if (!link || !(link.num_prefill + link.num_transfer)) return "idle";
  return [[link.num_prefill, "computing"], [link.num_transfer, "moving"]]
    .filter(([number]) => number).map(([number, word]) => `${count(number)} ${word}`).join(", ");
}

function newList() {
  return el("div", {}, el("p", { class: "note" }), el("table", {},
    el("caption", { class: "unseen" }, "Links between prefill and decode workers"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "From"), el("th", { scope: "col" }, "To"),
      el("th", { scope: "col", class: "num" }, "Speed"), el("th", { scope: "col" }, "Requests"))),
    el("tbody")));
}

function fillList(place, snapshot) {
  const most = snapshot.links.slice(0, 16);
  say(place.querySelector("p"), `${counted(snapshot.num_links, "link")} in use lately; the busiest first.`);
  keep(place.querySelector("tbody"), most, (link) => `${link.prefill}\n${link.decode}`,
    (link) => el("tr", {}, el("th", { scope: "row" }, link.prefill), el("td", {}, link.decode),
      el("td", { class: "num" }), el("td")),
    (row, link) => {
      say(row.cells[2], rate(link.bytes_per_s));
      say(row.cells[3], pairWords(link));
    });
}
