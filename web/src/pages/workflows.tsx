/** Workflows: their last runs, and for one of them a grid of nodes and runs. */

import { useQueries } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { call, type Execution, type Job, useGet, useList } from "../data/api.ts";
import { command, duration, exact, plural, seconds, short } from "../data/format.ts";
import { serverNow } from "../data/live.ts";
import { executionPath, jobPath, Link } from "../data/router.tsx";
import { Button, Search } from "../parts/controls.tsx";
import { Card, Empty, Page, Pending } from "../parts/page.tsx";
import { RunBars } from "../parts/run-bars.tsx";
import { Icon, iconOf, Status, Time, toneOf } from "../parts/status.tsx";
import { type Column as ListColumn, Listing, useWidth } from "../parts/table.tsx";

export const workflowPath = (name: string) => `/workflows/${encodeURIComponent(name)}`;

const nodesOf = (job: Job) => ((job.workflow as { nodes?: unknown[] } | null)?.nodes ?? []).length;

const columns: ListColumn<Job>[] = [
  {
    name: "Workflow",
    width: "minmax(140px, 1.4fr)",
    cell: (one) => (
      <Link className="strong cut" href={workflowPath(one.name)}>
        {one.name}
      </Link>
    ),
  },
  { name: "Status", width: "104px", cell: (one) => <Status state={one.status} /> },
  {
    name: "Last runs",
    width: "152px",
    from: 640,
    cell: (one) => <RunBars job={one.name} mark={one.last_execution?.execution_id} />,
  },
  { name: "Nodes", width: "60px", from: 900, right: true, cell: (one) => nodesOf(one) || "–" },
  {
    name: "Schedule",
    width: "minmax(120px, 1.4fr)",
    from: 1000,
    cell: (one) => <span className="cut muted small">{one.schedules[0]?.description ?? "by hand or by code"}</span>,
  },
  { name: "Next run", width: "90px", from: 760, right: true, cell: (one) => <Time at={one.next_run_at} /> },
  {
    name: "Last run",
    width: "90px",
    right: true,
    cell: (one) => (
      <span className="muted">
        <Time at={one.last_execution?.started_at} />
      </span>
    ),
  },
];

export function WorkflowsPage() {
  const jobs = useList<Job>("/jobs", { limit: 200 });
  const rows = jobs.rows.filter((one) => one.kind === "workflow");
  // There is no filter for kinds: the rest of the jobs is read as well.
  useEffect(() => jobs.more());
  return (
    <Page title="Workflows" cli="daybell jobs list">
      <Listing
        label="Workflows"
        list={{ ...jobs, rows }}
        columns={columns}
        keyOf={(one) => one.job_id}
        href={(one) => workflowPath(one.name)}
        height={40}
        empty={
          <Empty icon="workflows" title="There is no workflow yet">
            In Python: <code>with app.workflow("etl"): extract &gt;&gt; load</code>. In a file or here: a graph of nodes
            and edges.
          </Empty>
        }
      />
    </Page>
  );
}

/** What the grid shows of a run. */
interface Column {
  id: string;
  status: string;
  at: string;
  nodes: Map<string, { status: string; note: string; href: string }>;
}

const CELL = 24;
/** The row of runs: a bar for each, as high as it took long. */
const HEAD = 52;
const NAMES = 220;
const NAMES_NARROW = 120;
const RUNS = 100;

async function readColumn(run: Execution): Promise<Column> {
  const one = await call("get", "/executions/{id}", { path: { id: run.execution_id } });
  const inside = `${executionPath(run.execution_id)}/nodes`;
  const nodes = (one.workflow?.nodes ?? []).map(
    (node) =>
      [
        node.name,
        { status: node.status, note: node.note, href: node.execution_id ? executionPath(node.execution_id) : inside },
      ] as const,
  );
  return { id: run.execution_id, status: one.status, at: one.created_at, nodes: new Map(nodes) };
}

/** One row per node, one column per run, the newest on the right. Only what is in sight is drawn and asked for. */
export default function WorkflowPage({ name }: { name: string }) {
  const list = useGet("/executions", { query: { job: name, limit: RUNS } });
  const runs = useMemo(() => [...(list.data?.items ?? [])].reverse(), [list.data]);
  const [last, before] = [runs.at(-1), runs.at(-2)];
  return (
    <Page
      title={name}
      crumbs={[["Workflows", "/workflows"]]}
      cli={command("executions list --nodes", { job: name })}
      actions={
        <>
          {last && before && (
            <Link className="button" href={`${executionPath(before.execution_id)}/compare?with=${last.execution_id}`}>
              Compare runs
            </Link>
          )}
          <Link className="button" href={jobPath(name)}>
            Job
          </Link>
        </>
      }
    >
      {!list.data ? (
        <Pending error={list.error} />
      ) : !runs.length ? (
        <Card>
          <Empty icon="workflows" title="It has not run yet" command={`daybell jobs trigger ${name} --wait`} />
        </Card>
      ) : (
        <Grid runs={runs} />
      )}
    </Page>
  );
}

function Grid({ runs }: { runs: Execution[] }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth();
  const names = width < 700 ? NAMES_NARROW : NAMES;
  const [text, setText] = useState("");
  const [onlyFailed, setOnlyFailed] = useState(false);
  const across = useVirtualizer({
    horizontal: true,
    count: runs.length,
    getScrollElement: () => box.current,
    estimateSize: () => CELL,
    overscan: 3,
    paddingStart: names,
    initialOffset: runs.length * CELL,
  });
  const inSight = across.getVirtualItems();
  const loaded = useQueries({
    queries: inSight.map((item) => {
      const run = runs[item.index] as Execution;
      return {
        queryKey: ["grid", run.execution_id],
        queryFn: () => readColumn(run),
        staleTime: run.finished_at ? Infinity : 2000,
        refetchInterval: run.finished_at ? (false as const) : 3000,
      };
    }),
  });
  const columns = new Map(loaded.flatMap(({ data }) => (data ? [[data.id, data] as const] : [])));
  const word = text.toLowerCase();
  const rows = useMemo(() => {
    const found = [...new Set([...columns.values()].reverse().flatMap((one) => [...one.nodes.keys()]))];
    const fails = (node: string) =>
      [...columns.values()].some((one) => toneOf(one.nodes.get(node)?.status ?? "") === "bad");
    return found.filter((node) => node.toLowerCase().includes(word) && (!onlyFailed || fails(node)));
  }, [[...columns.keys()].join(), word, onlyFailed]);
  const down = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => CELL,
    overscan: 8,
    paddingStart: HEAD,
  });
  const lengthOf = (run: Execution) =>
    run.started_at ? Math.max(0, seconds(run.started_at, run.finished_at ?? serverNow())) : 0;
  const longest = Math.max(0.001, ...runs.map(lengthOf));
  return (
    <>
      <div className="toolbar">
        <Search label="Find a node" placeholder="Find a node" value={text} onChange={setText} />
        <Button pressed={onlyFailed} onClick={() => setOnlyFailed(!onlyFailed)}>
          Failed only
        </Button>
        <span className="small faint">
          {plural(rows.length, "node")}, {plural(runs.length, "run")} from {short(runs[0]?.created_at ?? "")}
        </span>
      </div>
      <div className="card flush run-grid" ref={box} tabIndex={0} role="region" aria-label="Nodes and runs">
        {/* As large from the beginning as it will be: before that, there is nothing to scroll to the newest run. */}
        <div
          aria-busy={!columns.size}
          style={{
            width: across.getTotalSize(),
            height: columns.size ? down.getTotalSize() : HEAD + 8 * CELL,
            position: "relative",
          }}
        >
          <div className="run-grid-head" style={{ width: across.getTotalSize(), height: HEAD }}>
            <span className="run-grid-name small faint" style={{ width: names, height: HEAD }}>
              Longest: {duration(longest)}
            </span>
            {inSight.map((item) => {
              const run = runs[item.index] as Execution;
              return (
                <Cell
                  key={run.execution_id}
                  left={item.start}
                  height={5 + (HEAD - 16) * (lengthOf(run) / longest)}
                  href={`${executionPath(run.execution_id)}/graph`}
                  state={columns.get(run.execution_id)?.status ?? run.status}
                  title={`${run.status}, ran ${duration(lengthOf(run))}, ${exact(run.created_at)}`}
                />
              );
            })}
          </div>
          {down.getVirtualItems().map((row) => {
            const node = rows[row.index] as string;
            return (
              <div
                key={node}
                className="run-grid-line"
                style={{ transform: `translateY(${row.start}px)`, height: CELL, width: across.getTotalSize() }}
              >
                <span className="cut run-grid-name" style={{ width: names, height: CELL }} title={node}>
                  {node}
                </span>
                {inSight.map((item) => {
                  const run = runs[item.index] as Execution;
                  const one = columns.get(run.execution_id)?.nodes.get(node);
                  return (
                    one && (
                      <Cell
                        key={run.execution_id}
                        left={item.start}
                        href={one.href}
                        state={one.status}
                        title={`${node}: ${one.status}${one.note && `, ${one.note}`}`}
                      />
                    )
                  );
                })}
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}

function Cell({
  left,
  height,
  href,
  state,
  title,
}: {
  left: number;
  height?: number;
  href: string;
  state: string;
  title: string;
}) {
  const style = height === undefined ? { left } : { left, height, top: "auto", bottom: 3, borderRadius: 3 };
  // Colour is not the only sign: every state but success has its icon.
  const tone = toneOf(state);
  return (
    <Link
      href={href}
      className={`run-cell fill-${tone}`}
      data-state={state}
      title={title}
      aria-label={title}
      style={style}
    >
      {height === undefined && tone !== "ok" && (
        <Icon name={iconOf(state)} className={state === "running" ? "spin" : ""} />
      )}
    </Link>
  );
}
