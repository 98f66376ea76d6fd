/** Workflows: their last runs, and for one of them a grid of nodes and runs. */

import { useQueries } from "@tanstack/react-query";
import { useEffect } from "react";
import { call, type ExecutionDetail, type Job, useGet, useList } from "./api.ts";
import { exact, plural, short } from "./format.ts";
import { RunBars } from "./jobs.tsx";
import { executionPath, jobPath, Link } from "./router.tsx";
import { Card, type Column, Empty, Listing, Page, Pending, Status, Time, toneOf, useWidth } from "./ui.tsx";

export const workflowPath = (name: string) => `/workflows/${encodeURIComponent(name)}`;

const nodesOf = (job: Job) => ((job.workflow as { nodes?: unknown[] } | null)?.nodes ?? []).length;

const columns: Column<Job>[] = [
  { name: "Workflow", width: "minmax(140px, 1.4fr)", cell: (one) => <Link className="strong cut" href={workflowPath(one.name)}>{one.name}</Link> },
  { name: "Status", width: "104px", cell: (one) => <Status state={one.status} /> },
  { name: "Last runs", width: "152px", from: 640, cell: (one) => <RunBars job={one.name} mark={one.last_execution?.execution_id} /> },
  { name: "Nodes", width: "60px", from: 900, right: true, cell: (one) => nodesOf(one) || "–" },
  { name: "Schedule", width: "minmax(120px, 1.4fr)", from: 1000, cell: (one) => <span className="cut muted small">{one.schedules[0]?.description ?? "by hand or by code"}</span> },
  { name: "Next run", width: "90px", from: 760, right: true, cell: (one) => <Time at={one.next_run_at} /> },
  { name: "Last run", width: "90px", right: true, cell: (one) => <span className="muted"><Time at={one.last_execution?.started_at} /></span> },
];

export function WorkflowsPage() {
  const jobs = useList<Job>("/jobs", { limit: 200 });
  const rows = jobs.rows.filter((one) => one.kind === "workflow");
  // There is no filter for kinds: the rest of the jobs is read as well.
  useEffect(() => jobs.more());
  return (
    <Page title="Workflows" cli="daybell jobs list">
      <Listing label="Workflows" list={{ ...jobs, rows, hasNextPage: jobs.hasNextPage && !rows.length }} columns={columns} keyOf={(one) => one.job_id} href={(one) => workflowPath(one.name)} height={40}
        empty={<Empty icon="workflows" title="There is no workflow yet">In Python: <code>with app.workflow("etl"): extract &gt;&gt; load</code>. In a file or here: a graph of nodes and edges.</Empty>} />
    </Page>
  );
}

/** One row per node, one column per run, the newest on the right. */
export default function WorkflowPage({ name }: { name: string }) {
  const width = useWidth();
  const number = Math.max(5, Math.min(40, Math.floor((width - 520) / 26)));
  const list = useGet("/executions", { query: { job: name, limit: number } });
  const runs = [...(list.data?.items ?? [])].reverse();
  const details = useQueries({
    queries: runs.map((run) => ({
      queryKey: ["/executions/{id}", { id: run.execution_id }, null],
      queryFn: () => call("get", "/executions/{id}", { path: { id: run.execution_id } }),
      staleTime: run.finished_at ? Infinity : 2000,
      refetchInterval: run.finished_at ? (false as const) : 3000,
    })),
  });
  const loaded = details.map((one) => one.data).filter((one): one is ExecutionDetail => one !== undefined);
  const names = [...new Set([...loaded].reverse().flatMap((run) => run.workflow?.nodes.map((node) => node.name) ?? []))];
  const template = { gridTemplateColumns: `minmax(110px, 260px) repeat(${loaded.length}, 22px)` };
  return (
    <Page title={name} crumbs={[["Workflows", "/workflows"]]} cli={`daybell executions list --job ${name} --nodes`} actions={<Link className="button" href={jobPath(name)}>Job</Link>}>
      {!list.data || (runs.length > 0 && !loaded.length) ? <Pending error={list.error} /> : !runs.length ? (
        <Card><Empty icon="workflows" title="It has not run yet" command={`daybell jobs trigger ${name} --wait`} /></Card>
      ) : (
        <Card flush title={plural(loaded.length, "run")} actions={<span className="small muted">from {short(loaded[0]?.created_at ?? "")}</span>}>
          <div className="run-grid" tabIndex={0} role="region" aria-label="Nodes and runs">
            <div style={template} className="run-grid-row">
              <b>Run</b>
              {loaded.map((run) => <Cell key={run.execution_id} href={`${executionPath(run.execution_id)}/graph`} state={run.status} title={`${run.status}, ${exact(run.created_at)}`} />)}
            </div>
            {names.map((node) => (
              <div key={node} style={template} className="run-grid-row">
                <span className="cut" title={node}>{node}</span>
                {loaded.map((run) => {
                  const one = run.workflow?.nodes.find((each) => each.name === node);
                  if (!one) return <span key={run.execution_id} />;
                  const href = one.execution_id ? executionPath(one.execution_id) : `${executionPath(run.execution_id)}/nodes`;
                  return <Cell key={run.execution_id} href={href} state={one.status} title={`${node}: ${one.status}${one.note && `, ${one.note}`}`} />;
                })}
              </div>
            ))}
          </div>
        </Card>
      )}
    </Page>
  );
}

function Cell({ href, state, title }: { href: string; state: string; title: string }) {
  return <Link href={href} className={`run-cell fill-${toneOf(state)}`} data-state={state} title={title} aria-label={title} />;
}
