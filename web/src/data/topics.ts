/** The rows in sight, live: one stream of the changes of all lists and things that this tab shows. */

import { BASE, queries } from "./api.ts";
import { isFrozen, liveStore } from "./live.ts";
import { createStore } from "./store.ts";

/** The addresses that a stream can follow. */
const CAN_FOLLOW =
  /^(counts|limits|queues|workers|incidents|events|dead-letters(\/groups)?|(executions|jobs|queues)(\/[^/?]+(\/why)?)?)(\?|$)/;
const TOPICS_MAX = 40;
const ROWS_MAX = 200;

interface RowsEvent {
  topic: string;
  is_full: boolean;
  key: string;
  rows: Record<string, unknown>[];
  keys?: unknown[];
  next_cursor?: string | null;
}

interface Followed {
  queryKey: readonly unknown[];
  isList: boolean;
  /** How many parts of the page show it. */
  users: number;
  rows: Map<unknown, Record<string, unknown>>;
  keys: unknown[];
}

interface ListData {
  pages: { items: unknown[]; next_cursor: string | null }[];
  pageParams: unknown[];
}

const followed = new Map<string, Followed>();
/** Topics that the stream keeps current: nothing asks for them again. */
export const streamed = createStore<ReadonlySet<string>>(new Set());
let source: EventSource | null = null;
let opened = "";
let timer: ReturnType<typeof setTimeout> | undefined;

export const topicOf = (address: string) => {
  const topic = address.slice(BASE.length + 1);
  const limit = Number(/[?&]limit=(\d+)/.exec(topic)?.[1] ?? 0);
  return CAN_FOLLOW.test(topic) && limit <= ROWS_MAX ? topic : null;
};

/** Keep the answer of a query current, until the returned function is called. */
export function follow(topic: string, queryKey: readonly unknown[], isList: boolean) {
  const known = followed.get(topic);
  if (known) known.users += 1;
  else followed.set(topic, { queryKey, isList, users: 1, rows: new Map(), keys: [] });
  plan();
  return () => {
    const one = followed.get(topic);
    if (!one) return;
    one.users -= 1;
    if (!one.users) followed.delete(topic);
    plan();
  };
}

/** Topics change with the page: they are asked for together, a moment later. */
function plan() {
  clearTimeout(timer);
  timer = setTimeout(connect, 150);
}

function connect() {
  const isIdle = document.hidden || isFrozen() || liveStore.get().state === "login";
  const topics = isIdle ? [] : [...followed.keys()].slice(0, TOPICS_MAX);
  const url = topics.length ? `${BASE}/stream?${new URLSearchParams(topics.map((one) => ["topics", one]))}` : "";
  if (url === opened && source?.readyState !== EventSource.CLOSED) return;
  source?.close();
  source = null;
  opened = url;
  streamed.set(new Set());
  if (!url) return;
  const stream = new EventSource(url);
  source = stream;
  const heard =
    <T>(take: (event: T) => void) =>
    (event: Event) =>
      take(JSON.parse((event as MessageEvent<string>).data) as T);
  stream.addEventListener("rows", heard(takeRows));
  stream.addEventListener("value", heard(takeValue));
  stream.addEventListener(
    "problem",
    heard(({ topic }: { topic: string }) => drop(topic)),
  );
  stream.addEventListener("unavailable", () => streamed.set(new Set()));
  // The browser connects again by itself and continues after the last event; until then, pages ask.
  stream.onerror = () => {
    streamed.set(new Set());
    if (stream.readyState === EventSource.CLOSED && source === stream) setTimeout(plan, 3000);
  };
}

function drop(topic: string) {
  const one = followed.get(topic);
  if (streamed.get().has(topic)) streamed.set((now) => new Set([...now].filter((other) => other !== topic)));
  if (one) void queries.invalidateQueries({ queryKey: one.queryKey });
}

function isCurrent(topic: string) {
  if (!streamed.get().has(topic)) streamed.set((now) => new Set([...now, topic]));
}

function takeValue({ topic, value }: { topic: string; value: unknown }) {
  const one = followed.get(topic);
  if (!one || isFrozen() || !queries.getQueryData(one.queryKey)) return;
  queries.setQueryData(one.queryKey, value);
  isCurrent(topic);
}

function takeRows({ topic, is_full, key, rows, keys, next_cursor }: RowsEvent) {
  const one = followed.get(topic);
  if (!one) return;
  if (is_full) one.rows.clear();
  for (const row of rows) one.rows.set(row[key], row);
  if (keys) {
    one.keys = keys;
    const kept = new Set(keys);
    for (const name of one.rows.keys()) if (!kept.has(name)) one.rows.delete(name);
  }
  const items = one.keys.map((name) => one.rows.get(name)).filter((row) => row !== undefined);
  // Before the first answer has come, there is nothing to change: it is asked for until the next event.
  if (isFrozen() || items.length !== one.keys.length || !queries.getQueryData(one.queryKey)) return;
  isCurrent(topic);
  if (!one.isList) {
    queries.setQueryData(one.queryKey, (old: object | undefined) => old && { ...old, items });
    return;
  }
  queries.setQueryData(one.queryKey, (old: ListData | undefined) => {
    // A list that was read further stays as it is.
    if (!old || old.pages.length !== 1) return old;
    const next = next_cursor === undefined ? (old.pages[0]?.next_cursor ?? null) : next_cursor;
    return { ...old, pages: [{ items, next_cursor: next }] };
  });
}

document.addEventListener("visibilitychange", plan);
liveStore.follow(plan);
