// Bars and lines, drawn by hand. Each stands beside the same numbers in words: for readers of the
// screen they are hidden.

import { keep, svg } from "./dom.js";

const WIDTH = 1000;

/** A bar of parts; draw it with `drawBar`. */
export function newBar() {
  return svg("svg", {
    class: "bar", viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", "aria-hidden": "true",
  });
}

/** `parts`: [name, value]; `total`: what the whole width stands for. */
export function drawBar(bar, parts, total) {
  let at = 0;
  const placed = parts.filter(([, value]) => value > 0).map(([name, value]) => {
    const width = total > 0 ? (value / total) * WIDTH : 0;
    const part = { name, x: at, width };
    at += width;
    return part;
  });
  keep(bar, placed, (part) => part.name, newPart, (rect, { x, width }) => {
    rect.setAttribute("x", x.toFixed(1));
    rect.setAttribute("width", Math.max(width, 1).toFixed(1));
  });
}

function newPart({ name }) {
  return svg("rect", { class: `fill-${name}`, y: 0, height: 10 });
}

/** A small square in the colour of a part. */
export function swatch(name) {
  return svg("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" },
    svg("rect", { class: `fill-${name}`, width: 10, height: 10, rx: 2 }));
}

/** Lines over the same time; `lines`: [class, values with null for nothing]. */
export function drawLines(chart, lines, highest) {
  const paths = lines.map(([name, values]) => ({ name, path: pathOf(values, highest) }));
  keep(chart, paths, (line) => line.name, ({ name }) => svg("path", { class: name }),
    (path, line) => path.setAttribute("d", line.path));
}

export function newLines() {
  return svg("svg", {
    viewBox: "0 0 300 70", preserveAspectRatio: "none", "aria-hidden": "true",
  });
}

function pathOf(values, highest) {
  const step = 300 / Math.max(1, values.length - 1);
  let path = "";
  let isDown = false;
  values.forEach((value, at) => {
    if (value === null) {
      isDown = false;
      return;
    }
    const y = 66 - (60 * value) / (highest || 1);
    path += `${isDown ? "L" : "M"}${(at * step).toFixed(1)} ${y.toFixed(1)}`;
    if (!isDown) path += "h0.01"; // a single value is a dot
    isDown = true;
  });
  return path;
}
