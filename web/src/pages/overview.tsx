/** The overview: what runs, what fails, what comes next. Every number leads to its list. */

import type { ReactNode } from "react";
import { type Execution, type Stats, useGet, useList } from "../data/api.ts";
import { count, plural, seconds, useNow } from "../data/format.ts";
import { executionPath, jobPath, Link, searchPath, to } from "../data/router.tsx";
import { stateOf, Subject } from "../parts/incident.tsx";
import { Empty, ListCard, Meter, Page, Pending } from "../parts/page.tsx";
import { SeriesCharts } from "../parts/series.tsx";
import { Status, Time, Told } from "../parts/status.tsx";
import { Ran } from "../parts/execution-columns.tsx";

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
  const { totals, workers, queues } = stats.data;
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
          note="waiting for a worker"
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
        <Throughput />
        <Tile
          name="Workers"
          value={count(live.length)}
          href="/workers"
          note={live.length ? `${count(capacity - totals.running)} slots free` : "none is running"}
        />
      </div>
      <SeriesCharts unfinished={totals.running + totals.queued + totals.retrying + totals.scheduled + totals.waiting} />
      <div className="grid overview">
        <Attention queues={queues} />
        <Failing />
        <Running />
        <Next />
        <Queues queues={queues} />
        <Workers workers={live} />
      </div>
    </Page>
  );
}

const ENDS = ["succeeded", "dead", "cancelled", "skipped"];

/** Ends of the last full minute: numbers of single seconds would jump. */
function Throughput() {
  const found = useGet("/stats/series", {
    query: { metric: [...ENDS, "failed_attempts"].join(), since: "5m" },
    every: 10_000,
  });
  const last = (name: string) => found.data?.series[name]?.at(-2) ?? 0;
  return (
    <Tile
      name="Ended / min"
      value={found.data ? count(ENDS.reduce((sum, name) => sum + last(name), 0)) : "–"}
      href={searchPath({ finished: "<1h" })}
      note={`${count(last("failed_attempts"))} tries failed`}
    />
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

/** A row of a card: a sign, a name with a text below or beside it, and a time. */
function Row({
  sign,
  href,
  name,
  note,
  text,
  aside,
}: {
  sign: ReactNode;
  href?: string;
  name: ReactNode;
  note?: ReactNode;
  text?: string;
  aside?: ReactNode;
}) {
  return (
    <li>
      {sign}
      <span className="grow">
        <span className="row">
          {href ? (
            <Link className="strong cut" href={href}>
              {name}
            </Link>
          ) : (
            name
          )}
          {note && <span className="muted small cut row-note">{note}</span>}
        </span>
        {text && (
          <span className="cut muted small block" title={text}>
            <Told text={text} />
          </span>
        )}
      </span>
      {aside && <span className="small muted nowrap num">{aside}</span>}
    </li>
  );
}

/** What waits for a person: incidents, decisions, late starts and paused queues. */
function Attention({ queues }: { queues: QueueState[] }) {
  const incidents = useGet("/incidents", { query: { open: true, limit: 5 }, every: 6000, live: true });
  const waiting = useGet("/executions", { query: { status: ["waiting"], nodes: true, limit: 20 }, every: 6000 });
  const now = useNow();
  const events = (waiting.data?.items ?? []).filter((one) => one.reason === "event").slice(0, 5);
  const late = queues.filter(
    (one) => !one.is_paused && one.oldest_run_at !== null && seconds(one.oldest_run_at, now) > LATE_SECONDS,
  );
  return (
    <ListCard
      title="Needs attention"
      all={["All incidents", "/alerts"]}
      isPending={incidents.isPending || waiting.isPending}
      empty={
        <Empty icon="check" title="Nothing needs you">
          Open incidents, decisions that executions wait for, late starts and paused queues are listed here.
        </Empty>
      }
    >
      {(incidents.data?.items ?? []).map((one) => (
        <Row
          key={one.incident_id}
          sign={<Status state={stateOf(one)} bare />}
          name={<Subject one={one} />}
          note={one.rule}
          text={one.detail}
          aside={<Time at={one.opened_at} />}
        />
      ))}
      {events.map((one) => (
        <Waiting key={one.execution_id} one={one} />
      ))}
      {late.map((one) => (
        <Row
          key={one.name}
          sign={<Status state="late" bare />}
          href={searchPath({ queue: one.name, status: "queued" })}
          name={one.name}
          note={`has ${plural(one.queued, "queued execution")}, the oldest is late`}
          aside={<Time at={one.oldest_run_at} />}
        />
      ))}
      {queues
        .filter((one) => one.is_paused)
        .map((one) => (
          <Row
            key={one.name}
            sign={<Status state="paused" bare />}
            href={to("/queues", { q: one.name })}
            name={one.name}
            note={`is paused${one.queued > 0 ? `, ${plural(one.queued, "execution")} wait` : ""}`}
          />
        ))}
    </ListCard>
  );
}

/** An execution that waits for an event; the answer to why names it. */
function Waiting({ one }: { one: Execution }) {
  const why = useGet("/executions/{id}/why", { path: { id: one.execution_id }, every: 20_000 });
  return (
    <Row
      sign={<Status state="waiting" bare />}
      href={executionPath(one.execution_id)}
      name={one.node ? `${one.job} · ${one.node}` : one.job}
      text={why.data?.detail.split(";")[0] ?? "waits for an event"}
      aside={<Time at={one.created_at} />}
    />
  );
}

function Failing() {
  const found = useGet("/dead-letters/groups", { every: 6000, live: true });
  const groups = [...(found.data?.items ?? [])].sort((a, b) => b.last_seen.localeCompare(a.last_seen)).slice(0, 6);
  return (
    <ListCard
      title="Failing now"
      all={["All dead letters", "/dead-letters"]}
      isPending={found.isPending}
      empty={
        <Empty icon="check" title="No dead letters">
          An execution that runs out of retries is kept here until you decide.
        </Empty>
      }
    >
      {groups.map((one) => (
        <Row
          key={`${one.job} ${one.fingerprint} ${one.error}`}
          sign={
            <Link className="badge bad" href={to("/dead-letters", { q: one.q ?? `job:${one.job}` })}>
              {count(one.count)}
            </Link>
          }
          href={to("/dead-letters", { q: one.q ?? `job:${one.job}` })}
          name={one.job}
          text={one.message ? `${one.error}: ${one.message}` : one.error}
          aside={
            <Link href={executionPath(one.execution_id)} title="The newest of them">
              <Time at={one.last_seen} />
            </Link>
          }
        />
      ))}
    </ListCard>
  );
}

function Running() {
  const running = useList<Execution>("/executions", { status: "running", limit: 8 });
  return (
    <ListCard
      steady
      title="Running now"
      all={["All running", searchPath({ status: "running" })]}
      isPending={running.isPending}
      empty={
        <Empty icon="executions" title="Nothing runs at this moment" command="daybell jobs trigger NAME">
          Executions are listed here while a worker has them.
        </Empty>
      }
    >
      {running.rows.slice(0, 6).map((one) => (
        <Row
          key={one.execution_id}
          sign={<Status state={one.status} bare />}
          href={executionPath(one.execution_id)}
          name={one.job}
          note={one.note}
          aside={
            <span className="row">
              {one.progress !== null && <progress max={100} value={one.progress} aria-label="progress" />}
              <Ran one={one} />
            </span>
          }
        />
      ))}
    </ListCard>
  );
}

function Next() {
  const found = useGet("/schedules/next", { query: { limit: 6 }, every: 5000 });
  return (
    <ListCard
      title="Next to fire"
      all={["Calendar", "/calendar"]}
      isPending={found.isPending}
      empty={
        <Empty
          icon="calendar"
          title="No schedule is going to fire"
          command={'daybell jobs create disk --every 1h --command "df -h ."'}
        />
      }
    >
      {(found.data?.items ?? []).map((one) => (
        <Row
          key={one.schedule_id}
          sign={<Status state="scheduled" bare />}
          href={jobPath(one.job)}
          name={one.job}
          note={one.description}
          aside={<Time at={one.next_run_at} />}
        />
      ))}
    </ListCard>
  );
}

function Queues({ queues }: { queues: QueueState[] }) {
  const most = Math.max(1, ...queues.map((one) => one.queued + one.running));
  const busiest = [...queues].sort((a, b) => b.queued + b.running - a.queued - a.running).slice(0, 6);
  return (
    <ListCard
      title="Queues"
      all={["All queues", "/queues"]}
      empty={<Empty icon="queues" title="No queue has been used yet" command="daybell jobs trigger NAME" />}
    >
      {busiest.map((one) => (
        <li key={one.name}>
          <Link className="strong cut meter-name" href={searchPath({ queue: one.name })}>
            {one.name}
          </Link>
          <Meter
            parts={[
              [one.running / most, "run"],
              [one.queued / most, "wait"],
            ]}
          />
          {one.is_paused && <Status state="paused" bare />}
          <span className="small muted num nowrap">
            {count(one.running)} running · {count(one.queued, one.at_least.includes("queued"))} queued
          </span>
        </li>
      ))}
    </ListCard>
  );
}

function Workers({ workers }: { workers: Stats["workers"] }) {
  return (
    <ListCard
      title="Workers"
      all={["All workers", "/workers"]}
      empty={
        <Empty icon="workers" title="No worker is running" command="daybell worker app:app">
          Executions wait in their queues until a worker takes them.
        </Empty>
      }
    >
      {workers.slice(0, 6).map((one) => (
        <li key={one.worker_id}>
          <Link className="strong cut meter-name" title={one.name} href={searchPath({ worker: one.worker_id })}>
            {one.name}
          </Link>
          <Meter parts={[[one.running / Math.max(1, one.capacity), "run"]]} />
          {one.state !== "live" && <Status state={one.state} bare />}
          <span className="small muted num nowrap">
            {count(one.running)} of {plural(one.capacity, "slot")}
          </span>
        </li>
      ))}
    </ListCard>
  );
}
