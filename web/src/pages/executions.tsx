/** The list of executions: one query, the newest first, live. */

import { useState } from "react";
import { ApiError, type Execution, useGet, useList } from "../data/api.ts";
import { command, count } from "../data/format.ts";
import { executionPath, Link, useFilter } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { BulkDialog, type BulkPath } from "../parts/bulk.tsx";
import { Button, Segments } from "../parts/controls.tsx";
import { Empty, Notice, Page } from "../parts/page.tsx";
import { QueryBar, withCondition } from "../parts/query.tsx";
import { Listing } from "../parts/table.tsx";
import { brief } from "../parts/tree.tsx";
import { SelectionBar, useSelection } from "../parts/selection.tsx";
import { ColumnsMenu, useColumns, Views } from "./execution-views.tsx";

const QUICK: [string, string][] = [
  ["", "All"],
  ["running", "Running"],
  ["pending", "Pending"],
  ["dead", "Dead"],
  ["succeeded", "Succeeded"],
];

const SPANS: [string, string][] = [
  ["", "Any time"],
  ["1h", "1 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
];

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
  const selection = useSelection();
  const [asks, setAsks] = useState<{ path: BulkPath; ids?: string[] } | null>(null);
  const shown = useColumns();
  const can = useCan();
  const refused = list.error instanceof ApiError && list.error.status === 422 ? list.error : undefined;
  const isTooMany = refused?.fields.some((one) => one.field === "sort");
  const wrong = isTooMany ? undefined : refused?.message;
  const status = /(?:^| )status:(\S+)/.exec(q)?.[1] ?? "";
  const since = /(?:^| )since:(\S+)/.exec(q)?.[1] ?? "";
  const verbs = (ids?: string[]) => (
    <>
      {can("cancel") && (
        <Button size="small" icon="slash" onClick={() => setAsks({ path: "/executions/cancel", ids })}>
          Cancel
        </Button>
      )}
      {can("retry") && (
        <Button size="small" icon="retry" onClick={() => setAsks({ path: "/executions/retry", ids })}>
          Retry
        </Button>
      )}
    </>
  );
  return (
    <Page
      title="Executions"
      cli={command("executions list", { q, sort })}
      actions={
        <>
          <ColumnsMenu />
          <Views />
        </>
      }
    >
      <QueryBar value={q} onChange={setQ} wrong={wrong} />
      <div className="toolbar">
        <Segments
          label="Status"
          value={status}
          options={QUICK}
          onChange={(value) => setQ(withCondition(q, "status", value))}
        />
        <Segments
          label="Created"
          value={since}
          options={SPANS}
          onChange={(value) => setQ(withCondition(q, "since", value))}
        />
        {q && !selection.keys.size && list.rows.length > 0 && (
          <span className="row small muted push">
            All that match:
            {verbs()}
          </span>
        )}
      </div>
      <SelectionBar number={selection.keys.size} noun="execution" onClear={selection.clear}>
        {verbs([...selection.keys])}
        {selection.keys.size === 2 && (
          <Link className="button small" href={`/executions/${[...selection.keys].join("/compare?with=")}`}>
            Compare
          </Link>
        )}
      </SelectionBar>
      {isTooMany && (
        <Notice tone="warn">
          <span className="row wrap">
            More than 5,000 executions match: that is too many to sort. Sort those
            {["status:running", "since:15m", "since:1h"].map((one) => {
              const [name = "", value = ""] = one.split(":");
              return (
                <Button key={one} size="small" onClick={() => setQ(withCondition(q, name, value))}>
                  {one}
                </Button>
              );
            })}
            or{" "}
            <Button size="small" kind="quiet" onClick={() => setSort("")}>
              the newest first
            </Button>
          </span>
        </Notice>
      )}
      {!isTooMany && (
        <Listing
          key={`${q} ${sort}`}
          label="Executions"
          list={list}
          total={total}
          sort={sort || "-created"}
          onSort={(next) => setSort(next === "-created" ? "" : next)}
          columns={shown}
          keyOf={(one) => one.execution_id}
          href={(one) => executionPath(one.execution_id)}
          selected={selection.keys}
          onSelect={can("cancel") || can("retry") ? selection.toggle : undefined}
          empty={
            q ? (
              <Empty icon="search" title={`Nothing matches ${brief(q, 80)}`}>
                <Button size="small" onClick={() => setQ("")}>
                  Clear the query
                </Button>
              </Empty>
            ) : (
              <Empty icon="executions" title="Nothing has run yet" command="daybell jobs trigger greet --wait">
                Trigger a job, or wait for its schedule.
              </Empty>
            )
          }
        />
      )}
      {asks && (
        <BulkDialog
          path={asks.path}
          ids={asks.ids}
          q={q}
          onClose={() => {
            setAsks(null);
            selection.clear();
          }}
        />
      )}
    </Page>
  );
}
