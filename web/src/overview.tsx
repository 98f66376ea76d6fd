/** The overview: what runs, what fails, what comes next. Every number leads to its list. */

import { type Execution, useGet, useList } from "./api.ts";
import { count, duration, seconds, useNow } from "./format.ts";
import { executionPath, jobPath, Link, searchPath, to } from "./router.tsx";
import { SeriesCharts } from "./series.tsx";
import { Card, Empty, Page, Pending, Skeleton, Status, Time } from "./ui.tsx";

export function OverviewPage() {
  const stats = useGet("/stats");
  if (!stats.data) return <Page title="Overview" cli="daybell top"><Pending error={stats.error} retry={() => void stats.refetch()} /></Page>;
  const { totals, workers, rates, queues } = stats.data;
  const more = (name: string) => totals.at_least.includes(name);
  const live = workers.filter((one) => one.state !== "dead");
  const capacity = live.reduce((sum, one) => sum + one.capacity, 0);
  return (
    <Page title="Overview" cli="daybell top">
      <div className="tiles">
        <Tile name="running" value={count(totals.running, more("running"))} href={searchPath({ status: "running" })} note={`of ${count(capacity)} slots`} />
        <Tile name="queued" value={count(totals.queued, more("queued"))} href={searchPath({ status: "queued" })} note={rates ? `${rates.enqueued.toFixed(1)} enqueued/s` : "waiting for a worker"} />
        <Tile name="retrying" value={count(totals.retrying, more("retrying"))} href={searchPath({ status: "retrying" })} note="after a failure" />
        <Tile name="scheduled" value={count(totals.scheduled, more("scheduled"))} href={searchPath({ status: "scheduled" })} note="for later" />
        <Tile name="finished / s" value={rates?.finished?.toFixed(1) ?? "–"} href={searchPath({ status: "succeeded" })} note={rates ? `${rates.failed.toFixed(2)} failed/s` : "measured while you look"} />
        <Tile name="workers" value={count(live.length)} href="/workers" note={live.length ? `${count(capacity - totals.running)} slots free` : "none is running"} />
      </div>
      <SeriesCharts />
      <div className="grid two">
        <Failing />
        <Running />
        <Next />
        <Queues queues={queues} />
      </div>
    </Page>
  );
}

function Tile({ name, value, href, note }: { name: string; value: string; href: string; note: string }) {
  return (
    <Link className="tile" href={href}>
      <span>{name}</span><b>{value}</b><span className="faint cut">{note}</span>
    </Link>
  );
}

export const errorOf = (one: Pick<Execution, "error" | "reason">) => {
  const error = (one.error ?? {}) as { type?: string; message?: string };
  return { type: error.type ?? one.reason?.replaceAll("_", " ") ?? "unknown", message: error.message ?? "" };
};

function Failing() {
  const found = useGet("/dead-letters/groups", { query: { limit: 6 }, every: 6000 });
  const groups = found.data?.items ?? [];
  return (
    <Card title="Failing now" flush actions={<Link className="small muted" href="/dead-letters">All dead letters</Link>}>
      {found.isPending ? <div className="body"><Skeleton /></div> : !groups.length ? (
        <Empty icon="check" title="No dead letters">An execution that runs out of retries is kept here until you decide.</Empty>
      ) : (
        <ul className="list">
          {groups.map((one) => (
            <li key={`${one.job} ${one.fingerprint} ${one.error}`}>
              <span className="badge bad">{count(one.count)}</span>
              <span className="grow">
                <Link className="strong" href={to("/dead-letters", { q: one.q ?? `job:${one.job}` })}>{one.job}</Link>
                <span className="cut muted small block">{one.error}{one.message && `: ${one.message}`}</span>
              </span>
              <span className="small muted"><Time at={one.last_seen} /></span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Running() {
  const running = useList<Execution>("/executions", { status: "running", limit: 8 });
  const now = useNow();
  return (
    <Card title="Running now" flush actions={<Link className="small muted" href={searchPath({ status: "running" })}>All running</Link>}>
      {running.isPending ? <div className="body"><Skeleton /></div> : !running.rows.length ? (
        <Empty icon="executions" title="Nothing runs at this moment" command="daybell executions list" />
      ) : (
        <ul className="list">
          {running.rows.slice(0, 6).map((one) => (
            <li key={one.execution_id}>
              <Status state={one.status} bare />
              <span className="grow cut">
                <Link className="strong" href={executionPath(one.execution_id)}>{one.job}</Link>{" "}
                <span className="muted small">{one.note}</span>
              </span>
              {one.progress !== null && <progress max={100} value={one.progress} aria-label="progress" />}
              <span className="small muted num">{one.started_at ? duration(Math.max(0, Math.round(seconds(one.started_at, now)))) : ""}</span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Next() {
  const jobs = useGet("/jobs", { query: { limit: 200 }, every: 10_000 });
  const next = (jobs.data?.items ?? [])
    .filter((one) => one.next_run_at !== null && one.status !== "paused")
    .sort((a, b) => (a.next_run_at ?? "").localeCompare(b.next_run_at ?? ""))
    .slice(0, 6);
  return (
    <Card title="Next to fire" flush actions={<Link className="small muted" href="/calendar">Calendar</Link>}>
      {jobs.isPending ? <div className="body"><Skeleton /></div> : !next.length ? (
        <Empty icon="calendar" title="No schedule is going to fire" command={'daybell jobs create disk --every 1h --command "df -h ."'} />
      ) : (
        <ul className="list">
          {next.map((one) => (
            <li key={one.job_id}>
              <Status state={one.last_execution?.status ?? "scheduled"} bare />
              <Link className="strong cut" href={jobPath(one.name)}>{one.name}</Link>
              <span className="grow cut muted small">{one.schedules[0]?.description}</span>
              <span className="small"><Time at={one.next_run_at} /></span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Queues({ queues }: { queues: { name: string; is_paused: boolean; queued: number; running: number; oldest_run_at: string | null; at_least: string[] }[] }) {
  const most = Math.max(1, ...queues.map((one) => one.queued + one.running));
  return (
    <Card title="Queues" flush actions={<Link className="small muted" href="/queues">All queues</Link>}>
      {!queues.length ? <Empty icon="queues" title="No queue has been used yet" /> : (
        <ul className="list">
          {queues.slice(0, 6).map((one) => (
            <li key={one.name}>
              <Link className="strong cut queue-name" href={searchPath({ queue: one.name })}>{one.name}</Link>
              <span className="grow meter" aria-hidden="true">
                <i className="fill-run" style={{ width: `${(100 * one.running) / most}%` }} />
                <i className="fill-wait" style={{ width: `${(100 * one.queued) / most}%` }} />
              </span>
              {one.is_paused && <Status state="paused" />}
              <span className="small muted num">{count(one.running)} running · {count(one.queued, one.at_least.includes("queued"))} queued</span>
              {one.queued > 0 && one.oldest_run_at && <span className="small muted">oldest <Time at={one.oldest_run_at} /></span>}
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}
