/** The nodes of a workflow's run over time, with the critical path. */

import { memo, useMemo } from "react";
import type { ExecutionDetail, RunNode, WorkflowRun } from "../data/api.ts";
import { clock, duration, DURATION_STEPS, plural, seconds, useNow } from "../data/format.ts";
import { executionPath, Link } from "../data/router.tsx";
import { Card } from "../parts/page.tsx";
import { Status, toneOf } from "../parts/status.tsx";
import { useWidth } from "../parts/table.tsx";

/** The chain of nodes that the end of the run depended on. */
export function criticalPath(run: WorkflowRun): Set<string> {
  const known = new Map(run.nodes.map((node) => [node.name, node]));
  const before = new Map<string, RunNode[]>();
  for (const edge of run.edges) {
    const node = known.get(edge.from);
    if (node) before.set(edge.to, [...(before.get(edge.to) ?? []), node]);
  }
  const latest = (nodes: RunNode[]) =>
    nodes
      .filter((node) => node.finished_at)
      .sort((a, b) => (b.finished_at ?? "").localeCompare(a.finished_at ?? ""))[0];
  const path = new Set<string>();
  for (let node = latest(run.nodes); node && !path.has(node.name); node = latest(before.get(node.name) ?? []))
    path.add(node.name);
  return path;
}

/** Round lengths of time between 0 and a length, at most so many. */
export function ticksOf(length: number, most: number): number[] {
  const step = DURATION_STEPS.find((one) => length / one <= most) ?? Math.ceil(length / most / 604_800) * 604_800;
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, at) => at * step);
}

interface Scale {
  from: number;
  end: number;
}

const part = ({ from, end }: Scale, at: number) => (100 * (at - from)) / Math.max(1, end - from);

function span(scale: Scale, start: string, stop: string | null) {
  const left = part(scale, Date.parse(start));
  return { left: `${left}%`, width: `${Math.max(0.15, (stop ? part(scale, Date.parse(stop)) : 100) - left)}%` };
}

/** The moment since which a started node waits: for an event, a retry, or its time. */
const pauseOf = (node: RunNode) =>
  node.finished_at === null && node.status !== "running" ? (node.attempts.at(-1)?.ended_at ?? null) : null;

/** A node. It is drawn again if it changes, or the scale does. */
const Row = memo(function Row({ node, isCritical, from, end }: { node: RunNode; isCritical: boolean } & Scale) {
  const scale = { from, end };
  const ready = node.ready_at ?? node.started_at ?? "";
  const pause = pauseOf(node);
  const bars = node.attempts.length
    ? node.attempts
    : [{ attempt: 1, outcome: null, started_at: node.started_at, ended_at: node.finished_at }];
  return (
    <li data-critical={isCritical}>
      <span className="chart-name">
        <Status state={node.status} bare />{" "}
        {node.execution_id ? (
          <Link className="cut" href={executionPath(node.execution_id)}>
            {node.name}
          </Link>
        ) : (
          <span className="cut">{node.name}</span>
        )}
      </span>
      <span className="chart-bars">
        <i
          className="fill-wait waits"
          style={span(scale, ready, node.started_at ?? node.finished_at)}
          title={`waited ${duration(seconds(ready, node.started_at ?? end))}`}
        />
        {bars.map(
          (bar) =>
            bar.started_at && (
              <i
                key={bar.attempt}
                className={`fill-${toneOf(bar.outcome ?? node.status)}`}
                style={span(scale, bar.started_at, bar.ended_at)}
                title={`try ${bar.attempt}: ${bar.outcome ?? node.status}, ${duration(seconds(bar.started_at, bar.ended_at ?? end))}`}
              />
            ),
        )}
        {pause && (
          <i
            className="fill-wait waits"
            style={span(scale, pause, node.finished_at)}
            title={node.note.replaceAll("_", " ") || node.status}
          />
        )}
      </span>
      <span className="num small muted chart-time">
        {node.started_at ? duration(Math.max(0, seconds(node.started_at, node.finished_at ?? end))) : "–"}
      </span>
    </li>
  );
});

export function Gantt({ run, one }: { run: WorkflowRun; one: ExecutionDetail }) {
  const now = useNow();
  const isNarrow = useWidth() < 700;
  const path = useMemo(() => criticalPath(run), [run]);
  const begun = run.nodes.filter((node) => node.ready_at ?? node.started_at);
  const from = Date.parse(one.started_at ?? one.created_at);
  const end = one.finished_at ? Date.parse(one.finished_at) : now;
  const length = Math.max(0.001, (end - from) / 1000);
  if (!begun.length)
    return (
      <Card>
        <span className="muted">No node has started yet.</span>
      </Card>
    );
  return (
    <Card
      flush
      title={`From ${clock(one.started_at ?? one.created_at)}, ${duration(length)}`}
      actions={
        <span className="marks small muted">
          <span className="mark">
            <i className="fill-wait waits" />
            waits
          </span>
          <span className="mark">
            <i className="critical-mark" />
            critical path: {plural(path.size, "node")}
          </span>
        </span>
      }
    >
      <ul className="chart">
        <li className="chart-axis small faint num" aria-hidden="true">
          <span />
          <span className="chart-ticks">
            {ticksOf(length, isNarrow ? 2 : 6).map((at) => (
              <span key={at} style={{ left: `${(100 * at) / length}%` }}>
                {at ? duration(at) : "0"}
              </span>
            ))}
          </span>
          <span className="chart-time">ran</span>
        </li>
        {begun.map((node) => (
          <Row key={node.name} node={node} isCritical={path.has(node.name)} from={from} end={end} />
        ))}
      </ul>
      {begun.length < run.nodes.length && (
        <p className="chart-note small muted">{plural(run.nodes.length - begun.length, "node")} did not start.</p>
      )}
    </Card>
  );
}
