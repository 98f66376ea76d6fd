/** Times, durations and numbers as people read them. */

import { useSyncExternalStore } from "react";
import { serverNow } from "./live.ts";

const LOCALE = /^[\w-]+$/.test(navigator.language) ? navigator.language : "en";
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** A length of time in at most two units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 0.001) return "<1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const at = UNITS.findIndex(([size]) => whole >= size);
  const [size, name] = UNITS[at] ?? [1, "s"];
  const first = Math.floor(whole / size);
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((whole - first * size) / next[0]) : 0;
  return next && rest && first < 10 ? `${first} ${name} ${rest} ${next[1]}` : `${first} ${name}`;
}

export function relative(at: string, now: number): string {
  const seconds = (Date.parse(at) - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const length = Math.abs(seconds);
  const [size, name] = UNITS.find(([one]) => length >= one) ?? [1, "s"];
  const text = `${Math.floor(length / size)} ${name}`;
  return seconds < 0 ? `${text} ago` : `in ${text}`;
}

const FULL = new Intl.DateTimeFormat(LOCALE, {
  dateStyle: "medium",
  timeStyle: "long",
});
const SHORT = new Intl.DateTimeFormat(LOCALE, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const CLOCK = new Intl.DateTimeFormat(LOCALE, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23",
});

export const exact = (at: string) => `${FULL.format(new Date(at))} (${ZONE}) · ${at}`;
export const short = (at: string) => SHORT.format(new Date(at));
export const clock = (at: string) => CLOCK.format(new Date(at));

const COUNT = new Intl.NumberFormat(LOCALE);
const COMPACT = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumFractionDigits: 1 });
export const count = (value: number, isAtLeast = false) =>
  (value < 100_000 ? COUNT.format(value) : COMPACT.format(value)) + (isAtLeast ? "+" : "");
export const percent = (part: number) => `${(part * 100).toFixed(part > 0.9995 || part === 0 ? 0 : 1)}%`;
export const plural = (number: number, noun: string) =>
  `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export const seconds = (from: string, to: string | number) =>
  ((typeof to === "number" ? to : Date.parse(to)) - Date.parse(from)) / 1000;
export const shortId = (id: string) => id.slice(-8);

// One timer for all that shows a time.
let now = serverNow();
const listeners = new Set<() => void>();
setInterval(() => {
  if (document.hidden) return;
  now = serverNow();
  for (const one of listeners) one();
}, 1000);
const follow = (listener: () => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};
export const useNow = () => useSyncExternalStore(follow, () => now);
