/** Queues and workers: how much waits, who works, and what can be paused or drained. */

import { useState } from "react";
import { type Queue, useChange, useGet, useList, type Worker } from "../data/api.ts";
import { bytes, count, plural } from "../data/format.ts";
import { Link, searchPath, useFilter } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { Button, Search } from "../parts/controls.tsx";
import { Confirm } from "../parts/dialog.tsx";
import { Card, Empty, Meter, Page, Pending, Tabs } from "../parts/page.tsx";
import { Spark } from "../parts/series.tsx";
import { Status, Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";
import { QueueWhy } from "../parts/why.tsx";
import { Limits } from "./limits.tsx";

function Depth({ one, name }: { one: Queue; name: "queued" | "running" | "retrying" | "scheduled" | "waiting" }) {
  const text = count(one[name], one.at_least.includes(name));
  if (!one[name]) return <span className="faint">0</span>;
  return <Link href={searchPath({ queue: one.name, status: name })}>{text}</Link>;
}

/** Queues, and the limits that their executions wait for. */
export function QueuesPage({ tab }: { tab: string }) {
  const isLimits = tab === "limits";
  return (
    <Page title="Queues" cli={isLimits ? "daybell limits list" : "daybell queues list"}>
      <Tabs
        at={isLimits ? "Limits" : "Queues"}
        tabs={[
          ["Queues", "/queues"],
          ["Limits", "/queues/limits"],
        ]}
      />
      {isLimits ? <Limits /> : <QueueList />}
    </Page>
  );
}

function QueueList() {
  const [q, setQ] = useFilter("q");
  const list = useList<Queue>("/queues");
  const shown = { ...list, rows: list.rows.filter((one) => one.name.includes(q)) };
  const workers = useGet("/workers", { every: 10_000 });
  const serving = (name: string) =>
    (workers.data?.items ?? []).filter((one) => one.state === "live" && one.queues.includes(name)).length;
  const columns: Column<Queue>[] = [
    {
      name: "Queue",
      width: "minmax(96px, 2fr)",
      cell: (one) => (
        <>
          <Link className="strong cut" title={one.name} href={searchPath({ queue: one.name })}>
            {one.name}
          </Link>
          {one.is_paused && (
            <span className="slim">
              <Status state="paused" />
            </span>
          )}
        </>
      ),
    },
    { name: "Queued", width: "60px", right: true, cell: (one) => <Depth one={one} name="queued" /> },
    { name: "Running", width: "64px", from: 480, right: true, cell: (one) => <Depth one={one} name="running" /> },
    { name: "Retrying", width: "64px", from: 1200, right: true, cell: (one) => <Depth one={one} name="retrying" /> },
    { name: "Scheduled", width: "72px", from: 1400, right: true, cell: (one) => <Depth one={one} name="scheduled" /> },
    { name: "Waiting", width: "64px", from: 1000, right: true, cell: (one) => <Depth one={one} name="waiting" /> },
    {
      name: "Oldest",
      width: "90px",
      from: 760,
      right: true,
      cell: (one) => (
        <span className="muted">
          <Time at={one.queued ? one.oldest_run_at : null} />
        </span>
      ),
    },
    {
      name: "Started, 1 h",
      width: "100px",
      from: 1000,
      cell: (one) => <Spark metric="started" queue={one.name} since="1h" />,
    },
    {
      name: "Workers",
      width: "70px",
      from: 640,
      right: true,
      cell: (one) =>
        serving(one.name) ? serving(one.name) : <span className={one.queued ? "tone-bad" : "faint"}>0</span>,
    },
    { name: "", width: "206px", right: true, from: 640, cell: (one) => <QueueActions one={one} /> },
    { name: " ", width: "76px", right: true, until: 640, cell: (one) => <QueueActions one={one} /> },
  ];
  return (
    <>
      <div className="toolbar">
        <Search label="Search queues" placeholder="Find a queue" value={q} onChange={setQ} />
      </div>
      <Listing
        label="Queues"
        list={shown}
        columns={columns}
        keyOf={(one) => one.name}
        height={42}
        empty={
          <Empty
            icon="queues"
            title={q ? "No queue has this name" : "No queue has been used yet"}
            command="daybell jobs trigger greet"
          >
            A queue is there as soon as something is put into it.
          </Empty>
        }
      />
    </>
  );
}

function QueueActions({ one }: { one: Queue }) {
  const can = useCan();
  const [asks, setAsks] = useState<"pause" | "purge" | "why" | null>(null);
  const pause = useChange("post", "/queues/{name}/pause", () => `${one.name} is paused`, "/queues/{name}/resume");
  const resume = useChange("post", "/queues/{name}/resume", () => `${one.name} is resumed`, "/queues/{name}/pause");
  const purge = useChange(
    "post",
    "/queues/{name}/purge",
    (answer) => `${plural(answer.cancelled, "execution")} cancelled`,
  );
  const path = { name: one.name };
  const close = () => setAsks(null);
  const text = (word: string) => <span className="from-640">{word}</span>;
  return (
    <>
      <span className="from-640">
        <Button size="small" kind="quiet" onClick={() => setAsks("why")}>
          Why
        </Button>
      </span>
      {asks === "why" && <QueueWhy name={one.name} onClose={close} />}
      {can("pause") &&
        (one.is_paused ? (
          <Button size="small" icon="play" label="Resume" onClick={() => resume.mutate({ path, body: {} })}>
            {text("Resume")}
          </Button>
        ) : (
          <Button size="small" icon="pause" label="Pause" onClick={() => setAsks("pause")}>
            {text("Pause")}
          </Button>
        ))}
      {can("cancel") && (
        <Button size="small" kind="quiet" icon="trash" label={`Purge ${one.name}`} onClick={() => setAsks("purge")} />
      )}
      {asks === "pause" && (
        <Confirm
          title={`Pause ${one.name}?`}
          submit="Pause it"
          busy={pause.isPending}
          onClose={close}
          onConfirm={() => pause.mutate({ path, body: {} }, { onSettled: close })}
        >
          Workers get nothing from it until it is resumed. What runs goes on.
        </Confirm>
      )}
      {asks === "purge" && (
        <Confirm
          title={`Purge ${one.name}?`}
          number={one.queued + one.scheduled + one.retrying + one.waiting}
          submit="Cancel all that waits"
          busy={purge.isPending}
          onClose={close}
          onConfirm={() => purge.mutate({ path, body: {} }, { onSettled: close })}
        >
          All that waits in it is cancelled:{" "}
          {plural(one.queued + one.scheduled + one.retrying + one.waiting, "execution")} now. What runs goes on.
        </Confirm>
      )}
    </>
  );
}

export function WorkersPage() {
  const [dead, setDead] = useFilter("dead");
  const workers = useGet("/workers", { query: { include_dead: dead === "1", limit: 200 }, live: true });
  const all = workers.data?.items ?? [];
  return (
    <Page
      title="Workers"
      cli="daybell workers list"
      actions={
        <Button pressed={dead === "1"} onClick={() => setDead(dead === "1" ? "" : "1")}>
          Show those that are gone
        </Button>
      }
    >
      {!workers.data ? (
        <Pending error={workers.error} />
      ) : !all.length ? (
        <Card>
          <Empty icon="workers" title="No worker is running" command="daybell worker app:app">
            Executions wait in their queues until a worker takes them.
          </Empty>
        </Card>
      ) : (
        <div className="grid workers">
          {all.map((one) => (
            <WorkerCard key={one.worker_id} one={one} />
          ))}
        </div>
      )}
    </Page>
  );
}

function Chips({ name, items }: { name: string; items: string[] }) {
  return (
    <div className="row wrap">
      <span className="small faint chips-name">{name}</span>
      {items.map((one) => (
        <span key={one} className="chip">
          {one}
        </span>
      ))}
    </div>
  );
}

function WorkerCard({ one }: { one: Worker }) {
  const can = useCan();
  const drain = useChange("post", "/workers/{id}/drain", () => `${one.name} takes nothing more`);
  const [asks, setAsks] = useState(false);
  const tasks = Object.keys(one.tasks ?? {});
  return (
    <Card
      title={
        <span className="row">
          <Status state={one.state} bare />{" "}
          <span className="cut" title={one.name}>
            {one.name}
          </span>{" "}
          <span className="mono small faint" title={one.worker_id}>
            {one.worker_id.slice(-8)}
          </span>
        </span>
      }
      actions={
        <span className="row">
          <Link className="button quiet small" href={searchPath({ worker: one.worker_id })}>
            History
          </Link>
          {can("drain") && one.state === "live" && (
            <Button size="small" onClick={() => setAsks(true)}>
              Drain
            </Button>
          )}
        </span>
      }
    >
      <div className="stack">
        <div className="row">
          <Meter parts={[[one.running / Math.max(1, one.capacity), "run"]]} />
          <Link className="small num" href={searchPath({ worker: one.worker_id, status: "running" })}>
            {one.running} of {one.capacity} slots{one.shared ? ", shared" : ""}
          </Link>
        </div>
        <dl className="grid facts small">
          <div className="fact">
            <dt>Host</dt>
            <dd>
              {one.host}, process {one.pid}
            </dd>
          </div>
          <div className="fact">
            <dt>Version</dt>
            <dd>{one.version}</dd>
          </div>
          <div className="fact">
            <dt>Started</dt>
            <dd>
              <Time at={one.started_at} />
            </dd>
          </div>
          <div className="fact">
            <dt>Lease renewed</dt>
            <dd>
              <Time at={one.renewed_at} />
            </dd>
          </div>
        </dl>
        <div className="row wrap">
          <span className="small faint chips-name">Queues</span>
          {one.queues.map((name) => (
            <Link key={name} className="chip" href={searchPath({ queue: name })}>
              {name}
            </Link>
          ))}
        </div>
        {Object.keys(one.labels).length > 0 && (
          <Chips name="Labels" items={Object.entries(one.labels).map(([name, value]) => `${name}=${value}`)} />
        )}
        {Object.keys(one.resources).length > 0 && (
          <Chips
            name="Resources"
            items={Object.entries(one.resources).map(
              ([name, value]) => `${name} ${name === "memory" ? bytes(value) : value}`,
            )}
          />
        )}
        <details className="small">
          <summary className="muted">
            {plural(tasks.length, "task")}, kinds: {one.kinds.join(", ")}
          </summary>
          <p className="mono faint">{tasks.join(", ")}</p>
        </details>
      </div>
      {asks && (
        <Confirm
          title={`Drain ${one.name}?`}
          submit="Drain it"
          busy={drain.isPending}
          onClose={() => setAsks(false)}
          onConfirm={() => drain.mutate({ path: { id: one.worker_id } }, { onSettled: () => setAsks(false) })}
        >
          It finishes what it has ({plural(one.running, "execution")}), takes nothing more and ends.
        </Confirm>
      )}
    </Card>
  );
}
