// How is the router asked, and with which key?
//
// The key, where one is wanted, is kept in this tab's session and sent as a bearer token, to this origin alone.

const KEPT = "paddler-management-key";

/** What the router says no to. `status` 0: it was not reached. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const hasKey = () => sessionStorage.getItem(KEPT) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEPT, key);
export const forgetKey = () => sessionStorage.removeItem(KEPT);

async function send(path, options = {}) {
  const key = sessionStorage.getItem(KEPT);
  const headers = { ...options.headers, ...(key === null ? {} : { authorization: `Bearer ${key}` }) };
  let response;
  try {
    // Beside the page, wherever that is.
    response = await fetch(new URL(path, document.baseURI), { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the router does not answer");
  }
  if (response.ok) return response;
  const text = await response.text();
  let said = text;
  try { said = JSON.parse(text).error ?? text; } catch { /* it is not JSON, and told as it is */ }
  throw new Refused(response.status, said.trim() || `status ${response.status}`);
}

export const get = async (path) => (await send(`api/v1/${path}`)).json();
export const post = async (path, body) =>
  (await send(`api/v1/${path}`, { method: "POST", body: body === undefined ? undefined : JSON.stringify(body) })).json();
export const text = async (path) => (await send(path)).text();

/** Calls `tell(kind, data)` for each event, until the stream ends. */
export async function follow(tell, signal) {
  const response = await send("api/v1/events", { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (left + value).split("\n\n");
    left = events.pop();
    for (const event of events) {
      const lines = event.split("\n");
      const field = (name) => lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2));
      const data = field("data").join("\n");
      if (data) tell(field("event")[0] ?? "message", JSON.parse(data));
    }
  }
}
