// Why the last requests went where they went, and what came of it.

import { drawBar, newBar } from "./charts.js";
import { byId, el, keep, say } from "./dom.js";
import { count, inWords, ms } from "./format.js";

const LATE = 1.5; // times what was foretold, and by so much at least:
const LATE_MS = 50;

export function showDecisions(decisions) {
  byId("no-decisions").hidden = decisions.length > 0;
  const sums = decisions.map((each) => sum(each.terms_ms));
  const longest = Math.max(1, ...sums);
  const named = numbered(decisions);
  keep(byId("decisions"), named, (each) => each.key, newDecision,
    (item, { decision }) => showDecision(item, decision, longest));
}

/** Those without a name are told apart by what stands in them. */
function numbered(decisions) {
  const seen = new Map();
  return decisions.map((decision) => {
    const base = decision.request_id ||
      [decision.prefill, decision.decode, decision.prompt_tokens, decision.total_ms].join(" ");
    const number = seen.get(base) ?? 0;
    seen.set(base, number + 1);
    return { key: `${base} ${number}`, decision };
  });
}

function newDecision({ decision }) {
  const pair = decision.prefill ? `${decision.prefill} → ${decision.decode}` : `${decision.decode} alone`;
  const who = [decision.tenant, decision.priority].filter(Boolean).join(", ");
  return el("li", { class: "decision" },
    el("div", {}, el("h3", {}, pair), el("p", { class: "soft" }, `${inWords(decision.reason)}; ${who}`),
      el("p", { class: "id soft" }, decision.request_id)),
    el("div", {}, el("p"), el("p", { class: "soft" })),
    el("div", { class: "terms" }, newBar(), el("p"), el("p", { class: "soft" })),
    el("div", {}, el("p", { class: "came" }), el("p", { class: "soft" })));
}

function showDecision(item, decision, longest) {
  const [, prompt, terms, came] = item.children;
  say(prompt.firstChild, `${count(decision.prompt_tokens)} tokens`);
  say(prompt.lastChild, cachedWords(decision));
  const parts = Object.entries(decision.terms_ms);
  drawBar(terms.children[0], parts, longest);
  say(terms.children[1], parts.map(([name, took]) => `${name} ${ms(took)}`).join(", ") || "nothing to wait for");
  say(terms.children[2], decision.next_ms === null ? "There was no other way."
    : `Next best: ${decision.next_pair.replace(">", "→")}, ${ms(decision.next_ms)} in place of ${ms(decision.total_ms)}.`);
  say(came.firstChild, cameWords(decision));
  came.firstChild.classList.toggle("late", isLate(decision));
  say(came.lastChild, `foretold ${ms(decision.foretold_ms)}`);
}

const sum = (terms) => Object.values(terms).reduce((total, took) => total + took, 0);

function cachedWords({ cached_tokens: found, expected_cached: expected }) {
  if (found === null || found === expected) return `${count(expected)} cached`;
  return `${count(found)} cached, ${count(expected)} expected`;
}

function cameWords({ end, ttft_ms: took, foretold_ms: foretold }) {
  if (end) return `ended: ${inWords(end)}`;
  if (took === null) return "running";
  const off = took - foretold;
  return `first token ${ms(took)} (${off < 0 ? "−" : "+"}${ms(Math.abs(off))})`;
}

const isLate = ({ ttft_ms: took, foretold_ms: foretold }) =>
  took !== null && took > LATE * foretold && took - foretold > LATE_MS;
