/** The list of executions: one query, the newest first, live. */

import { useMemo, useState } from "react";
import { ApiError, type Execution, useGet, useList } from "../data/api.ts";
import { command, count, plural } from "../data/format.ts";
import { executionPath, Link, useAddress, useFilter } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { createKept, useStore } from "../data/store.ts";
import { BulkDialog, type BulkPath } from "../parts/bulk.tsx";
import { Button, Field } from "../parts/controls.tsx";
import { columns, EXTRA } from "../parts/execution-columns.tsx";
import { Empty, Notice, Page } from "../parts/page.tsx";
import { QueryBar, withCondition } from "../parts/query.tsx";
import { Listing } from "../parts/table.tsx";
import { brief } from "../parts/tree.tsx";

const QUICK: [string, string][] = [
  ["", "All"],
  ["running", "Running"],
  ["pending", "Pending"],
  ["dead", "Dead"],
  ["succeeded", "Succeeded"],
];

interface View {
  name: string;
  search: string;
}
const views = createKept<View[]>("daybell.views", []);
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
        <div className="segments" role="group" aria-label="Status">
          {QUICK.map(([value, text]) => (
            <button
              key={value}
              type="button"
              aria-pressed={status === value}
              onClick={() => setQ(withCondition(q, "status", value))}
            >
              {text}
            </button>
          ))}
        </div>
        {q && !selected.size && list.rows.length > 0 && (
          <span className="row small muted">
            All that match:
            {can("cancel") && (
              <Button size="small" icon="slash" onClick={() => setAsks({ path: "/executions/cancel" })}>
                Cancel
              </Button>
            )}
            {can("retry") && (
              <Button size="small" icon="retry" onClick={() => setAsks({ path: "/executions/retry" })}>
                Retry
              </Button>
            )}
          </span>
        )}
      </div>
      {selected.size > 0 && (
        <Notice tone="run">
          <span className="row wrap">
            {plural(selected.size, "execution")} selected
            {can("cancel") && (
              <Button
                size="small"
                icon="slash"
                onClick={() => setAsks({ path: "/executions/cancel", ids: [...selected] })}
              >
                Cancel
              </Button>
            )}
            {can("retry") && (
              <Button
                size="small"
                icon="retry"
                onClick={() => setAsks({ path: "/executions/retry", ids: [...selected] })}
              >
                Retry
              </Button>
            )}
            {selected.size === 2 && (
              <Link className="button small" href={`/executions/${[...selected][0]}/compare?with=${[...selected][1]}`}>
                Compare
              </Link>
            )}
            <Button size="small" kind="quiet" onClick={clear}>
              Clear
            </Button>
          </span>
        </Notice>
      )}
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
          selected={selected}
          onSelect={can("cancel") || can("retry") ? toggle : undefined}
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
            clear();
          }}
        />
      )}
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
        {columns
          .filter((one) => one.name !== "Job")
          .map((one) => (
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
            <Link className="cut" href={`/executions?${one.search}`}>
              {one.name}
            </Link>
            <Button
              size="small"
              kind="quiet"
              icon="cross"
              label={`Forget ${one.name}`}
              onClick={() => views.set(all.filter((other) => other !== one))}
            />
          </span>
        ))}
        <Field label="Save these filters as">
          {(id) => <input id={id} className="input" value={name} onChange={(event) => setName(event.target.value)} />}
        </Field>
        <Button size="small" disabled={!name.trim()} onClick={save}>
          Save
        </Button>
      </div>
    </details>
  );
}
