/** The overview: what runs, what fails, what comes next. Every number leads to its list. */

import { type Execution, type Stats, useGet, useList } from "../data/api.ts";
import { count, duration, plural, seconds, useNow } from "../data/format.ts";
import { executionPath, jobPath, Link, searchPath, to } from "../data/router.tsx";
import { stateOf, Subject } from "../parts/incident.tsx";
import { Card, Empty, Page, Pending, Skeleton } from "../parts/page.tsx";
import { SeriesCharts } from "../parts/series.tsx";
import { Status, Time, Told } from "../parts/status.tsx";

/** A start later than that after its time counts as late, as in the statistics. */
const LATE_SECONDS = 60;

type QueueState = Stats["queues"][number];

export function OverviewPage() {
  const stats = useGet("/stats");
  if (!stats.data)
    return (
      <Page title="Overview" cli="daybell top">
        <Pending error={stats.error} retry={() => void stats.refetch()} />
      </Page>
    );
  const { totals, workers, rates, queues } = stats.data;
  const more = (name: string) => totals.at_least.includes(name);
  const live = workers.filter((one) => one.state !== "dead");
  const capacity = live.reduce((sum, one) => sum + one.capacity, 0);
  return (
    <Page title="Overview" cli="daybell top">
      <div className="tiles">
        <Tile
          name="Running"
          value={count(totals.running, more("running"))}
          href={searchPath({ status: "running" })}
          note={`of ${count(capacity)} slots`}
        />
        <Tile
          name="Queued"
          value={count(totals.queued, more("queued"))}
          href={searchPath({ status: "queued" })}
          note={rates ? `${rates.enqueued.toFixed(1)} enqueued/s` : "waiting for a worker"}
        />
        <Tile
          name="Retrying"
          value={count(totals.retrying, more("retrying"))}
          href={searchPath({ status: "retrying" })}
          note="after a failure"
        />
        <Tile
          name="Scheduled"
          value={count(totals.scheduled, more("scheduled"))}
          href={searchPath({ status: "scheduled" })}
          note="for later"
        />
        <Tile
          name="Finished / s"
          value={rates?.finished?.toFixed(1) ?? "–"}
          href={searchPath({ status: "succeeded" })}
          note={rates ? `${rates.failed.toFixed(2)} failed/s` : "measured while you look"}
        />
        <Tile
          name="Workers"
          value={count(live.length)}
          href="/workers"
          note={live.length ? `${count(capacity - totals.running)} slots free` : "none is running"}
        />
      </div>
      <SeriesCharts unfinished={totals.running + totals.queued + totals.retrying + totals.scheduled + totals.waiting} />
      <div className="grid two">
        <Attention queues={queues} />
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
      <span>{name}</span>
      <b>{value}</b>
      <span className="faint cut">{note}</span>
    </Link>
  );
}

/** What waits for a person: incidents, decisions, late starts and paused queues. */
function Attention({ queues }: { queues: QueueState[] }) {
  const incidents = useGet("/incidents", { query: { open: true, limit: 5 }, every: 6000, live: true });
  const waiting = useGet("/executions", { query: { status: ["waiting"], nodes: true, limit: 20 }, every: 6000 });
  const now = useNow();
  const open = incidents.data?.items ?? [];
  const events = (waiting.data?.items ?? []).filter((one) => one.reason === "event").slice(0, 5);
  const paused = queues.filter((one) => one.is_paused);
  const late = queues.filter(
    (one) => !one.is_paused && one.oldest_run_at !== null && seconds(one.oldest_run_at, now) > LATE_SECONDS,
  );
  const isQuiet = !open.length && !events.length && !paused.length && !late.length;
  return (
    <Card
      title="Needs attention"
      flush
      actions={
        <Link className="small muted" href="/alerts">
          Alerts
        </Link>
      }
    >
      {incidents.isPending || waiting.isPending ? (
        <div className="body">
          <Skeleton />
        </div>
      ) : isQuiet ? (
        <Empty icon="check" title="Nothing needs you">
          Open incidents, decisions that executions wait for, late starts and paused queues are listed here.
        </Empty>
      ) : (
        <ul className="list">
          {open.map((one) => (
            <li key={one.incident_id}>
              <Status state={stateOf(one)} bare />
              <span className="grow">
                <span className="row">
                  <Subject one={one} />
                  <span className="faint small cut">{one.rule}</span>
                </span>
                <span className="cut muted small block" title={one.detail}>
                  <Told text={one.detail} />
                </span>
              </span>
              <span className="small muted nowrap">
                <Time at={one.opened_at} />
              </span>
            </li>
          ))}
          {events.map((one) => (
            <Waiting key={one.execution_id} one={one} />
          ))}
          {late.map((one) => (
            <li key={one.name}>
              <Status state="late" bare />
              <span className="grow cut">
                <Link className="strong" href={searchPath({ queue: one.name, status: "queued" })}>
                  {one.name}
                </Link>{" "}
                <span className="muted small">has {plural(one.queued, "queued execution")}, the oldest is late</span>
              </span>
              <span className="small muted nowrap">
                <Time at={one.oldest_run_at} />
              </span>
            </li>
          ))}
          {paused.map((one) => (
            <li key={one.name}>
              <Status state="paused" bare />
              <span className="grow cut">
                <Link className="strong" href={to("/queues", { q: one.name })}>
                  {one.name}
                </Link>{" "}
                <span className="muted small">
                  is paused{one.queued > 0 && `, ${plural(one.queued, "execution")} wait`}
                </span>
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

/** An execution that waits for an event; the answer to why names it. */
function Waiting({ one }: { one: Execution }) {
  const why = useGet("/executions/{id}/why", { path: { id: one.execution_id }, every: 20_000 });
  return (
    <li>
      <Status state="waiting" bare />
      <span className="grow">
        <Link className="strong" href={executionPath(one.execution_id)}>
          {one.job}
          {one.node && ` · ${one.node}`}
        </Link>
        <span className="cut muted small block" title={why.data?.detail}>
          <Told text={why.data?.detail.split(";")[0] ?? "waits for an event"} />
        </span>
      </span>
      <span className="small muted nowrap">
        <Time at={one.created_at} />
      </span>
    </li>
  );
}

function Failing() {
  const found = useGet("/dead-letters/groups", { query: { limit: 20 }, every: 6000, live: true });
  const groups = [...(found.data?.items ?? [])].sort((a, b) => b.last_seen.localeCompare(a.last_seen)).slice(0, 6);
  return (
    <Card
      title="Failing now"
      flush
      actions={
        <Link className="small muted" href="/dead-letters">
          All dead letters
        </Link>
      }
    >
      {found.isPending ? (
        <div className="body">
          <Skeleton />
        </div>
      ) : !groups.length ? (
        <Empty icon="check" title="No dead letters">
          An execution that runs out of retries is kept here until you decide.
        </Empty>
      ) : (
        <ul className="list">
          {groups.map((one) => (
            <li key={`${one.job} ${one.fingerprint} ${one.error}`}>
              <span className="badge bad">{count(one.count)}</span>
              <span className="grow">
                <Link className="strong cut block" href={to("/dead-letters", { q: one.q ?? `job:${one.job}` })}>
                  {one.job}
                </Link>
                <span className="cut muted small block" title={one.message}>
                  {one.error}
                  {one.message && `: ${one.message}`}
                </span>
              </span>
              <Link className="small muted nowrap" href={executionPath(one.execution_id)}>
                <Time at={one.last_seen} />
              </Link>
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
    <Card
      title="Running now"
      flush
      actions={
        <Link className="small muted" href={searchPath({ status: "running" })}>
          All running
        </Link>
      }
    >
      {running.isPending ? (
        <div className="body">
          <Skeleton />
        </div>
      ) : !running.rows.length ? (
        <Empty icon="executions" title="Nothing runs at this moment" command="daybell executions list" />
      ) : (
        <ul className="list">
          {running.rows.slice(0, 6).map((one) => (
            <li key={one.execution_id}>
              <Status state={one.status} bare />
              <span className="grow cut">
                <Link className="strong" href={executionPath(one.execution_id)}>
                  {one.job}
                </Link>{" "}
                <span className="muted small">{one.note}</span>
              </span>
              {one.progress !== null && <progress max={100} value={one.progress} aria-label="progress" />}
              <span className="small muted num">
                {one.started_at ? duration(Math.max(0, Math.round(seconds(one.started_at, now)))) : ""}
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Next() {
  const found = useGet("/schedules/next", { query: { limit: 6 }, every: 5000 });
  const next = found.data?.items ?? [];
  return (
    <Card
      title="Next to fire"
      flush
      actions={
        <Link className="small muted" href="/calendar">
          Calendar
        </Link>
      }
    >
      {found.isPending ? (
        <div className="body">
          <Skeleton />
        </div>
      ) : !next.length ? (
        <Empty
          icon="calendar"
          title="No schedule is going to fire"
          command={'daybell jobs create disk --every 1h --command "df -h ."'}
        />
      ) : (
        <ul className="list">
          {next.map((one) => (
            <li key={one.schedule_id}>
              <Link className="strong cut" href={jobPath(one.job)}>
                {one.job}
              </Link>
              <span className="grow cut muted small">{one.description}</span>
              <span className="small">
                <Time at={one.next_run_at} />
              </span>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Queues({ queues }: { queues: QueueState[] }) {
  const most = Math.max(1, ...queues.map((one) => one.queued + one.running));
  return (
    <Card
      title="Queues"
      flush
      actions={
        <Link className="small muted" href="/queues">
          All queues
        </Link>
      }
    >
      {!queues.length ? (
        <Empty icon="queues" title="No queue has been used yet" />
      ) : (
        <ul className="list">
          {[...queues]
            .sort((a, b) => b.queued + b.running - a.queued - a.running)
            .slice(0, 6)
            .map((one) => (
              <li key={one.name}>
                <Link className="strong cut queue-name" href={searchPath({ queue: one.name })}>
                  {one.name}
                </Link>
                <span className="grow meter" aria-hidden="true">
                  <i className="fill-run" style={{ width: `${(100 * one.running) / most}%` }} />
                  <i className="fill-wait" style={{ width: `${(100 * one.queued) / most}%` }} />
                </span>
                {one.is_paused && <Status state="paused" />}
                <span className="small muted num nowrap">
                  {count(one.running)} running · {count(one.queued, one.at_least.includes("queued"))} queued
                </span>
                {one.queued > 0 && one.oldest_run_at && (
                  <span className="small muted">
                    oldest <Time at={one.oldest_run_at} />
                  </span>
                )}
              </li>
            ))}
        </ul>
      )}
    </Card>
  );
}
