/** Dead letters: by job and error, with what can be done about all of a kind. */

import { type ReactNode, useEffect, useMemo, useState } from "react";
import { type Answer, call, type Execution, useList } from "../data/api.ts";
import { command, count, shortId } from "../data/format.ts";
import { executionPath, Link, useFilter } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { toast } from "../data/toast.ts";
import { BulkDialog, type BulkPath } from "../parts/bulk.tsx";
import { Button, download } from "../parts/controls.tsx";
import { errorOf } from "../parts/failure.ts";
import { Card, Empty, Page } from "../parts/page.tsx";
import { QueryBar } from "../parts/query.tsx";
import { Spark } from "../parts/series.tsx";
import { Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";
import { brief } from "../parts/tree.tsx";
import { SelectionBar, useSelection } from "../parts/selection.tsx";

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
  const [asks, setAsks] = useState<{ path: BulkPath; q?: string; ids?: string[] } | null>(null);
  const selection = useSelection();
  const can = useCan();
  const verbs = (wanted: { q?: string; ids?: string[] }, size: "small" | "" = "small") => (
    <>
      {can("retry") && (
        <Button size={size} icon="retry" onClick={() => setAsks({ path: "/dead-letters/retry", ...wanted })}>
          Retry
        </Button>
      )}
      {can("discard") && (
        <Button size={size} kind="danger" onClick={() => setAsks({ path: "/dead-letters/discard", ...wanted })}>
          Discard
        </Button>
      )}
    </>
  );
  return (
    <Page
      title="Dead letters"
      cli={command("dead-letters list", { q })}
      actions={
        list.rows.length > 0 && (
          <>
            <Export q={q} />
            {verbs({ q }, "")}
          </>
        )
      }
    >
      <QueryBar value={q} onChange={setQ} wrong={list.error?.message} />
      <Groups q={q} onShow={setQ} verbs={verbs} />
      <SelectionBar number={selection.keys.size} noun="dead letter" onClear={selection.clear}>
        {verbs({ ids: [...selection.keys] })}
      </SelectionBar>
      <Listing
        key={q}
        label="Dead letters"
        list={list}
        columns={columns}
        keyOf={(one) => one.execution_id}
        href={(one) => executionPath(one.execution_id)}
        selected={selection.keys}
        onSelect={can("retry") || can("discard") ? selection.toggle : undefined}
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
            selection.clear();
          }}
        />
      )}
    </Page>
  );
}

type Group = Answer<"get", "/dead-letters/groups">["items"][number];

/** Groups that are shown at first, and the requests that count them: each reads the next 1,000 dead letters. */
const GROUPS = 6;
const REQUESTS_MAX = 10;

/** The same groups of several pages as one. */
function merge(pages: Group[]): Group[] {
  const groups = new Map<string, Group>();
  for (const one of pages) {
    const key = JSON.stringify([one.job, one.fingerprint, one.error]);
    const known = groups.get(key);
    if (!known) groups.set(key, one);
    else groups.set(key, { ...known, count: known.count + one.count, first_seen: one.first_seen });
  }
  return [...groups.values()].sort((a, b) => b.count - a.count || a.job.localeCompare(b.job));
}

/** Dead letters by job and error: what there is to decide. */
function Groups({
  q,
  onShow,
  verbs,
}: {
  q: string;
  onShow: (q: string) => void;
  verbs: (wanted: { q?: string }) => ReactNode;
}) {
  const [isOpen, setOpen] = useState(false);
  const list = useList<Group>("/dead-letters/groups", q ? { q } : {});
  const isCounting = list.hasNextPage && list.read < REQUESTS_MAX;
  useEffect(() => {
    if (isCounting) list.more();
  });
  const kinds = useMemo(() => merge(list.rows), [list.data]);
  if (!kinds.length) return null;
  const read = kinds.reduce((sum, one) => sum + one.count, 0);
  return (
    <Card
      title="By job and error"
      flush
      actions={
        list.hasNextPage && (
          <span className="small muted row" role="status">
            {isCounting ? `Counted ${count(read)}…` : `Among the newest ${count(read)}`}
            {!isCounting && (
              <Button size="small" kind="quiet" disabled={list.isFetching} onClick={list.more}>
                Count further
              </Button>
            )}
          </span>
        )
      }
    >
      <ul className="list">
        {kinds.slice(0, isOpen ? kinds.length : GROUPS).map((one) => (
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
              {one.q && one.q !== q && (
                <Button size="small" kind="quiet" onClick={() => onShow(one.q ?? "")}>
                  Show
                </Button>
              )}
              {one.q && verbs({ q: one.q })}
            </span>
          </li>
        ))}
      </ul>
      {kinds.length > GROUPS && (
        <div className="card-more">
          <Button size="small" kind="quiet" icon={isOpen ? "up" : "down"} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Show fewer" : `Show all ${count(kinds.length)} kinds`}
          </Button>
        </div>
      )}
    </Card>
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
    <Button icon="download" disabled={isBusy} onClick={() => void save()}>
      Export
    </Button>
  );
}
