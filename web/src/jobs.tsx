/** The list of jobs, each with its last runs as bars. */

import { useEffect } from "react";
import { type Execution, type Job, useGet, useList } from "./api.ts";
import { command, duration, seconds } from "./format.ts";
import { executionPath, jobPath, Link, useFilter } from "./router.tsx";
import { useCan } from "./session.ts";
import { Button, type Column, Empty, Listing, Page, Search, Status, Time, toneOf } from "./ui.tsx";
import { navigate, setFilters } from "./router.tsx";

const WORDS = ["running", "pending", "paused", "scheduled", "succeeded", "dead", "manual", "deleted"];
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
    <Link href={executionPath(one.execution_id)} className={`fill-${tone} ${tone === "bad" ? "is-bad" : ""}`} title={text} aria-label={text} tabIndex={-1}
      style={{ height: `${Math.round(100 * height)}%` }} />
  );
}

export const kindOf = (job: Pick<Job, "kind">) => (job.kind === "task" ? "function" : job.kind);

const columns: Column<Job>[] = [
  {
    name: "Job", width: "minmax(150px, 1.6fr)", cell: (one) => (
      <Link className="strong cut" href={jobPath(one.name)} title={one.description}>{one.name}</Link>
    ),
  },
  { name: "Status", width: "104px", cell: (one) => <Status state={one.status} /> },
  { name: "Last runs", width: "152px", from: 900, cell: (one) => <RunBars job={one.name} mark={one.last_execution?.execution_id} /> },
  {
    name: "Schedule", width: "minmax(120px, 1.6fr)", from: 1080, cell: (one) => (
      <span className="cut muted small" title={one.schedules[0]?.description ?? undefined}>
        {one.schedules.length ? one.schedules[0]?.description : "by hand or by code"}
        {one.schedules.length > 1 && ` +${one.schedules.length - 1}`}
      </span>
    ),
  },
  { name: "Next run", width: "84px", from: 640, right: true, cell: (one) => <Time at={one.next_run_at} /> },
  { name: "Last run", width: "84px", from: 760, right: true, cell: (one) => <span className="muted"><Time at={one.last_execution?.started_at ?? null} /></span> },
  { name: "Kind", width: "80px", from: 1280, cell: (one) => <span className="muted">{kindOf(one)}</span> },
  { name: "Queue", width: "minmax(70px, 0.6fr)", from: 1380, cell: (one) => <span className="muted cut">{one.queue}</span> },
  { name: "Owner", width: "minmax(60px, 0.5fr)", from: 1600, cell: (one) => <span className="muted cut">{one.user_id ?? ""}</span> },
];

export function JobsPage() {
  const [q, setQ] = useFilter("q");
  const [status, setStatus] = useFilter("status");
  const list = useList<Job>("/jobs", { q, status, limit: 50 });
  const can = useCan();
  return (
    <Page title="Jobs" cli={command("jobs list", { search: q, status })}
      actions={can("define") && <Button kind="primary" icon="plus" onClick={() => navigate("/jobs/new")}>New job</Button>}>
      <div className="toolbar">
        <Search label="Search jobs" placeholder="Find a job by name, description or label" value={q} onChange={setQ} />
        <select className="select" aria-label="Status" value={status} onChange={(event) => setStatus(event.target.value)}>
          <option value="">All states</option>
          {WORDS.map((one) => <option key={one} value={one}>{one}</option>)}
        </select>
      </div>
      <Listing key={`${q} ${status}`} label="Jobs" list={list} columns={columns} keyOf={(one) => one.job_id} href={(one) => jobPath(one.name)} height={40}
        empty={q || status
          ? <Empty icon="search" title="No job matches"><Button size="small" onClick={() => setFilters({ q: "", status: "" })}>Clear the filters</Button></Empty>
          : <Empty icon="jobs" title="There is no job yet" command={'daybell jobs create disk --every 1h --command "df -h ."'}>Write a task in Python, or create a job without code.</Empty>} />
    </Page>
  );
}
