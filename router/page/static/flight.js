// Requests in flight by stage, and how long first tokens and next tokens take.

import { drawBar, drawLines, newBar, newLines } from "./charts.js";
import { byId, el, keep, say } from "./dom.js";
import { count, ms } from "./format.js";

const STAGES = [
  ["queued", "Queued", "wait for a place"],
  ["prefill", "Prefill", "the prompt is computed"],
  ["transfer", "Transfer", "KV goes to the decode worker"],
  ["decode", "Decode", "tokens are made"],
];
const LEAST_SCALE = 8;

export function showStages(stages) {
  const scale = Math.max(LEAST_SCALE, ...Object.values(stages));
  keep(byId("stages"), STAGES, ([name]) => name, newStage, (row, [name]) => {
    const number = stages[name] ?? 0;
    say(row.cells[1], count(number));
    drawBar(row.querySelector("svg"), [[name, number]], scale);
  });
}

function newStage([, title, meaning]) {
  return el("tr", { class: "stage" },
    el("th", { scope: "row", title: meaning }, title), el("td", { class: "num" }),
    el("td", {}, newBar()));
}

export function showSeries(series) {
  spark(byId("ttft"), series.ttft_p50_ms, series.ttft_p95_ms, series.step_s);
  spark(byId("itl"), series.itl_p50_ms, series.itl_p95_ms, series.step_s);
}

function spark(place, median, high, step) {
  if (!place.firstChild) place.append(...newSpark(step * median.length));
  const [now, chart, , table] = place.children;
  const values = [...median, ...high].filter((value) => value !== null);
  const highest = Math.max(0, ...values);
  say(now.children[0].lastChild, ms(last(median)));
  say(now.children[1].lastChild, ms(last(high)));
  drawLines(chart, [["p95", high], ["p50", median]], highest);
  say(place.querySelector(".top-of-axis"), values.length ? `up to ${ms(highest)}` : "no requests");
  fillTable(table.querySelector("tbody"), median, high, step);
}

const last = (values) => values.findLast((value) => value !== null) ?? null;

function newSpark(seconds) {
  const minutes = Math.round(seconds / 60);
  const figure = (name, title) =>
    el("p", {}, el("span", { class: `key soft ${name}` }, title), " ", el("b"));
  return [
    el("div", { class: "now" }, figure("p50", "median"), figure("p95", "95th of 100")),
    newLines(),
    el("p", { class: "axis" },
      el("span", {}, `${minutes} min ago`), el("span", { class: "top-of-axis" }), el("span", {}, "now")),
    el("details", {}, el("summary", {}, "As a table"), el("table", {},
      el("caption", { class: "unseen" }, `The last ${minutes} minutes`),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Ago"),
        el("th", { scope: "col", class: "num" }, "Median"),
        el("th", { scope: "col", class: "num" }, "95th of 100"))),
      el("tbody"))),
  ];
}

/** A row for every half minute, the latest first. */
function fillTable(body, median, high, step) {
  if (!body.closest("details").open) return;
  const every = Math.max(1, Math.round(30 / step));
  const rows = [];
  for (let at = median.length - 1; at >= 0; at -= every) {
    rows.push([`${(median.length - 1 - at) * step} s`, ms(median[at]), ms(high[at])]);
  }
  keep(body, rows, ([ago]) => ago,
    ([ago]) => el("tr", {}, el("th", { scope: "row" }, ago),
      el("td", { class: "num" }), el("td", { class: "num" })),
    (row, [, middle, top]) => {
      say(row.cells[1], middle);
      say(row.cells[2], top);
    });
}
