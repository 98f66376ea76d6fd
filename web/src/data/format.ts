/** Times, durations and numbers as people read them. */

import { useSyncExternalStore } from "react";
import { serverNow } from "./live.ts";

const LOCALE = /^[\w-]+$/.test(navigator.language) ? navigator.language : "en";
// uPlot reads the language when it is imported, and an invalid one, such as en-US@posix, ends that.
if (LOCALE !== navigator.language) Object.defineProperty(navigator, "language", { value: LOCALE });
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const UNITS: [number, string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** Round lengths of time, for axes. */
export const DURATION_STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  14_400, 21_600, 43_200, 86_400, 172_800, 604_800,
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
const MINUTES = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const CLOCK = new Intl.DateTimeFormat(LOCALE, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23",
});

export const exact = (at: string) => `${FULL.format(new Date(at))} (${ZONE}) · ${at}`;
export const short = (at: string) => SHORT.format(new Date(at));
export const minutes = (at: string) => MINUTES.format(new Date(at));
export const clock = (at: string) => CLOCK.format(new Date(at));

const COUNT = new Intl.NumberFormat(LOCALE);
const COMPACT = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumFractionDigits: 1 });
export const count = (value: number, isAtLeast = false) =>
  (value < 100_000 ? COUNT.format(value) : COMPACT.format(value)) + (isAtLeast ? "+" : "");
/** A number of bytes, in units of 1000 as resources are written. */
export function bytes(value: number): string {
  const at = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${Number((value / 1000 ** at).toFixed(1))} ${["B", "kB", "MB", "GB", "TB"][at]}`;
}
export const percent = (part: number) => `${(part * 100).toFixed(part > 0.9995 || part === 0 ? 0 : 1)}%`;
export const plural = (number: number, noun: string) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

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

/** A command of the shell: a word that it would take apart is quoted, and an empty option left out. */
export function command(words: string, options: Record<string, string | undefined> = {}, ...names: string[]): string {
  const quote = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
  const given = Object.entries(options)
    .filter(([, value]) => value)
    .map(([name, value]) => ` --${name} ${quote(value ?? "")}`);
  return `daybell ${words}${names.map((name) => ` ${quote(name)}`).join("")}${given.join("")}`;
}

// What people type as JSON.
export function readObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

export function readJson(text: string): { value: unknown; wrong: boolean } {
  try {
    return { value: text.trim() ? JSON.parse(text) : null, wrong: false };
  } catch {
    return { value: null, wrong: true };
  }
}
