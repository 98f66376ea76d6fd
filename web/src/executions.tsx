/** The list of executions: one query, the newest first, live. */

import { useMemo, useState } from "react";
import { type Execution, call, queries, useList } from "./api.ts";
import { duration, plural, seconds, shortId, useNow } from "./format.ts";
import { executionPath, jobPath, Link, setFilters, useAddress, useFilter } from "./router.tsx";
import { useCan } from "./session.ts";
import { createKept, useStore } from "./store.ts";
import { toast } from "./toast.ts";
import { brief, Button, type Column, Confirm, Empty, Field, Listing, Notice, Page, Search, Status, Time } from "./ui.tsx";
import { errorOf } from "./overview.tsx";

export const STATES = ["pending", "running", "queued", "scheduled", "retrying", "waiting", "succeeded", "dead", "cancelled", "skipped"];
const SINCE: [string, string][] = [["", "Any time"], ["15m", "15 minutes"], ["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"], ["30d", "30 days"]];
const FILTERS = ["status", "job", "queue", "worker_id", "workflow_id", "since", "until", "error", "unique_key", "nodes"];

/** Runs as long as it runs: the clock ticks for those without an end. */
export function Ran({ one }: { one: Pick<Execution, "started_at" | "finished_at"> }) {
  const now = useNow();
  if (!one.started_at) return <span className="faint">–</span>;
  if (one.finished_at) return <>{duration(seconds(one.started_at, one.finished_at))}</>;
  return <>{duration(Math.max(0, Math.round(seconds(one.started_at, now))))}</>;
}

export const columns: Column<Execution>[] = [
  { name: "Status", width: "104px", cell: (one) => <Status state={one.status} /> },
  {
    name: "Job", width: "minmax(120px, 1.4fr)", cell: (one) => (
      <>
        <Link className="strong cut" href={executionPath(one.execution_id)}>{one.job}</Link>
        {one.node && <span className="faint cut">{one.node}</span>}
      </>
    ),
  },
  {
    name: "Details", width: "minmax(140px, 3fr)", from: 1080, cell: (one) =>
      one.error && one.status !== "succeeded"
        ? <span className="cut tone-bad small">{errorOf(one).type}: {errorOf(one).message}</span>
        : <span className="cut muted small mono">{one.note ?? brief(one.args)}</span>,
  },
  { name: "Queue", width: "minmax(80px, 0.7fr)", from: 1280, cell: (one) => <span className="cut muted">{one.queue}</span> },
  { name: "Try", width: "34px", from: 1280, right: true, cell: (one) => <span className="muted">{one.attempt}</span> },
  { name: "Ran", width: "76px", from: 640, right: true, cell: (one) => <Ran one={one} /> },
  { name: "Created", width: "92px", right: true, cell: (one) => <span className="muted"><Time at={one.created_at} /></span> },
  { name: "Id", width: "84px", from: 1500, cell: (one) => <span className="faint mono small" title={one.execution_id}>{shortId(one.execution_id)}</span> },
];

interface View {
  name: string;
  search: string;
}
const views = createKept<View[]>("daybell.views", []);
const hiddenColumns = createKept<string[]>("daybell.executions.hidden", []);

export function ExecutionsPage() {
  const { query } = useAddress();
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? undefined]));
  const args = readArgs(query.get("arg") ?? "");
  const list = useList<Execution>("/executions", { ...filter, ...args });
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const hidden = useStore(hiddenColumns);
  const shown = useMemo(() => columns.filter((one) => !hidden.includes(one.name)), [hidden]);
  const can = useCan();
  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    setSelected(next);
  };
  const flags = Object.entries(filter).filter(([, value]) => value).map(([name, value]) => `--${name.replace("_id", "").replace("_", "-")} ${value}`);
  const isFiltered = [...query.keys()].length > 0;
  return (
    <Page title="Executions" cli={["daybell executions list", ...flags].join(" ")}
      actions={<><ColumnsMenu /><Views /></>}>
      <Filters />
      {selected.size > 0 && <Selected ids={[...selected]} rows={list.rows} onDone={() => setSelected(new Set())} />}
      <Listing label="Executions" list={list} columns={shown} keyOf={(one) => one.execution_id} href={(one) => executionPath(one.execution_id)}
        selected={selected} onSelect={can("cancel") || can("retry") ? toggle : undefined}
        empty={isFiltered
          ? <Empty icon="search" title="Nothing matches these filters"><Button size="small" onClick={clear}>Clear the filters</Button></Empty>
          : <Empty icon="executions" title="Nothing has run yet" command="daybell jobs trigger greet --wait">Trigger a job, or wait for its schedule.</Empty>} />
    </Page>
  );
}

const clear = () => setFilters({ ...Object.fromEntries(FILTERS.map((name) => [name, ""])), arg: "" });

/** `order_id=42` or `customer.id=7`: a search by arguments. */
function readArgs(text: string): Record<string, string> {
  const found = [...text.matchAll(/(\S+?)=(\S+)/g)];
  return Object.fromEntries(found.map(([, name, value]) => [`arg.${name}`, value ?? ""]));
}

function Filters() {
  const [status, setStatus] = useFilter("status");
  const [since, setSince] = useFilter("since");
  const [job, setJob] = useFilter("job");
  const [error, setError] = useFilter("error");
  const [arg, setArg] = useFilter("arg");
  const { query } = useAddress();
  const chips = ["queue", "worker_id", "workflow_id", "unique_key", "until"].filter((name) => query.get(name));
  return (
    <div className="toolbar">
      <Search label="Job" placeholder="Job, exactly" value={job} onChange={setJob} />
      <select className="select" aria-label="Status" value={status} onChange={(event) => setStatus(event.target.value)}>
        <option value="">All states</option>
        {STATES.map((one) => <option key={one} value={one}>{one}</option>)}
      </select>
      <select className="select" aria-label="Since" value={since} onChange={(event) => setSince(event.target.value)}>
        {SINCE.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
      </select>
      <Search label="Error" placeholder="Error: a class or a part of its message" value={error} onChange={setError} />
      <Search label="Arguments" placeholder="Argument: order_id=42" value={arg} onChange={setArg} />
      {chips.map((name) => (
        <span key={name} className="chip">
          {name.replace("_id", "")}: {brief(query.get(name), 24)}
          <Button size="small" kind="quiet" icon="cross" label={`Remove the filter ${name}`} onClick={() => setFilters({ [name]: "" })} />
        </span>
      ))}
    </div>
  );
}

function ColumnsMenu() {
  const hidden = useStore(hiddenColumns);
  const flip = (name: string) =>
    hiddenColumns.set(hidden.includes(name) ? hidden.filter((one) => one !== name) : [...hidden, name]);
  return (
    <details className="menu">
      <summary className="button quiet">Columns</summary>
      <div className="menu-list">
        {columns.filter((one) => one.name !== "Job").map((one) => (
          <label key={one.name} className="row">
            <input type="checkbox" checked={!hidden.includes(one.name)} onChange={() => flip(one.name)} /> {one.name}
          </label>
        ))}
      </div>
    </details>
  );
}

/** Filters under a name. The address of a view can be shared; its name stays in this browser. */
function Views() {
  const all = useStore(views);
  const [name, setName] = useState("");
  const { query } = useAddress();
  const save = () => {
    views.set([...all.filter((one) => one.name !== name), { name, search: query.toString() }]);
    setName("");
  };
  return (
    <details className="menu">
      <summary className="button quiet">Views</summary>
      <div className="menu-list">
        {all.map((one) => (
          <span key={one.name} className="row between">
            <Link className="cut" href={`/executions?${one.search}`}>{one.name}</Link>
            <Button size="small" kind="quiet" icon="cross" label={`Forget ${one.name}`} onClick={() => views.set(all.filter((other) => other !== one))} />
          </span>
        ))}
        <Field label="Save these filters as">
          {(id) => <input id={id} className="input" value={name} onChange={(event) => setName(event.target.value)} />}
        </Field>
        <Button size="small" disabled={!name.trim()} onClick={save}>Save</Button>
      </div>
    </details>
  );
}

function Selected({ ids, rows, onDone }: { ids: string[]; rows: Execution[]; onDone: () => void }) {
  const can = useCan();
  const [asks, setAsks] = useState<"cancel" | "retry" | null>(null);
  const [isBusy, setBusy] = useState(false);
  const act = async (verb: "cancel" | "retry") => {
    setBusy(true);
    try {
      const answer = await call("post", `/executions/${verb}`, { body: { ids } });
      toast(Object.entries(answer).filter(([name, value]) => value && name !== "matched").map(([name, value]) => `${value} ${name.replaceAll("_", " ")}`).join(", ") || "Nothing to do");
      void queries.invalidateQueries();
      onDone();
    } catch (error) {
      toast((error as Error).message, "bad");
    }
    setBusy(false);
    setAsks(null);
  };
  const active = rows.filter((one) => ids.includes(one.execution_id) && one.finished_at === null).length;
  return (
    <Notice tone="run">
      <span className="row wrap">
        {plural(ids.length, "execution")} selected
        {can("cancel") && <Button size="small" icon="slash" onClick={() => setAsks("cancel")}>Cancel</Button>}
        {can("retry") && <Button size="small" icon="retry" onClick={() => void act("retry")}>Retry</Button>}
        {ids.length === 2 && <Link className="button small" href={`/executions/${ids[0]}/compare?with=${ids[1]}`}>Compare</Link>}
        <Button size="small" kind="quiet" onClick={onDone}>Clear</Button>
      </span>
      {asks === "cancel" && (
        <Confirm title="Cancel executions" number={ids.length} submit="Cancel them" busy={isBusy} onClose={() => setAsks(null)} onConfirm={() => void act("cancel")}>
          {plural(active, "execution")} of {ids.length} can still be cancelled. Those that run are asked to stop.
        </Confirm>
      )}
    </Notice>
  );
}

export const jobLink = (name: string) => <Link className="strong" href={jobPath(name)}>{name}</Link>;
