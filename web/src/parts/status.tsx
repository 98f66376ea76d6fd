/** Icons, states and times. */

import { Fragment } from "react";
import { exact, relative, short, useNow } from "../data/format.ts";

// Icons: strokes on a grid of 24.
const ICONS = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  jobs: "M4 7h16v13H4zM9 7V4h6v3M4 12h16",
  executions: "M8 6h13M8 12h13M8 18h13M3.5 6h.01M3.5 12h.01M3.5 18h.01",
  workflows: "M6 3v6M6 15v6M6 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM18 6a3 3 0 1 0 0-.01M9 12h3c4 0 6-1 6-3",
  calendar: "M4 5h16v16H4zM4 10h16M8 3v4M16 3v4",
  dead: "M12 3 2 20h20L12 3ZM12 10v4M12 17h.01",
  queues: "M3 7l9-4 9 4-9 4-9-4ZM3 12l9 4 9-4M3 17l9 4 9-4",
  workers: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  events: "M13 2 4 14h7l-1 8 9-12h-7l1-8Z",
  settings:
    "M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM19 12l2-1-1-3-2 .4-1.5-1.5L17 5l-3-1-1 2h-2L10 4 7 5l.4 2L6 8.5 4 8l-1 3 2 1v0l-2 1 1 3 2-.5L7.500 17 7 19l3 1 1-2h2l1 2 3-1-.4-2 1.500-1.500 2 .5 1-3-2-1Z",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM20 20l-4-4",
  bell: "M6 16V11a6 6 0 0 1 12 0v5l1.500 2h-15ZM10 21h4",
  check: "M5 12.500l4.500 4.500L19 7.500",
  cross: "M6 6l12 12M18 6 6 18",
  ring: "M12 4a8 8 0 1 0 8 8",
  circle: "M12 5a7 7 0 1 0 0 14 7 7 0 0 0 0-14Z",
  clock: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 8v4l3 2",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7V5Z",
  retry: "M20 11a8 8 0 1 0-2.500 6M20 5v6h-6",
  slash: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM6.500 17.500l11-11",
  skip: "M5 6l7 6-7 6V6ZM13 6l7 6-7 6V6Z",
  hourglass: "M7 3h10M7 21h10M8 3v4l4 5-4 5v4M16 3v4l-4 5 4 5v4",
  hand: "M6 3l12 9-6 1.500L9 20 6 3Z",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  down: "M6 9l6 6 6-6",
  up: "M6 15l6-6 6 6",
  menu: "M4 7h16M4 12h16M4 17h16",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.500 1.500M17.500 17.500 19 19M5 19l1.500-1.500M17.500 6.500 19 5",
  moon: "M20 14A8 8 0 0 1 10 4a8 8 0 1 0 10 10Z",
  screen: "M3 5h18v12H3zM8 21h8M12 17v4",
  info: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16ZM12 11v5M12 8h.01",
  edit: "M4 20l1-5L16 4l4 4L9 19l-5 1Z",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  terminal: "M4 6l5 6-5 6M12 18h8",
  key: "M14 10a4 4 0 1 0 0-.01M11 12l-8 8M5 18l2 2M8 15l2 2",
} as const;
export type IconName = keyof typeof ICONS;

export function Icon({ name, className = "" }: { name: IconName; className?: string }) {
  return (
    <svg className={`icon ${className}`} viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

// States: a shape and a tone for each.
export type Tone = "ok" | "bad" | "warn" | "run" | "wait" | "idle";
const STATES: Record<string, [Tone, IconName]> = {
  succeeded: ["ok", "check"],
  done: ["ok", "check"],
  live: ["ok", "check"],
  dead: ["bad", "cross"],
  open: ["bad", "bell"],
  acknowledged: ["warn", "check"],
  closed: ["ok", "check"],
  failed: ["bad", "cross"],
  timed_out: ["bad", "clock"],
  lost: ["bad", "slash"],
  late: ["warn", "clock"],
  running: ["run", "ring"],
  retrying: ["warn", "retry"],
  draining: ["warn", "hourglass"],
  paused: ["warn", "pause"],
  waiting: ["wait", "hourglass"],
  sleeping: ["wait", "clock"],
  queued: ["wait", "circle"],
  scheduled: ["idle", "clock"],
  cancelled: ["idle", "slash"],
  skipped: ["idle", "skip"],
  deleted: ["idle", "trash"],
  manual: ["idle", "hand"],
};
export const iconOf = (state: string): IconName => STATES[state]?.[1] ?? "circle";
export const toneOf = (state: string): Tone => STATES[state]?.[0] ?? "idle";

export function Status({ state, bare = false }: { state: string; bare?: boolean }) {
  const [tone, icon] = STATES[state] ?? ["idle", "circle"];
  const text = state.replaceAll("_", " ");
  return (
    <span className={`status tone-${tone}`} title={bare ? text : undefined}>
      <Icon name={icon} className={state === "running" ? "spin" : ""} />
      {bare ? <span className="hidden-text">{text}</span> : text}
    </span>
  );
}

/** A time: relative, exact on hover. */
export function Time({ at, as = "relative" }: { at: string | null | undefined; as?: "relative" | "short" }) {
  const now = useNow();
  if (!at) return <span className="faint">–</span>;
  return (
    <time className="num" dateTime={at} title={exact(at)}>
      {as === "short" ? short(at) : relative(at, now)}
    </time>
  );
}

const MOMENT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/;

/** A text of the server: its times as all others are shown, its commands as code. */
export function Told({ text }: { text: string }) {
  const plain = (part: string) =>
    part.split(/`([^`]+)`/).map((one, at) => (at % 2 ? <code key={at}>{one}</code> : one));
  return (
    <>
      {text
        .split(MOMENT)
        .map((part, at) =>
          at % 2 ? <Time key={at} at={part} as="short" /> : <Fragment key={at}>{plain(part)}</Fragment>,
        )}
    </>
  );
}
