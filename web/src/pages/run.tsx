/** A workflow's run: its graph with live states, and a chart of its nodes over time. */

import dagre from "@dagrejs/dagre";
import {
  Background,
  Controls,
  type Edge,
  Handle,
  MarkerType,
  MiniMap,
  type Node,
  type NodeProps,
  Position,
  ReactFlow,
  ReactFlowProvider,
  useReactFlow,
  useStore as useFlow,
} from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { type ExecutionDetail, type RunNode, useChange, type WorkflowRun } from "../data/api.ts";
import { clock, count, duration, plural, seconds, useNow } from "../data/format.ts";
import { executionPath, Link, navigate, to } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { Search } from "../parts/controls.tsx";
import { Card } from "../parts/page.tsx";
import { Status, toneOf } from "../parts/status.tsx";
import { useWidth } from "../parts/table.tsx";

const SIZE = { width: 208, height: 54 };
const LABELS_MAX = 60;
const MANY = 150;
const FAR = 0.3;
const MINIMAP_FROM = 12;

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
      {view === "graph" ? (
        <ReactFlowProvider>
          <Graph one={one} run={run} />
        </ReactFlowProvider>
      ) : (
        <Chart run={run} one={one} />
      )}
    </>
  );
}

/** Run again from a node: those before it keep their results. */
function Restart({ one }: { one: ExecutionDetail }) {
  const can = useCan();
  const retry = useChange("post", "/executions/{id}/retry", () => "The run goes on");
  if (one.finished_at === null || !can("retry")) return null;
  const run = (from: string) =>
    retry.mutate(
      { path: { id: one.execution_id }, body: { from, force: one.status === "succeeded" } },
      {
        onSuccess: (answer) => navigate(`${executionPath(answer.execution_id)}/graph`),
      },
    );
  return (
    <select
      className="select"
      aria-label="Run again from a node"
      value=""
      disabled={retry.isPending}
      onChange={(event) => run(event.target.value)}
    >
      <option value="">Run again from…</option>
      {one.workflow?.nodes.map((node) => (
        <option key={node.name} value={node.name}>
          {node.name}
        </option>
      ))}
    </select>
  );
}

type GraphNode = Node<{ node: RunNode; isFound: boolean; run: string }>;

function layout(run: WorkflowRun, isNarrow: boolean): Map<string, { x: number; y: number }> {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph(isNarrow ? { rankdir: "TB", nodesep: 18, ranksep: 36 } : { rankdir: "LR", nodesep: 18, ranksep: 56 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of run.nodes) graph.setNode(node.name, { ...SIZE });
  for (const edge of run.edges) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  return new Map(
    run.nodes.map((node) => {
      const { x, y } = graph.node(node.name);
      return [node.name, { x: x - SIZE.width / 2, y: y - SIZE.height / 2 }];
    }),
  );
}

const ORIGIN = { x: 0, y: 0 };
const NODE_TYPES = { run: memo(Box) };

/** The time that a node has run. Only this is drawn again each second. */
function Ticking({ since }: { since: string }) {
  return <>{duration(Math.max(0, Math.round(seconds(since, useNow()))))}</>;
}

function Box({ data, sourcePosition = Position.Right, targetPosition = Position.Left }: NodeProps<GraphNode>) {
  const { node, isFound, run } = data;
  // From afar no text can be read: the whole node has the colour of its state.
  const isFar = useFlow((flow) => flow.transform[2] < FAR);
  const href = node.execution_id ? executionPath(node.execution_id) : to(`${executionPath(run)}/nodes`);
  const isRunning = node.started_at !== null && node.finished_at === null;
  const ran =
    node.started_at && node.finished_at
      ? duration(Math.max(0, seconds(node.started_at, node.finished_at)))
      : node.note.replaceAll("_", " ");
  return (
    <Link
      href={href}
      className={`graph-node edge-${toneOf(node.status)} ${isFar ? `fill-${toneOf(node.status)}` : ""}`}
      data-found={isFound}
      title={node.note || node.status}
    >
      <Handle type="target" position={targetPosition} isConnectable={false} />
      <span className="row">
        <Status state={node.status} bare />
        <b className="cut">{node.name}</b>
      </span>
      <span className="small muted cut">
        {node.items ? (
          `${count(node.items.ended)} of ${plural(node.items.total, "item")}${node.items.failed ? `, ${node.items.failed} failed` : ""}`
        ) : isRunning ? (
          <Ticking since={node.started_at ?? ""} />
        ) : (
          ran
        )}
      </span>
      <Handle type="source" position={sourcePosition} isConnectable={false} />
    </Link>
  );
}

function Graph({ one, run }: { one: ExecutionDetail; run: WorkflowRun }) {
  const [text, setText] = useState("");
  const flow = useReactFlow();
  const width = useWidth();
  const isNarrow = width < 700;
  const shape = `${run.nodes.map((node) => node.name).join()}|${run.edges.length}`;
  // biome-ignore lint: the layout follows the shape alone, so that states never move a node
  const places = useMemo(() => layout(run, isNarrow), [shape, isNarrow]);
  const word = text.toLowerCase();
  // A node that has not changed is the same object as before: the graph draws the others only.
  const before = useRef(new Map<string, GraphNode>());
  const nodes = useMemo(() => {
    const made = run.nodes.map((node): GraphNode => {
      const isFound = word !== "" && node.name.toLowerCase().includes(word);
      const position = places.get(node.name) ?? ORIGIN;
      const known = before.current.get(node.name);
      if (known?.data.node === node && known.data.isFound === isFound && known.position === position) return known;
      return {
        id: node.name,
        type: "run",
        position,
        ...SIZE,
        draggable: false,
        connectable: false,
        focusable: false,
        sourcePosition: isNarrow ? Position.Bottom : Position.Right,
        targetPosition: isNarrow ? Position.Top : Position.Left,
        data: { node, run: one.execution_id, isFound },
      };
    });
    before.current = new Map(made.map((node) => [node.id, node]));
    return made;
  }, [run.nodes, word, places, isNarrow, one.execution_id]);
  const edges = useMemo(() => {
    const status = new Map(run.nodes.map((node) => [node.name, node.status]));
    return run.edges.map((edge): Edge => ({
      id: `${edge.from} ${edge.to}`,
      source: edge.from,
      target: edge.to,
      focusable: false,
      label: run.nodes.length <= LABELS_MAX ? (edge.when ?? undefined) : undefined,
      animated: status.get(edge.to) === "running",
      markerEnd: { type: MarkerType.ArrowClosed, width: 14, height: 14 },
    }));
  }, [run.nodes, run.edges]);
  useEffect(() => {
    const found = nodes.filter((node) => node.data.isFound);
    if (found.length) void flow.fitView({ nodes: found, maxZoom: 1.1, duration: 200 });
  }, [text]);
  return (
    <div className="graph fill">
      <div className="graph-search">
        <Search label="Find a node" placeholder="Find a node" value={text} onChange={setText} />
      </div>
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={NODE_TYPES}
        fitView
        fitViewOptions={{ maxZoom: 1.1, padding: 0.15 }}
        minZoom={0.05}
        onlyRenderVisibleElements={run.nodes.length > MANY}
        nodesDraggable={false}
        nodesConnectable={false}
        elementsSelectable={false}
        proOptions={{ hideAttribution: false }}
      >
        <Background gap={22} />
        <Controls showInteractive={false} />
        {width > 900 && run.nodes.length >= MINIMAP_FROM && (
          <MiniMap
            style={{ width: 160, height: 110 }}
            pannable
            zoomable
            nodeClassName={(node) => `fill-${toneOf((node as GraphNode).data.node.status)}`}
          />
        )}
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
  const latest = (nodes: RunNode[]) =>
    nodes
      .filter((node) => node.finished_at)
      .sort((a, b) => (b.finished_at ?? "").localeCompare(a.finished_at ?? ""))[0];
  const path = new Set<string>();
  for (let node = latest(run.nodes); node && !path.has(node.name); node = latest(before.get(node.name) ?? []))
    path.add(node.name);
  return path;
}

/** The moment since which a started node waits: for an event, a retry, or its time. */
const pauseOf = (node: RunNode) =>
  node.finished_at === null && node.status !== "running" ? (node.attempts.at(-1)?.ended_at ?? null) : null;

function Chart({ run, one }: { run: WorkflowRun; one: ExecutionDetail }) {
  const now = useNow();
  const path = useMemo(() => criticalPath(run), [run]);
  const begun = run.nodes.filter((node) => node.ready_at ?? node.started_at);
  const from = Date.parse(one.started_at ?? one.created_at);
  const end = one.finished_at ? Date.parse(one.finished_at) : now;
  const length = Math.max(1, end - from);
  const at = (time: string) => (100 * (Date.parse(time) - from)) / length;
  const span = (start: string, stop: string | null) => ({
    left: `${at(start)}%`,
    width: `${Math.max(0.15, (stop ? at(stop) : 100) - at(start))}%`,
  });
  if (!begun.length)
    return (
      <Card>
        <span className="muted">No node has started yet.</span>
      </Card>
    );
  return (
    <Card
      flush
      title={
        <>
          From {clock(one.started_at ?? one.created_at)}, {duration(length / 1000)}
        </>
      }
      actions={
        <span className="small muted">
          <i className="critical-mark" /> critical path
        </span>
      }
    >
      <ul className="chart">
        <li className="chart-axis small faint num" aria-hidden="true">
          <span />
          <span className="chart-ticks">
            {[0, 0.2, 0.4, 0.6, 0.8].map((part) => (
              <span key={part}>{part ? duration((part * length) / 1000) : "0"}</span>
            ))}
          </span>
          <span className="chart-time">ran</span>
        </li>
        {begun.map((node) => {
          const ready = node.ready_at ?? node.started_at ?? "";
          const bars = node.attempts.length
            ? node.attempts
            : [{ attempt: 1, outcome: null, started_at: node.started_at, ended_at: node.finished_at }];
          return (
            <li key={node.name} data-critical={path.has(node.name)}>
              <span className="chart-name">
                <Status state={node.status} bare />{" "}
                {node.execution_id ? (
                  <Link className="cut" href={executionPath(node.execution_id)}>
                    {node.name}
                  </Link>
                ) : (
                  <span className="cut">{node.name}</span>
                )}
              </span>
              <span className="chart-bars">
                <i
                  className="fill-wait waits"
                  style={span(ready, node.started_at ?? node.finished_at)}
                  title={`waited ${duration(seconds(ready, node.started_at ?? now))}`}
                />
                {bars.map(
                  (bar) =>
                    bar.started_at && (
                      <i
                        key={bar.attempt}
                        className={`fill-${bar.outcome ? toneOf(bar.outcome) : toneOf(node.status)}`}
                        style={span(bar.started_at, bar.ended_at)}
                        title={`try ${bar.attempt}: ${bar.outcome ?? node.status}, ${duration(seconds(bar.started_at, bar.ended_at ?? now))}`}
                      />
                    ),
                )}
                {pauseOf(node) && (
                  <i
                    className="fill-wait waits"
                    style={span(pauseOf(node) ?? "", node.finished_at)}
                    title={node.note.replaceAll("_", " ") || node.status}
                  />
                )}
              </span>
              <span className="num small muted chart-time">
                {node.started_at ? duration(Math.max(0, seconds(node.started_at, node.finished_at ?? now))) : "–"}
              </span>
            </li>
          );
        })}
      </ul>
      {begun.length < run.nodes.length && (
        <p className="chart-note small muted">{plural(run.nodes.length - begun.length, "node")} did not start.</p>
      )}
    </Card>
  );
}
