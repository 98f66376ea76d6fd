/** The list of executions: one query, the newest first, live. */

import { useMemo, useState } from "react";
import { ApiError, type Execution, useGet, useList } from "./api.ts";
import { BulkDialog, type BulkPath } from "./bulk.tsx";
import { command, count, duration, plural, seconds, shortId, useNow } from "./format.ts";
import { errorOf } from "./overview.tsx";
import { QueryBar, withCondition } from "./query.tsx";
import { executionPath, Link, useAddress, useFilter } from "./router.tsx";
import { useCan } from "./session.ts";
import { createKept, useStore } from "./store.ts";
import { brief, Button, type Column, Empty, Field, Listing, Notice, Page, Status, Time } from "./ui.tsx";

const QUICK: [string, string][] = [["", "All"], ["running", "Running"], ["pending", "Pending"], ["dead", "Dead"], ["succeeded", "Succeeded"]];

/** Runs as long as it runs: the clock ticks for those without an end. */
export function Ran({ one }: { one: Pick<Execution, "started_at" | "finished_at"> }) {
  const now = useNow();
  if (!one.started_at) return <span className="faint">–</span>;
  if (one.finished_at) return <>{duration(seconds(one.started_at, one.finished_at))}</>;
  return <>{duration(Math.max(0, Math.round(seconds(one.started_at, now))))}</>;
}

const argsOf = (one: Execution) => (one.args && Object.keys(one.args).length ? brief(one.args) : "");

export const columns: Column<Execution>[] = [
  { name: "Status", width: "104px", slim: true, cell: (one) => <Status state={one.status} /> },
  {
    name: "Job", width: "minmax(80px, 1.4fr)", cell: (one) => (
      <>
        <Link className="strong cut" title={one.job} href={executionPath(one.execution_id)}>{one.job}</Link>
        {one.node && <span className="faint cut">{one.node}</span>}
      </>
    ),
  },
  {
    name: "Details", width: "minmax(140px, 3fr)", from: 1080, cell: (one) =>
      one.error && one.status !== "succeeded"
        ? <span className="cut tone-bad small">{errorOf(one).type}: {errorOf(one).message}</span>
        : <span className="cut muted small mono">{one.note ?? argsOf(one)}</span>,
  },
  { name: "Queue", width: "minmax(80px, 0.7fr)", from: 1280, cell: (one) => <span className="cut muted">{one.queue}</span> },
  { name: "Try", width: "34px", from: 1280, right: true, cell: (one) => <span className="muted">{one.attempt}</span> },
  { name: "Worker", width: "84px", from: 1280, cell: (one) => <span className="faint mono small" title={one.worker_id ?? ""}>{one.worker_id ? shortId(one.worker_id) : ""}</span> },
  { name: "Started", width: "84px", from: 900, right: true, sort: "started", cell: (one) => <span className="muted"><Time at={one.started_at} /></span> },
  { name: "Ended", width: "84px", from: 900, right: true, sort: "ended", cell: (one) => <span className="muted"><Time at={one.finished_at} /></span> },
  { name: "Ran", width: "76px", from: 640, right: true, sort: "duration", cell: (one) => <Ran one={one} /> },
  { name: "Created", width: "84px", right: true, sort: "created", cell: (one) => <span className="muted"><Time at={one.created_at} /></span> },
  { name: "Id", width: "84px", from: 1500, cell: (one) => <span className="faint mono small" title={one.execution_id}>{shortId(one.execution_id)}</span> },
];

interface View {
  name: string;
  search: string;
}
const views = createKept<View[]>("daybell.views", []);
/** Columns that are there for those who ask for them. */
const EXTRA = ["Worker", "Started", "Ended"];
export const usual = columns.filter((one) => !EXTRA.includes(one.name));
const hiddenColumns = createKept<string[]>("daybell.executions.without", EXTRA);

/** About how many match; a query by content is not counted. */
function useTotal(q: string) {
  const counts = useGet("/counts", { query: { q: q || undefined, estimate: true }, every: 15_000 });
  if (!counts.data || counts.isPlaceholderData || counts.error) return undefined;
  const { executions, at_least, estimate } = counts.data;
  const sum = Object.values(executions).reduce((all, one) => all + one, 0);
  return at_least.length ? `about ${count(estimate ?? sum)}` : count(sum);
}

export function ExecutionsPage() {
  const [q, setQ] = useFilter("q");
  const [sort, setSort] = useFilter("sort");
  const list = useList<Execution>("/executions", { q, sort });
  const total = useTotal(q);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [asks, setAsks] = useState<{ path: BulkPath; ids?: string[] } | null>(null);
  const hidden = useStore(hiddenColumns);
  const shown = useMemo(() => columns.filter((one) => !hidden.includes(one.name)), [hidden]);
  const can = useCan();
  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    setSelected(next);
  };
  const clear = () => setSelected(new Set());
  const refused = list.error instanceof ApiError && list.error.status === 422 ? list.error : undefined;
  const isTooMany = refused?.fields.some((one) => one.field === "sort");
  const wrong = isTooMany ? undefined : refused?.message;
  const status = /(?:^| )status:(\S+)/.exec(q)?.[1] ?? "";
  return (
    <Page title="Executions" cli={command("executions list", { q, sort })} actions={<><ColumnsMenu /><Views /></>}>
      <QueryBar value={q} onChange={setQ} wrong={wrong} />
      <div className="toolbar">
        <div className="segments" role="group" aria-label="Status">
          {QUICK.map(([value, text]) => <button key={value} type="button" aria-pressed={status === value} onClick={() => setQ(withCondition(q, "status", value))}>{text}</button>)}
        </div>
        {q && !selected.size && list.rows.length > 0 && (
          <span className="row small muted">
            All that match:
            {can("cancel") && <Button size="small" icon="slash" onClick={() => setAsks({ path: "/executions/cancel" })}>Cancel</Button>}
            {can("retry") && <Button size="small" icon="retry" onClick={() => setAsks({ path: "/executions/retry" })}>Retry</Button>}
          </span>
        )}
      </div>
      {selected.size > 0 && (
        <Notice tone="run">
          <span className="row wrap">
            {plural(selected.size, "execution")} selected
            {can("cancel") && <Button size="small" icon="slash" onClick={() => setAsks({ path: "/executions/cancel", ids: [...selected] })}>Cancel</Button>}
            {can("retry") && <Button size="small" icon="retry" onClick={() => setAsks({ path: "/executions/retry", ids: [...selected] })}>Retry</Button>}
            {selected.size === 2 && <Link className="button small" href={`/executions/${[...selected][0]}/compare?with=${[...selected][1]}`}>Compare</Link>}
            <Button size="small" kind="quiet" onClick={clear}>Clear</Button>
          </span>
        </Notice>
      )}
      {isTooMany && (
        <Notice tone="warn">
          <span className="row wrap">
            More than 5,000 executions match: that is too many to sort. Sort those
            {["status:running", "since:15m", "since:1h"].map((one) => {
              const [name = "", value = ""] = one.split(":");
              return <Button key={one} size="small" onClick={() => setQ(withCondition(q, name, value))}>{one}</Button>;
            })}
            or <Button size="small" kind="quiet" onClick={() => setSort("")}>the newest first</Button>
          </span>
        </Notice>
      )}
      {!isTooMany && <Listing key={`${q} ${sort}`} label="Executions" list={list} total={total} sort={sort || "-created"} onSort={(next) => setSort(next === "-created" ? "" : next)} columns={shown} keyOf={(one) => one.execution_id} href={(one) => executionPath(one.execution_id)}
        selected={selected} onSelect={can("cancel") || can("retry") ? toggle : undefined}
        empty={q
          ? <Empty icon="search" title={`Nothing matches ${brief(q, 80)}`}><Button size="small" onClick={() => setQ("")}>Clear the query</Button></Empty>
          : <Empty icon="executions" title="Nothing has run yet" command="daybell jobs trigger greet --wait">Trigger a job, or wait for its schedule.</Empty>} />}
      {asks && <BulkDialog path={asks.path} ids={asks.ids} q={q} onClose={() => { setAsks(null); clear(); }} />}
    </Page>
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
