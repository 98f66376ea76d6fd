/** The last runs of a job. */

import { useEffect } from "react";
import { type Execution, type Job, useGet } from "../data/api.ts";
import { duration, seconds } from "../data/format.ts";
import { executionPath, Link } from "../data/router.tsx";
import { toneOf } from "./status.tsx";

const BARS = 30;

/** The last runs: the height is the duration, the tone and the title are the state. */
export function RunBars({ job, mark, number = BARS }: { job: string; mark?: string; number?: number }) {
  const list = useGet("/executions", { query: { job, limit: number }, every: mark === undefined ? 8000 : false });
  // The newest run names itself in the row of its job: the bars follow it.
  const newest = list.data?.items[0]?.execution_id;
  const isBehind = mark !== undefined && newest !== undefined && newest !== mark;
  useEffect(() => {
    if (isBehind) void list.refetch();
  }, [isBehind, mark]);
  const runs = [...(list.data?.items ?? [])].reverse();
  const lengths = runs.map((one) => (one.started_at && one.finished_at ? seconds(one.started_at, one.finished_at) : 0));
  const longest = Math.max(0.001, ...lengths);
  if (!runs.length) return <span className="faint small">{list.isPending ? "" : "no runs"}</span>;
  return (
    <span className="bars" role="group" aria-label={`Last ${runs.length} runs`}>
      {runs.map((one, at) => (
        <Bar key={one.execution_id} one={one} height={Math.max(0.18, Math.sqrt((lengths[at] ?? 0) / longest))} />
      ))}
    </span>
  );
}

function Bar({ one, height }: { one: Execution; height: number }) {
  const ran = one.started_at && one.finished_at ? duration(seconds(one.started_at, one.finished_at)) : "";
  const text = `${one.status} ${ran}`;
  const tone = toneOf(one.status);
  return (
    <Link
      href={executionPath(one.execution_id)}
      className={`fill-${tone} ${tone === "bad" ? "is-bad" : ""}`}
      title={text}
      aria-label={text}
      tabIndex={-1}
      style={{ height: `${Math.round(100 * height)}%` }}
    />
  );
}

export const kindOf = (job: Pick<Job, "kind">) => (job.kind === "task" ? "function" : job.kind);
