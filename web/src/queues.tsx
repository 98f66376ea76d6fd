/** Queues and workers: how much waits, who works, and what can be paused or drained. */

import { useState } from "react";
import { type Queue, useChange, useGet, useList, type Worker } from "./api.ts";
import { count, plural } from "./format.ts";
import { Link, searchPath, useFilter } from "./router.tsx";
import { useCan } from "./session.ts";
import { Button, Card, type Column, Confirm, Empty, Listing, Page, Pending, Search, Status, Time } from "./ui.tsx";

function Depth({ one, name }: { one: Queue; name: "queued" | "running" | "retrying" | "scheduled" | "waiting" }) {
  const text = count(one[name], one.at_least.includes(name));
  if (!one[name]) return <span className="faint">0</span>;
  return <Link href={searchPath({ queue: one.name, status: name })}>{text}</Link>;
}

export function QueuesPage() {
  const [q, setQ] = useFilter("q");
  const list = useList<Queue>("/queues");
  const shown = { ...list, rows: list.rows.filter((one) => one.name.includes(q)) };
  const workers = useGet("/workers", { every: 10_000 });
  const serving = (name: string) => (workers.data?.items ?? []).filter((one) => one.state === "live" && one.queues.includes(name)).length;
  const columns: Column<Queue>[] = [
    { name: "Queue", width: "minmax(90px, 1.4fr)", cell: (one) => <><Link className="strong cut" href={searchPath({ queue: one.name })}>{one.name}</Link>{one.is_paused && <Status state="paused" />}</> },
    { name: "Queued", width: "60px", right: true, cell: (one) => <Depth one={one} name="queued" /> },
    { name: "Running", width: "70px", from: 480, right: true, cell: (one) => <Depth one={one} name="running" /> },
    { name: "Retrying", width: "70px", from: 900, right: true, cell: (one) => <Depth one={one} name="retrying" /> },
    { name: "Scheduled", width: "76px", from: 900, right: true, cell: (one) => <Depth one={one} name="scheduled" /> },
    { name: "Waiting", width: "70px", from: 1000, right: true, cell: (one) => <Depth one={one} name="waiting" /> },
    { name: "Oldest", width: "90px", from: 760, right: true, cell: (one) => <span className="muted"><Time at={one.queued ? one.oldest_run_at : null} /></span> },
    { name: "Workers", width: "70px", from: 640, right: true, cell: (one) => (serving(one.name) ? serving(one.name) : <span className={one.queued ? "tone-bad" : "faint"}>0</span>) },
    { name: "", width: "minmax(90px, 190px)", right: true, cell: (one) => <QueueActions one={one} /> },
  ];
  return (
    <Page title="Queues" cli="daybell queues list">
      <div className="toolbar"><Search label="Search queues" placeholder="A part of a name" value={q} onChange={setQ} /></div>
      <Listing label="Queues" list={shown} columns={columns} keyOf={(one) => one.name} height={42}
        empty={<Empty icon="queues" title={q ? "No queue has this name" : "No queue has been used yet"} command="daybell jobs trigger greet">A queue is there as soon as something is put into it.</Empty>} />
    </Page>
  );
}

function QueueActions({ one }: { one: Queue }) {
  const can = useCan();
  const [asks, setAsks] = useState<"pause" | "purge" | null>(null);
  const pause = useChange("post", "/queues/{name}/pause", () => `${one.name} is paused`);
  const resume = useChange("post", "/queues/{name}/resume", () => `${one.name} is resumed`);
  const purge = useChange("post", "/queues/{name}/purge", (answer) => `${plural(answer.cancelled, "execution")} cancelled`);
  const path = { name: one.name };
  const close = () => setAsks(null);
  return (
    <>
      {can("pause") && (one.is_paused
        ? <Button size="small" icon="play" onClick={() => resume.mutate({ path, body: {} })}>Resume</Button>
        : <Button size="small" icon="pause" onClick={() => setAsks("pause")}>Pause</Button>)}
      {can("cancel") && <Button size="small" kind="quiet" icon="trash" label={`Purge ${one.name}`} onClick={() => setAsks("purge")} />}
      {asks === "pause" && (
        <Confirm title={`Pause ${one.name}?`} submit="Pause it" busy={pause.isPending} onClose={close} onConfirm={() => pause.mutate({ path, body: {} }, { onSettled: close })}>
          Workers get nothing from it until it is resumed. What runs goes on.
        </Confirm>
      )}
      {asks === "purge" && (
        <Confirm title={`Purge ${one.name}?`} number={one.queued + one.scheduled + one.retrying + one.waiting} submit="Cancel all that waits" busy={purge.isPending} onClose={close} onConfirm={() => purge.mutate({ path, body: {} }, { onSettled: close })}>
          All that waits in it is cancelled: {plural(one.queued + one.scheduled + one.retrying + one.waiting, "execution")} now. What runs goes on.
        </Confirm>
      )}
    </>
  );
}

export function WorkersPage() {
  const [dead, setDead] = useFilter("dead");
  const workers = useGet("/workers", { query: { include_dead: dead === "1", limit: 500 } });
  const all = workers.data?.items ?? [];
  return (
    <Page title="Workers" cli="daybell workers list" actions={<Button pressed={dead === "1"} onClick={() => setDead(dead === "1" ? "" : "1")}>Show those that are gone</Button>}>
      {!workers.data ? <Pending error={workers.error} /> : !all.length ? (
        <Card><Empty icon="workers" title="No worker is running" command="daybell worker app:app">Executions wait in their queues until a worker takes them.</Empty></Card>
      ) : (
        <div className="grid workers">{all.map((one) => <WorkerCard key={one.worker_id} one={one} />)}</div>
      )}
    </Page>
  );
}

function WorkerCard({ one }: { one: Worker }) {
  const can = useCan();
  const drain = useChange("post", "/workers/{id}/drain", () => `${one.name} takes nothing more`);
  const [asks, setAsks] = useState(false);
  const tasks = Object.keys(one.tasks ?? {});
  return (
    <Card title={<span className="row"><Status state={one.state} bare /> <span className="cut">{one.name}</span></span>}
      actions={can("drain") && one.state === "live" && <Button size="small" onClick={() => setAsks(true)}>Drain</Button>}>
      <div className="stack">
        <div className="row">
          <span className="meter grow" aria-hidden="true"><i className="fill-run" style={{ width: `${(100 * one.running) / Math.max(1, one.capacity)}%` }} /></span>
          <Link className="small num" href={searchPath({ worker: one.worker_id, status: "running" })}>{one.running} of {one.capacity} slots</Link>
        </div>
        <dl className="grid facts small">
          <div className="fact"><dt>Host</dt><dd>{one.host}, process {one.pid}</dd></div>
          <div className="fact"><dt>Version</dt><dd>{one.version}</dd></div>
          <div className="fact"><dt>Started</dt><dd><Time at={one.started_at} /></dd></div>
          <div className="fact"><dt>Lease renewed</dt><dd><Time at={one.renewed_at} /></dd></div>
        </dl>
        <div className="row wrap">{one.queues.map((name) => <span key={name} className="chip"><Link href={searchPath({ queue: name })}>{name}</Link></span>)}</div>
        {Object.entries(one.labels).length > 0 && <div className="row wrap">{Object.entries(one.labels).map(([name, value]) => <span key={name} className="chip">{name}={value}</span>)}</div>}
        <details className="small"><summary className="muted">{plural(tasks.length, "task")}, kinds: {one.kinds.join(", ")}</summary><p className="mono faint">{tasks.join(", ")}</p></details>
        <Link className="small muted" href={searchPath({ worker: one.worker_id })}>What it has run</Link>
      </div>
      {asks && (
        <Confirm title={`Drain ${one.name}?`} submit="Drain it" busy={drain.isPending} onClose={() => setAsks(false)} onConfirm={() => drain.mutate({ path: { id: one.worker_id } }, { onSettled: () => setAsks(false) })}>
          It finishes what it has ({plural(one.running, "execution")}), takes nothing more and ends.
        </Confirm>
      )}
    </Card>
  );
}
