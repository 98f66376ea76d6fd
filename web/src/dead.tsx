/** Dead letters: by job and error, with what can be done about all of a kind. */

import { useState } from "react";
import { type Execution, useGet, useList } from "./api.ts";
import { BulkDialog, type BulkPath } from "./bulk.tsx";
import { count, plural, shortId } from "./format.ts";
import { errorOf } from "./overview.tsx";
import { QueryBar } from "./query.tsx";
import { executionPath, Link, useFilter } from "./router.tsx";
import { useCan } from "./session.ts";
import { brief, Button, Card, type Column, Empty, Listing, Notice, Page, Time } from "./ui.tsx";

const columns: Column<Execution>[] = [
  { name: "Job", width: "minmax(90px, 1fr)", cell: (one) => <Link className="strong cut" href={executionPath(one.execution_id)}>{one.job}</Link> },
  { name: "Error", width: "minmax(90px, 3fr)", cell: (one) => <span className="cut tone-bad small">{errorOf(one).type}{errorOf(one).message && `: ${errorOf(one).message}`}</span> },
  { name: "Arguments", width: "minmax(100px, 1.6fr)", from: 1100, cell: (one) => <span className="cut muted small mono">{brief(one.args)}</span> },
  { name: "Tries", width: "44px", from: 800, right: true, cell: (one) => <span className="muted">{one.attempt}</span> },
  { name: "Died", width: "80px", right: true, cell: (one) => <span className="muted"><Time at={one.finished_at} /></span> },
  { name: "Id", width: "84px", from: 1400, cell: (one) => <span className="faint mono small">{shortId(one.execution_id)}</span> },
];

export default function DeadLettersPage() {
  const [q, setQ] = useFilter("q");
  const list = useList<Execution>("/dead-letters", { q });
  const groups = useGet("/dead-letters/groups", { query: { limit: 20, ...(q && { q }) }, every: 6000 });
  const [asks, setAsks] = useState<{ path: BulkPath; q?: string; ids?: string[] } | null>(null);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const can = useCan();
  const toggle = (key: string) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    setSelected(next);
  };
  const verbs = (wanted: { q?: string; ids?: string[] }) => (
    <>
      {can("retry") && <Button size="small" icon="retry" onClick={() => setAsks({ path: "/dead-letters/retry", ...wanted })}>Retry</Button>}
      {can("discard") && <Button size="small" kind="danger" onClick={() => setAsks({ path: "/dead-letters/discard", ...wanted })}>Discard</Button>}
    </>
  );
  const kinds = groups.data?.items ?? [];
  return (
    <Page title="Dead letters" cli={q ? `daybell dead-letters list --q '${q}'` : "daybell dead-letters list"}
      actions={list.rows.length > 0 && <><Export rows={list.rows} />{verbs({ q })}</>}>
      <QueryBar value={q} onChange={setQ} wrong={list.error?.message} />
      {kinds.length > 0 && (
        <Card title="By job and error" flush>
          <ul className="list">
            {kinds.map((one) => (
              <li key={`${one.job} ${one.fingerprint} ${one.error}`} className="wrap">
                <span className="badge bad">{count(one.count)}</span>
                <span className="grow">
                  <Link className="strong" href={executionPath(one.execution_id)}>{one.job}</Link> <span className="tone-bad small">{one.error}</span>
                  <span className="cut muted small block">{one.message}</span>
                </span>
                <span className="small muted">first <Time at={one.first_seen} />, last <Time at={one.last_seen} /></span>
                {one.q && <span className="row"><Button size="small" kind="quiet" onClick={() => setQ(one.q ?? "")}>Show</Button>{verbs({ q: one.q })}</span>}
              </li>
            ))}
          </ul>
        </Card>
      )}
      {selected.size > 0 && (
        <Notice tone="run">
          <span className="row wrap">
            {plural(selected.size, "dead letter")} selected {verbs({ ids: [...selected] })}
            <Button size="small" kind="quiet" onClick={() => setSelected(new Set())}>Clear</Button>
          </span>
        </Notice>
      )}
      <Listing label="Dead letters" list={list} columns={columns} keyOf={(one) => one.execution_id} href={(one) => executionPath(one.execution_id)}
        selected={selected} onSelect={can("discard") ? toggle : undefined}
        empty={q ? <Empty icon="search" title="No dead letter matches"><Button size="small" onClick={() => setQ("")}>Clear the query</Button></Empty> : <Empty icon="check" title="No dead letters" command="daybell dead-letters list">An execution that runs out of retries is kept here until you retry or discard it.</Empty>} />
      {asks && <BulkDialog {...asks} onClose={() => { setAsks(null); setSelected(new Set()); }} />}
    </Page>
  );
}

function Export({ rows }: { rows: Execution[] }) {
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rows.map((one) => JSON.stringify(one)).join("\n")], { type: "application/x-ndjson" }));
    link.download = "dead-letters.ndjson";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return <Button size="small" icon="download" onClick={save}>Export</Button>;
}
