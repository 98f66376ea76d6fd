/** Dead letters: by job and error, with what can be done about all of a kind. */

import { useState } from "react";
import { call, type Execution, useGet, useList } from "../data/api.ts";
import { command, count, plural, shortId } from "../data/format.ts";
import { executionPath, Link, useFilter } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { toast } from "../data/toast.ts";
import { BulkDialog, type BulkPath } from "../parts/bulk.tsx";
import { Button, download } from "../parts/controls.tsx";
import { errorOf } from "../parts/failure.ts";
import { Card, Empty, Notice, Page } from "../parts/page.tsx";
import { QueryBar } from "../parts/query.tsx";
import { Spark } from "../parts/series.tsx";
import { Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";
import { brief } from "../parts/tree.tsx";

const columns: Column<Execution>[] = [
  {
    name: "Job",
    width: "minmax(90px, 1fr)",
    cell: (one) => (
      <Link className="strong cut" href={executionPath(one.execution_id)}>
        {one.job}
      </Link>
    ),
  },
  {
    name: "Error",
    width: "minmax(90px, 3fr)",
    cell: (one) => (
      <span className="cut tone-bad small">
        {errorOf(one).type}
        {errorOf(one).message && `: ${errorOf(one).message}`}
      </span>
    ),
  },
  {
    name: "Arguments",
    width: "minmax(100px, 1.6fr)",
    from: 1100,
    cell: (one) => <span className="cut muted small mono">{brief(one.args)}</span>,
  },
  { name: "Tries", width: "44px", from: 800, right: true, cell: (one) => <span className="muted">{one.attempt}</span> },
  {
    name: "Died",
    width: "80px",
    right: true,
    cell: (one) => (
      <span className="muted">
        <Time at={one.finished_at} />
      </span>
    ),
  },
  {
    name: "Id",
    width: "84px",
    from: 1400,
    cell: (one) => <span className="faint mono small">{shortId(one.execution_id)}</span>,
  },
];

export default function DeadLettersPage() {
  const [q, setQ] = useFilter("q");
  const list = useList<Execution>("/dead-letters", { q });
  const groups = useGet("/dead-letters/groups", { query: { limit: 20, ...(q && { q }) }, every: 6000, live: true });
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
      {can("retry") && (
        <Button size="small" icon="retry" onClick={() => setAsks({ path: "/dead-letters/retry", ...wanted })}>
          Retry
        </Button>
      )}
      {can("discard") && (
        <Button size="small" kind="danger" onClick={() => setAsks({ path: "/dead-letters/discard", ...wanted })}>
          Discard
        </Button>
      )}
    </>
  );
  const kinds = groups.data?.items ?? [];
  return (
    <Page
      title="Dead letters"
      cli={command("dead-letters list", { q })}
      actions={
        list.rows.length > 0 && (
          <>
            <Export q={q} />
            {verbs({ q })}
          </>
        )
      }
    >
      <QueryBar value={q} onChange={setQ} wrong={list.error?.message} />
      {kinds.length > 0 && (
        <Card title="By job and error" flush>
          <ul className="list">
            {kinds.map((one) => (
              <li key={`${one.job} ${one.fingerprint} ${one.error}`} className="dead-group">
                <span className="badge bad">{count(one.count)}</span>
                <span className="group-name">
                  <span className="row">
                    <Link className="strong cut" href={executionPath(one.execution_id)} title={one.job}>
                      {one.job}
                    </Link>
                    <span className="tone-bad small cut">{one.error}</span>
                  </span>
                  <span className="cut muted small block" title={one.message}>
                    {one.message}
                  </span>
                </span>
                <span className="group-trend">
                  <Spark metric="dead" job={one.job} since="24h" bad />
                </span>
                <span className="group-seen small muted">
                  <span>
                    first <Time at={one.first_seen} />
                  </span>
                  <span>
                    last <Time at={one.last_seen} />
                  </span>
                </span>
                <span className="group-actions row">
                  {one.q && (
                    <>
                      <Button size="small" kind="quiet" onClick={() => setQ(one.q ?? "")}>
                        Show
                      </Button>
                      {verbs({ q: one.q })}
                    </>
                  )}
                </span>
              </li>
            ))}
          </ul>
        </Card>
      )}
      {selected.size > 0 && (
        <Notice tone="run">
          <span className="row wrap">
            {plural(selected.size, "dead letter")} selected {verbs({ ids: [...selected] })}
            <Button size="small" kind="quiet" onClick={() => setSelected(new Set())}>
              Clear
            </Button>
          </span>
        </Notice>
      )}
      <Listing
        key={q}
        label="Dead letters"
        list={list}
        columns={columns}
        keyOf={(one) => one.execution_id}
        href={(one) => executionPath(one.execution_id)}
        selected={selected}
        onSelect={can("discard") ? toggle : undefined}
        empty={
          q ? (
            <Empty icon="search" title="No dead letter matches">
              <Button size="small" onClick={() => setQ("")}>
                Clear the query
              </Button>
            </Empty>
          ) : (
            <Empty icon="check" title="No dead letters" command="daybell dead-letters list">
              An execution that runs out of retries is kept here until you retry or discard it.
            </Empty>
          )
        }
      />
      {asks && (
        <BulkDialog
          {...asks}
          onClose={() => {
            setAsks(null);
            setSelected(new Set());
          }}
        />
      )}
    </Page>
  );
}

const EXPORTED_MAX = 10_000;

/** All that match, page by page, as lines of JSON. */
function Export({ q }: { q: string }) {
  const [isBusy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    const lines: string[] = [];
    try {
      let cursor: string | null | undefined;
      do {
        const page = await call("get", "/dead-letters", {
          query: { limit: 500, ...(q && { q }), ...(cursor && { cursor }) },
        });
        lines.push(...page.items.map((one) => JSON.stringify(one)));
        cursor = page.next_cursor;
      } while (cursor && lines.length < EXPORTED_MAX);
      if (cursor) toast(`The first ${count(lines.length)} are in the file; daybell export writes all`, "bad");
      download("dead-letters.ndjson", "application/x-ndjson", lines.join("\n"));
    } catch (error) {
      toast((error as Error).message, "bad");
    }
    setBusy(false);
  };
  return (
    <Button size="small" icon="download" disabled={isBusy} onClick={() => void save()}>
      Export
    </Button>
  );
}
