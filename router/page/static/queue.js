// Who waits: tenants by class.

import { drawBar, newBar } from "./charts.js";
import { byId, el, keep, say } from "./dom.js";
import { count, counted } from "./format.js";

export function showQueue(snapshot) {
  const place = byId("queue");
  if (!place.firstChild) place.append(...newQueue());
  const [none, table, more] = place.children;
  const rows = snapshot.queue;
  none.hidden = rows.length > 0;
  table.hidden = !rows.length;
  const left = snapshot.num_queues - rows.length;
  more.hidden = left <= 0;
  say(more, `and ${counted(left, "shorter line")}`);
  const longest = Math.max(1, ...rows.map((row) => row.waiting));
  keep(table.querySelector("tbody"), rows, (row) => `${row.priority}\n${row.tenant}`, newRow,
    (line, row) => {
      say(line.cells[2], count(row.waiting));
      drawBar(line.querySelector("svg"), [["queued", row.waiting]], longest);
    });
}

function newQueue() {
  const head = (title, kind) => el("th", { scope: "col", class: kind }, title);
  return [
    el("p", { class: "none" }, "Nobody waits."),
    el("table", {}, el("caption", { class: "unseen" }, "Requests that wait, by tenant and class"),
      el("thead", {}, el("tr", {}, head("Tenant"), head("Class"), head("Waiting", "num"),
        el("td", { class: "wide" }))),
      el("tbody")),
    el("p", { class: "soft more" }),
  ];
}

function newRow(row) {
  return el("tr", {}, el("th", { scope: "row" }, row.tenant || "without a key"),
    el("td", {}, row.priority), el("td", { class: "num" }), el("td", { class: "wide" }, newBar()));
}
