// The stream of snapshots: opened, read, and opened again whenever it ends.

export const FRESH_S = 3.5; // snapshots come every second
const LONGEST_WAIT_S = 10;

/** Calls `on.snapshot(data)` with each, and `on.state(word, detail)` as the connection changes:
 * open, door (sign in first), full, away. */
export class Live {
  constructor(on) {
    this.on = on;
    this.tries = 0;
    this.timer = null;
    this.reading = null;
  }

  /** From now on; at once, also while it waits to try again. */
  async open() {
    this.close();
    const reading = (this.reading = new AbortController());
    try {
      const session = await askSession(reading.signal);
      if (session.sight === "nothing") {
        this.on.state("door", session);
        return;
      }
      const answer = await fetch("/events", { signal: reading.signal });
      if (answer.status === 503) this.again("full");
      else if (!answer.ok) this.again("away");
      else await this.read(answer.body, session);
    } catch (error) {
      if (reading.signal.aborted) return;
      this.again("away");
    }
  }

  close() {
    clearTimeout(this.timer);
    this.reading?.abort();
  }

  async read(body, session) {
    this.on.state("open", session);
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) this.take(event);
    }
    this.again("away");
  }

  take(event) {
    if (!event.startsWith("data: {")) return;
    this.tries = 0;
    this.on.snapshot(JSON.parse(event.slice(6)));
  }

  again(word) {
    const waitS = Math.min(LONGEST_WAIT_S, 2 ** this.tries++);
    this.on.state(word);
    this.timer = setTimeout(() => this.open(), 1000 * waitS);
  }
}

async function askSession(signal) {
  const answer = await fetch("/session", { signal });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

/** Empty: signed in; else why not, in words. */
export async function signIn(token) {
  try {
    const answer = await fetch("/session", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token }),
    });
    return answer.ok ? "" : (await answer.json()).error.message;
  } catch {
    return "the router does not answer";
  }
}

export const signOut = () => fetch("/session", { method: "DELETE" });
