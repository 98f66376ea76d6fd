/** A workflow's run: its graph with live states. */

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
import { count, duration, plural, seconds, useNow } from "../data/format.ts";
import { executionPath, Link, navigate, to } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { Search } from "../parts/controls.tsx";
import { Status, toneOf } from "../parts/status.tsx";
import { useWidth } from "../parts/table.tsx";
import { Gantt } from "./gantt.tsx";

const SIZE = { width: 208, height: 54 };
const LABELS_MAX = 60;
const MANY = 150;
const GAP = 18;
const FAR = 0.3;
const MINIMAP_FROM = 12;
const IS_STILL = matchMedia("(prefers-reduced-motion: reduce)").matches;

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
        <Gantt run={run} one={one} />
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

type Places = Map<string, { x: number; y: number }>;

/** Places of a large graph: columns by the longest way from a start, each in the order of the nodes before. */
function layoutMany(run: WorkflowRun, isNarrow: boolean): Places {
  const before = new Map<string, string[]>(run.nodes.map((node) => [node.name, []]));
  const after = new Map<string, string[]>(run.nodes.map((node) => [node.name, []]));
  for (const edge of run.edges) {
    before.get(edge.to)?.push(edge.from);
    after.get(edge.from)?.push(edge.to);
  }
  const open = new Map([...before].map(([name, names]) => [name, names.length]));
  const columns: string[][] = [];
  let ready = run.nodes.map((node) => node.name).filter((name) => !open.get(name));
  while (ready.length) {
    columns.push(ready);
    const next: string[] = [];
    for (const name of ready.flatMap((one) => after.get(one) ?? [])) {
      const left = (open.get(name) ?? 0) - 1;
      open.set(name, left);
      if (left === 0) next.push(name);
    }
    ready = next;
  }
  const row = new Map<string, number>();
  const mean = (name: string) => {
    const rows = (before.get(name) ?? []).map((one) => row.get(one) ?? 0);
    return rows.reduce((sum, one) => sum + one, 0) / Math.max(1, rows.length);
  };
  const places: Places = new Map();
  columns.forEach((names, at) => {
    const means = new Map(names.map((name) => [name, mean(name)]));
    names.sort((a, b) => (means.get(a) ?? 0) - (means.get(b) ?? 0));
    names.forEach((name, index) => {
      const line = index - (names.length - 1) / 2;
      row.set(name, line);
      places.set(
        name,
        isNarrow
          ? { x: line * (SIZE.width + GAP), y: at * (SIZE.height + 36) }
          : { x: at * (SIZE.width + 56), y: line * (SIZE.height + GAP) },
      );
    });
  });
  return places;
}

function layout(run: WorkflowRun, isNarrow: boolean): Places {
  if (run.nodes.length > MANY) return layoutMany(run, isNarrow);
  const graph = new dagre.graphlib.Graph();
  graph.setGraph(
    isNarrow ? { rankdir: "TB", nodesep: GAP, ranksep: 36 } : { rankdir: "LR", nodesep: GAP, ranksep: 56 },
  );
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
      animated: !IS_STILL && status.get(edge.to) === "running",
      markerEnd: { type: MarkerType.ArrowClosed, width: 14, height: 14 },
    }));
  }, [run.nodes, run.edges]);
  useEffect(() => {
    const found = nodes.filter((node) => node.data.isFound);
    if (found.length) void flow.fitView({ nodes: found, maxZoom: 1.1, duration: IS_STILL ? 0 : 200 });
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
