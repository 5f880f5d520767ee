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

const CAUSES = {
  unreachable: "nobody could be reached there", broke: "its connections broke", cut_short: "its answers were cut short",
  late: "it did not answer in time", unavailable: "it said that it cannot", failed: "its answers were errors",
  success_rate: "fewer of its answers were good than of the others'",
};

/** Every state, the one that most needs somebody first, with how bad it is. */
export const STATES = {
  ejected: "bad", unable: "bad", loading: "warn", unheard: "warn", paused: "warn", degraded: "warn", probing: "warn", warming: "warn",
  draining: "off", healthy: "good",
};

/** How an upstream is: its state in a word, and why. */
export function stateOf(upstream) {
  const service = upstream.service ?? {};
  const why = [];
  const state = () => {
    if (upstream.draining) {
      why.push(upstream.in_flight ? `${plural(upstream.in_flight, "request")} to end` : "idle: it has nothing left");
      return "draining";
    }
    if (service.state === "ejected") {
      why.push(CAUSES[service.cause] ?? service.cause ?? "");
      if (service.ends_in_seconds !== undefined) why.push(`probed in ${time(service.ends_in_seconds)}`);
      if (service.last_resort) why.push("gets what nobody else could serve");
      return "ejected";
    }
    if (!upstream.able && upstream.health === "loading") return "loading";
    if (!upstream.able) {
      if (upstream.health === "failing") why.push("it says that it fails");
      return "unable";
    }
    if (service.paused_for_seconds !== undefined) {
      why.push(`has asked to be left alone, ${time(service.paused_for_seconds)} more`);
      return "paused";
    }
    if (service.state === "probing") {
      why.push("one request at a time, until it is seen to serve");
      return "probing";
    }
    if (upstream.report_age_seconds === undefined) return "unheard";
    if (upstream.degraded?.length) {
      why.push(`does not tell ${upstream.degraded.map((one) => one.signal.replaceAll("_", " ")).join(", ")}`);
      return "degraded";
    }
    if (service.state === "warming") {
      why.push(`its limit grows${service.ends_in_seconds === undefined ? "" : `, ${time(service.ends_in_seconds)} more`}`);
      return "warming";
    }
    return "healthy";
  };
  const word = state();
  if (upstream.failed_polls) {
    why.push(`${plural(upstream.failed_polls, "poll")} failed${upstream.last_failure ? `: ${upstream.last_failure}` : ""}`);
  }
  return { word, level: STATES[word], why: why.filter(Boolean).join("; ") };
}
