/** The live connection: one stream of events for all tabs of a browser, and its state. */

import { queries, type Stats } from "./api.ts";
import { createStore } from "./store.ts";

export type LiveState = "connecting" | "live" | "reconnecting" | "stale" | "login";

interface Live {
  state: LiveState;
  heardAt: number;
  frozenAt: number | null;
  /** The store's clock minus this browser's. */
  skew: number;
}

export const liveStore = createStore<Live>({
  state: "connecting",
  heardAt: Date.now(),
  frozenAt: null,
  skew: 0,
});

const STALE_MS = 15_000;
const update = (some: Partial<Live>) => liveStore.set((now) => ({ ...now, ...some }));

export const isFrozen = () => liveStore.get().frozenAt !== null;
export const serverNow = () => Date.now() + liveStore.get().skew;

export const live = {
  /** A request found that the server does not answer. */
  lost: () => {
    if (liveStore.get().state === "live") update({ state: "reconnecting" });
  },
  /** A request was refused for want of a key. */
  refused: () => update({ state: "login" }),
  freeze: (on: boolean) => {
    update({ frozenAt: on ? Date.now() : null });
    if (!on) void queries.invalidateQueries();
  },
};

function hear(stats: Stats) {
  const wasAway = liveStore.get().state !== "live";
  const skew = Date.parse(stats.now) - Date.now();
  const same = Math.abs(skew - liveStore.get().skew) < 1000;
  update({ state: "live", heardAt: Date.now(), ...(same ? {} : { skew }) });
  if (!isFrozen()) queries.setQueryData(["/stats", null, null], stats);
  if (wasAway && !isFrozen()) void queries.invalidateQueries();
}

type News = { kind: "stats"; data: Stats } | { kind: "away" } | { kind: "lost" };

function take(news: News) {
  if (news.kind === "stats") hear(news.data);
  else if (liveStore.get().state !== "login") update({ state: "reconnecting" });
}

/** Follow the stream. A browser allows six connections to a server: one tab listens for all. */
export function connect() {
  const channel = new BroadcastChannel("daybell");
  channel.onmessage = (event: MessageEvent<News>) => take(event.data);
  const tell = (news: News) => {
    take(news);
    channel.postMessage(news);
  };
  if ("locks" in navigator) {
    void navigator.locks.request("daybell-stream", () => listen(tell));
  } else {
    void listen(tell);
  }
  setInterval(() => {
    const { state, heardAt } = liveStore.get();
    const isQuiet = Date.now() - heardAt > STALE_MS;
    if (isQuiet && state !== "login" && state !== "stale") update({ state: "stale" });
  }, 1000);
}

function listen(tell: (news: News) => void): Promise<never> {
  const open = () => {
    const source = new EventSource("/api/v1/stream");
    source.addEventListener("stats", (event) =>
      tell({ kind: "stats", data: JSON.parse((event as MessageEvent<string>).data) as Stats }),
    );
    source.addEventListener("unavailable", () => tell({ kind: "away" }));
    source.onerror = () => {
      tell({ kind: "lost" });
      // After an answer that is no stream, such as one without a key, a browser gives up.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
  };
  open();
  return new Promise(() => undefined);
}
