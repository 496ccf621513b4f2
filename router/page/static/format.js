// Numbers in words that an operator reads at a glance.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export const count = (value) => whole.format(value);

/** "1 request", "2 requests". */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Milliseconds, with a unit that fits. */
export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${tenths.format(value / 1000)} s`;
  return value >= 100 ? `${whole.format(value)} ms` : `${tenths.format(value)} ms`;
}

/** Bytes per second. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  const steps = [[1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"]];
  const [size, unit] = steps.find(([least]) => value >= least) ?? [1, "B/s"];
  return `${tenths.format(value / size)} ${unit}`;
}

export function share(part, total) {
  return total > 0 ? `${whole.format((100 * part) / total)} %` : "–";
}

/** How long ago or how long since, coarse. */
export function duration(seconds) {
  if (seconds < 100) return `${whole.format(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export const inWords = (name) => name.replaceAll("_", " ");
