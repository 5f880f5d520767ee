// How are figures and states said, to be read?

const number = new Intl.NumberFormat("en");
export const many = (value) => number.format(value);
export const plural = (value, word) => `${many(value)} ${word}${value === 1 ? "" : "s"}`;
export const percent = (share) => `${Math.round(share * 100)} %`;

/** A time in seconds, as people say it. */
export function time(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 3570) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** So many a second. */
export function rate(value) {
  if (value === undefined) return "–";
  return value === 0 ? "0" : value < 9.95 ? value.toFixed(1) : many(Math.round(value));
}

/** Every state, the one that most needs somebody first, with how bad it is. */
export const STATES = {
  ejected: "bad", unable: "bad", loading: "warn", unheard: "warn", paused: "warn", degraded: "warn", probing: "warn", warming: "warn",
  draining: "off", healthy: "good",
};
