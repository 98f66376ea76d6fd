/** Two executions side by side; of runs of a workflow also their nodes. */

import { useState } from "react";
import { type ExecutionDetail, type RunNode, useGet } from "../data/api.ts";
import { duration, seconds, short, useNow } from "../data/format.ts";
import { executionPath, Link, useFilter } from "../data/router.tsx";
import { Button } from "../parts/controls.tsx";
import { Card, Empty, Pending } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { Table } from "../parts/table.tsx";
import { brief } from "../parts/tree.tsx";

const COMPARED = [
  "status",
  "version",
  "queue",
  "priority",
  "attempt",
  "failures",
  "crashes",
  "args",
  "result",
  "error",
  "worker_id",
  "created_at",
  "started_at",
  "finished_at",
] as const;

/** A value as text; times as all others are shown. */
function textOf(name: (typeof COMPARED)[number], one: ExecutionDetail) {
  const value = one[name];
  return name.endsWith("_at") && typeof value === "string" ? short(value) : brief(value, 2000);
}

export function Compare({ one }: { one: ExecutionDetail }) {
  const [id, setId] = useFilter("with");
  const other = useGet("/executions/{id}", { path: { id }, every: false, on: id !== "" });
  const recent = useGet("/executions", { query: { job: one.job, limit: 30 }, every: false });
  const [showsAll, setShowsAll] = useState(false);
  const now = useNow();
  const both = other.data && [one, other.data];
  const ran = both?.map((each) =>
    each.started_at ? duration(seconds(each.started_at, each.finished_at ?? now)) : "–",
  );
  const others = (recent.data?.items ?? []).filter((each) => each.execution_id !== one.execution_id);
  return (
    <>
      <div className="toolbar">
        <select className="select" aria-label="Compare with" value={id} onChange={(event) => setId(event.target.value)}>
          <option value="">Compare with…</option>
          {!others.some((each) => each.execution_id === id) && id && <option value={id}>{id.slice(-8)}</option>}
          {others.map((each) => (
            <option key={each.execution_id} value={each.execution_id}>
              {short(each.created_at)}, {each.status}
            </option>
          ))}
        </select>
        <Button pressed={showsAll} onClick={() => setShowsAll(!showsAll)}>
          Equal fields too
        </Button>
      </div>
      {!both || !ran ? (
        id ? (
          <Pending error={other.error} />
        ) : (
          <Card>
            <Empty icon="executions" title="Choose the run to compare with" />
          </Card>
        )
      ) : (
        <>
          <Card flush>
            <table className="compare">
              <thead>
                <tr>
                  <th scope="col">Field</th>
                  {both.map((each) => (
                    <th key={each.execution_id} scope="col">
                      <Link className="mono" href={executionPath(each.execution_id)}>
                        {each.execution_id.slice(-8)}
                      </Link>
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                <tr data-differs={ran[0] !== ran[1]}>
                  <th scope="row">ran</th>
                  {ran.map((text, at) => (
                    <td key={at}>{text}</td>
                  ))}
                </tr>
                {COMPARED.map((name) => {
                  const texts = both.map((each) => textOf(name, each));
                  if (texts[0] === texts[1] && !showsAll) return null;
                  return (
                    <tr key={name} data-differs={texts[0] !== texts[1]}>
                      <th scope="row">{name.replaceAll("_", " ")}</th>
                      {texts.map((text, at) => (
                        <td key={at} className="mono small">
                          {text || "–"}
                        </td>
                      ))}
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </Card>
          {one.workflow && other.data?.workflow && (
            <CompareNodes a={one.workflow.nodes} b={other.data.workflow.nodes} />
          )}
        </>
      )}
    </>
  );
}

interface NodePair {
  name: string;
  nodes: (RunNode | undefined)[];
  lengths: (number | null)[];
  change: number | null;
}

/** The nodes of two runs, those first whose time differs most. */
function CompareNodes({ a, b }: { a: RunNode[]; b: RunNode[] }) {
  const names = [...new Set([...a, ...b].map((node) => node.name))];
  const known = [new Map(a.map((node) => [node.name, node])), new Map(b.map((node) => [node.name, node]))];
  const rows = names.map((name): NodePair => {
    const nodes = known.map((each) => each.get(name));
    const lengths = nodes.map((node) =>
      node?.started_at && node.finished_at ? seconds(node.started_at, node.finished_at) : null,
    );
    const [from, to] = lengths;
    return { name, nodes, lengths, change: from == null || to == null ? null : to - from };
  });
  const differs = (row: NodePair) => row.nodes[0]?.status !== row.nodes[1]?.status;
  rows.sort((x, y) => Number(differs(y)) - Number(differs(x)) || Math.abs(y.change ?? 0) - Math.abs(x.change ?? 0));
  const side = (row: NodePair, at: number) => {
    const node = row.nodes[at];
    return node ? (
      <span className="row">
        <Status state={node.status} bare />
        {duration(row.lengths[at])}
      </span>
    ) : (
      <span className="faint">not there</span>
    );
  };
  return (
    <Table
      label="Nodes of both runs"
      rows={rows}
      keyOf={(row) => row.name}
      columns={[
        {
          name: "Node",
          width: "minmax(76px, 2fr)",
          cell: (row) => <span className={`cut ${differs(row) ? "strong tone-warn" : ""}`}>{row.name}</span>,
        },
        { name: "This run", width: "minmax(66px, 1fr)", cell: (row) => side(row, 0) },
        { name: "The other", width: "minmax(66px, 1fr)", cell: (row) => side(row, 1) },
        {
          name: "Change",
          width: "64px",
          right: true,
          cell: (row) =>
            row.change === null ? (
              ""
            ) : Math.abs(row.change) < 0.001 ? (
              <span className="faint">same</span>
            ) : (
              <span className={row.change > 0 ? "tone-warn" : "tone-ok"}>
                {row.change > 0 ? "+" : "−"}
                {duration(Math.abs(row.change))}
              </span>
            ),
        },
      ]}
    />
  );
}
