/** A workflow's run: its graph with live states, and a chart of its nodes over time. */

import dagre from "@dagrejs/dagre";
import {
  Background, Controls, type Edge, Handle, MarkerType, MiniMap, type Node, type NodeProps, Position, ReactFlow, ReactFlowProvider, useReactFlow,
} from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { memo, useEffect, useMemo, useState } from "react";
import { type ExecutionDetail, type RunNode, useChange, type WorkflowRun } from "./api.ts";
import { clock, count, duration, plural, seconds, useNow } from "./format.ts";
import { executionPath, Link, navigate, to } from "./router.tsx";
import { useCan } from "./session.ts";
import { Card, Notice, Search, Status, toneOf, useWidth } from "./ui.tsx";

const SIZE = { width: 208, height: 54 };
const LABELS_MAX = 60;
const MANY = 150;

export default function RunView({ one, view }: { one: ExecutionDetail; view: "graph" | "chart" }) {
  const run = one.workflow as WorkflowRun;
  const { ended, total } = run.progress;
  return (
    <>
      <div className="row wrap small muted">
        <progress max={Math.max(1, total)} value={ended} aria-label="Nodes that have ended" />
        {count(ended)} of {plural(total, "node")} ended
        {run.failed.length > 0 && <span className="tone-bad">{plural(run.failed.length, "node")} failed</span>}
        <Restart one={one} />
      </div>
      {view === "graph" ? <ReactFlowProvider><Graph one={one} run={run} /></ReactFlowProvider> : <Chart run={run} one={one} />}
    </>
  );
}

/** Run again from a node: those before it keep their results. */
function Restart({ one }: { one: ExecutionDetail }) {
  const can = useCan();
  const retry = useChange("post", "/executions/{id}/retry", () => "The run goes on");
  if (one.finished_at === null || !can("retry")) return null;
  const run = (from: string) =>
    retry.mutate({ path: { id: one.execution_id }, body: { from, force: one.status === "succeeded" } }, {
      onSuccess: (answer) => navigate(`${executionPath(answer.execution_id)}/graph`),
    });
  return (
    <select className="select" aria-label="Run again from a node" value="" disabled={retry.isPending} onChange={(event) => run(event.target.value)}>
      <option value="">Run again from…</option>
      {one.workflow?.nodes.map((node) => <option key={node.name} value={node.name}>{node.name}</option>)}
    </select>
  );
}

type GraphNode = Node<{ node: RunNode; isFound: boolean; run: string }>;

function layout(run: WorkflowRun): Map<string, { x: number; y: number }> {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 56 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of run.nodes) graph.setNode(node.name, { ...SIZE });
  for (const edge of run.edges) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  return new Map(run.nodes.map((node) => {
    const { x, y } = graph.node(node.name);
    return [node.name, { x: x - SIZE.width / 2, y: y - SIZE.height / 2 }];
  }));
}

const NODE_TYPES = { run: memo(Box) };

function Box({ data }: NodeProps<GraphNode>) {
  const { node, isFound, run } = data;
  const now = useNow();
  const href = node.execution_id ? executionPath(node.execution_id) : to(`${executionPath(run)}/nodes`);
  const ran = node.started_at ? duration(Math.max(0, seconds(node.started_at, node.finished_at ?? now))) : node.note;
  return (
    <Link href={href} className={`graph-node edge-${toneOf(node.status)}`} data-found={isFound} title={node.note || node.status}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <span className="row"><Status state={node.status} bare /><b className="cut">{node.name}</b></span>
      <span className="small muted cut">
        {node.items ? `${count(node.items.ended)} of ${plural(node.items.total, "item")}${node.items.failed ? `, ${node.items.failed} failed` : ""}` : ran}
      </span>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </Link>
  );
}

function Graph({ one, run }: { one: ExecutionDetail; run: WorkflowRun }) {
  const [text, setText] = useState("");
  const flow = useReactFlow();
  const width = useWidth();
  const shape = `${run.nodes.map((node) => node.name).join()}|${run.edges.length}`;
  // biome-ignore lint: the layout follows the shape alone, so that states never move a node
  const places = useMemo(() => layout(run), [shape]);
  const word = text.toLowerCase();
  const nodes: GraphNode[] = run.nodes.map((node) => ({
    id: node.name, type: "run", position: places.get(node.name) ?? { x: 0, y: 0 }, ...SIZE, draggable: false, connectable: false, focusable: false,
    data: { node, run: one.execution_id, isFound: word !== "" && node.name.toLowerCase().includes(word) },
  }));
  const status = new Map(run.nodes.map((node) => [node.name, node.status]));
  const edges: Edge[] = run.edges.map((edge) => ({
    id: `${edge.from} ${edge.to}`, source: edge.from, target: edge.to, focusable: false,
    label: run.nodes.length <= LABELS_MAX ? (edge.when ?? undefined) : undefined,
    animated: status.get(edge.to) === "running",
    markerEnd: { type: MarkerType.ArrowClosed, width: 14, height: 14 },
  }));
  useEffect(() => {
    const found = nodes.filter((node) => node.data.isFound);
    if (found.length) void flow.fitView({ nodes: found, maxZoom: 1.1, duration: 200 });
  }, [text]);
  return (
    <div className="graph fill">
      <div className="graph-search"><Search label="Find a node" placeholder="Find a node" value={text} onChange={setText} /></div>
      <ReactFlow nodes={nodes} edges={edges} nodeTypes={NODE_TYPES} fitView fitViewOptions={{ maxZoom: 1.1, padding: 0.15 }} minZoom={0.05} onlyRenderVisibleElements={run.nodes.length > MANY}
        nodesDraggable={false} nodesConnectable={false} elementsSelectable={false} proOptions={{ hideAttribution: false }}>
        <Background gap={22} />
        <Controls showInteractive={false} />
        {width > 900 && <MiniMap pannable zoomable nodeClassName={(node) => `fill-${toneOf((node as GraphNode).data.node.status)}`} />}
      </ReactFlow>
    </div>
  );
}

/** The chain of nodes that the end of the run depended on. */
function criticalPath(run: WorkflowRun): Set<string> {
  const known = new Map(run.nodes.map((node) => [node.name, node]));
  const before = new Map<string, RunNode[]>();
  for (const edge of run.edges) {
    const node = known.get(edge.from);
    if (node) before.set(edge.to, [...(before.get(edge.to) ?? []), node]);
  }
  const latest = (nodes: RunNode[]) => nodes.filter((node) => node.finished_at).sort((a, b) => (b.finished_at ?? "").localeCompare(a.finished_at ?? ""))[0];
  const path = new Set<string>();
  for (let node = latest(run.nodes); node && !path.has(node.name); node = latest(before.get(node.name) ?? [])) path.add(node.name);
  return path;
}

function Chart({ run, one }: { run: WorkflowRun; one: ExecutionDetail }) {
  const now = useNow();
  const path = useMemo(() => criticalPath(run), [run]);
  const begun = run.nodes.filter((node) => node.ready_at ?? node.started_at);
  const from = Date.parse(one.started_at ?? one.created_at);
  const end = one.finished_at ? Date.parse(one.finished_at) : now;
  const length = Math.max(1, end - from);
  const at = (time: string) => (100 * (Date.parse(time) - from)) / length;
  const span = (start: string, stop: string | null) => ({ left: `${at(start)}%`, width: `${Math.max(0.15, (stop ? at(stop) : 100) - at(start))}%` });
  if (!begun.length) return <Card><span className="muted">No node has started yet.</span></Card>;
  return (
    <Card flush title={<>From {clock(one.started_at ?? one.created_at)}, {duration(length / 1000)}</>} actions={<span className="small muted"><i className="critical-mark" /> critical path</span>}>
      <ul className="chart">
        {begun.map((node) => {
          const ready = node.ready_at ?? node.started_at ?? "";
          const bars = node.attempts.length ? node.attempts : [{ attempt: 1, outcome: null, started_at: node.started_at, ended_at: node.finished_at }];
          return (
            <li key={node.name} data-critical={path.has(node.name)}>
              <span className="chart-name"><Status state={node.status} bare /> {node.execution_id ? <Link className="cut" href={executionPath(node.execution_id)}>{node.name}</Link> : <span className="cut">{node.name}</span>}</span>
              <span className="chart-bars">
                <i className="fill-wait waits" style={span(ready, node.started_at ?? node.finished_at)} title={`waited ${duration(seconds(ready, node.started_at ?? now))}`} />
                {bars.map((bar) => bar.started_at && (
                  <i key={bar.attempt} className={`fill-${bar.outcome ? toneOf(bar.outcome) : toneOf(node.status)}`} style={span(bar.started_at, bar.ended_at)}
                    title={`try ${bar.attempt}: ${bar.outcome ?? node.status}, ${duration(seconds(bar.started_at, bar.ended_at ?? now))}`} />
                ))}
              </span>
              <span className="num small muted chart-time">{node.started_at ? duration(Math.max(0, seconds(node.started_at, node.finished_at ?? now))) : "–"}</span>
            </li>
          );
        })}
      </ul>
      {begun.length < run.nodes.length && <div className="body"><Notice tone="idle">{plural(run.nodes.length - begun.length, "node")} did not start.</Notice></div>}
    </Card>
  );
}
