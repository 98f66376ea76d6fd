/** One bar for the life of an execution: every wait with its reason, and every try. */

import { type ExecutionDetail, useGet } from "../data/api.ts";
import { clock, duration, short, useNow } from "../data/format.ts";
import { toneOf } from "./status.tsx";

interface Segment {
  name: string;
  from: number;
  to: number;
  tone: string;
  isWork: boolean;
}

/** What a wait is called after the event that it follows. */
const WAITS: Record<string, [string, string]> = {
  failed: ["waits for its retry", "warn"],
  timed_out: ["waits for its retry", "warn"],
  lost: ["waits for another worker", "warn"],
  released: ["handed back, in the queue", "wait"],
  waited: ["waits for an event", "wait"],
  slept: ["sleeps", "idle"],
  step_failed: ["waits for a step's retry", "warn"],
};
const ENDS = new Set(["succeeded", "cancelled", ...Object.keys(WAITS)]);

/** The first wait by its cause, as the answer to why has it. */
const CAUSES: Record<string, string> = {
  delay: "scheduled for later",
  limit: "waits for a limit",
  slot: "waits for the run before",
  dependency: "waits for dependencies",
  event: "waits for an event",
};

export function segmentsOf(one: ExecutionDetail, now: number, cause = ""): Segment[] {
  const segments: Segment[] = [];
  let at = Date.parse(one.created_at);
  let after = "";
  let isWorking = false;
  const add = (to: number, name: string, tone: string, isWork: boolean) => {
    if (to > at || isWork) segments.push({ name, from: at, to, tone, isWork });
    at = Math.max(at, to);
  };
  const wait = (to: number) => {
    const known = WAITS[after];
    if (known) return add(to, known[0], known[1], false);
    const due = Math.min(Date.parse(one.run_at), to);
    if (one.attempt <= 1 || one.failures === 0)
      add(due, CAUSES[cause] ?? "not due yet", cause === "delay" ? "idle" : "wait", false);
    add(to, one.status === "waiting" ? (CAUSES[one.reason ?? ""] ?? "waits") : "in the queue", "wait", false);
  };
  for (const moment of one.timeline) {
    if (moment.node || moment.attempt === undefined) continue;
    const time = Date.parse(moment.at);
    if (moment.event === "started") {
      wait(time);
      isWorking = true;
    } else if (ENDS.has(moment.event) && isWorking) {
      const tone =
        moment.event in WAITS && !["waited", "slept", "released"].includes(moment.event)
          ? "bad"
          : moment.event === "cancelled"
            ? "idle"
            : "ok";
      add(time, `try ${moment.attempt}: ${moment.event.replaceAll("_", " ")}`, tone, true);
      isWorking = false;
      after = moment.event;
    }
  }
  const end = one.finished_at ? Date.parse(one.finished_at) : now;
  if (isWorking) add(end, "runs", one.finished_at ? toneOf(one.status) : "run", true);
  else if (!one.finished_at || segments.length === 0) wait(end);
  return segments;
}

/** Segments with the same name as one, the longest first. */
function sumUp(segments: Segment[]) {
  const sums = new Map<string, Segment & { length: number; times: number }>();
  for (const each of segments) {
    const known = sums.get(each.name) ?? { ...each, length: 0, times: 0 };
    sums.set(each.name, { ...known, length: known.length + each.to - each.from, times: known.times + 1 });
  }
  return [...sums.values()].sort((a, b) => b.length - a.length);
}

export function TimelineBar({ one }: { one: ExecutionDetail }) {
  const now = useNow();
  const why = useGet("/executions/{id}/why", {
    path: { id: one.execution_id },
    every: false,
    on: one.finished_at !== null,
  });
  const cause = why.data?.delays.find((part) => part.code in CAUSES)?.code ?? (one.scheduled_for ? "delay" : "");
  const segments = segmentsOf(one, Math.max(now, Date.parse(one.created_at)), cause);
  const total = segments.reduce((sum, each) => sum + each.to - each.from, 0);
  const sum = (isWork: boolean) =>
    segments.filter((each) => each.isWork === isWork).reduce((all, each) => all + each.to - each.from, 0) / 1000;
  const told = sumUp(segments).slice(0, 5);
  const end = one.finished_at ?? new Date(now).toISOString();
  return (
    <div className="timeline">
      <div className="row between wrap small">
        <span>
          <b>{duration(total / 1000)}</b>{" "}
          <span className="muted">from enqueue to {one.finished_at ? "end" : "now"}</span>
        </span>
        <span className="muted">
          worked {duration(sum(true))} · waited {duration(sum(false))}
        </span>
      </div>
      <div
        className="timeline-bar"
        role="img"
        aria-label={segments.map((each) => `${each.name} ${duration((each.to - each.from) / 1000)}`).join(", ")}
      >
        {segments.map((each) => (
          <span
            key={`${each.from} ${each.name}`}
            className={`fill-${each.tone} ${each.isWork ? "work" : "waits"}`}
            style={{ flexGrow: Math.max(1, each.to - each.from) }}
            title={`${each.name}: ${duration((each.to - each.from) / 1000)}`}
          />
        ))}
      </div>
      <div className="row between small faint num">
        <span>{short(one.created_at)}</span>
        <span>{clock(end)}</span>
      </div>
      <ul className="legend small">
        {told.map((each) => (
          <li key={`${each.from} ${each.name}`}>
            <i className={`fill-${each.tone} ${each.isWork ? "work" : "waits"}`} /> {each.name}
            {each.times > 1 && `, ${each.times} times`}{" "}
            <span className="muted num">{duration(each.length / 1000)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
