/** The columns of executions. */

import { type Execution } from "../data/api.ts";
import { duration, seconds, shortId, useNow } from "../data/format.ts";
import { executionPath, Link } from "../data/router.tsx";
import { errorOf } from "./failure.ts";
import { Status, Time } from "./status.tsx";
import { type Column } from "./table.tsx";
import { brief } from "./tree.tsx";

/** Runs as long as it runs: the clock ticks for those without an end. */
export function Ran({ one }: { one: Pick<Execution, "started_at" | "finished_at"> }) {
  const now = useNow();
  if (!one.started_at) return <span className="faint">–</span>;
  if (one.finished_at) return <>{duration(seconds(one.started_at, one.finished_at))}</>;
  return <>{duration(Math.max(0, Math.round(seconds(one.started_at, now))))}</>;
}

const argsOf = (one: Execution) => (one.args && Object.keys(one.args).length ? brief(one.args) : "");

export const columns: Column<Execution>[] = [
  { name: "Status", width: "104px", slim: true, cell: (one) => <Status state={one.status} /> },
  {
    name: "Job",
    width: "minmax(80px, 1.4fr)",
    cell: (one) => (
      <>
        <Link className="strong cut" title={one.job} href={executionPath(one.execution_id)}>
          {one.job}
        </Link>
        {one.node && <span className="faint cut">{one.node}</span>}
      </>
    ),
  },
  {
    name: "Details",
    width: "minmax(140px, 3fr)",
    from: 1080,
    cell: (one) =>
      one.error && one.status !== "succeeded" ? (
        <span className="cut tone-bad small">
          {errorOf(one).type}: {errorOf(one).message}
        </span>
      ) : (
        <span className="cut muted small mono">{one.note ?? argsOf(one)}</span>
      ),
  },
  {
    name: "Queue",
    width: "minmax(80px, 0.7fr)",
    from: 1280,
    cell: (one) => <span className="cut muted">{one.queue}</span>,
  },
  { name: "Try", width: "34px", from: 1280, right: true, cell: (one) => <span className="muted">{one.attempt}</span> },
  {
    name: "Worker",
    width: "84px",
    from: 1280,
    cell: (one) => (
      <span className="faint mono small" title={one.worker_id ?? ""}>
        {one.worker_id ? shortId(one.worker_id) : ""}
      </span>
    ),
  },
  {
    name: "Started",
    width: "84px",
    from: 900,
    right: true,
    sort: "started",
    cell: (one) => (
      <span className="muted">
        <Time at={one.started_at} />
      </span>
    ),
  },
  {
    name: "Ended",
    width: "84px",
    from: 900,
    right: true,
    sort: "ended",
    cell: (one) => (
      <span className="muted">
        <Time at={one.finished_at} />
      </span>
    ),
  },
  { name: "Ran", width: "76px", from: 640, right: true, sort: "duration", cell: (one) => <Ran one={one} /> },
  {
    name: "Created",
    width: "84px",
    right: true,
    sort: "created",
    cell: (one) => (
      <span className="muted">
        <Time at={one.created_at} />
      </span>
    ),
  },
  {
    name: "Id",
    width: "84px",
    from: 1500,
    cell: (one) => (
      <span className="faint mono small" title={one.execution_id}>
        {shortId(one.execution_id)}
      </span>
    ),
  },
];

/** Columns that are there for those who ask for them. */
export const EXTRA = ["Worker", "Started", "Ended"];
export const usual = columns.filter((one) => !EXTRA.includes(one.name));

const ID: Column<Execution> = {
  name: "Execution",
  width: "92px",
  cell: (one) => (
    <Link
      className="mono small"
      aria-label={`${one.job} ${shortId(one.execution_id)}`}
      title={one.execution_id}
      href={executionPath(one.execution_id)}
    >
      {shortId(one.execution_id)}
    </Link>
  ),
};

/** Of a list of one job: its name is said once. */
export const ofOneJob = columns.flatMap((one) =>
  one.name === "Job" ? [ID] : ["Queue", "Id", "Ended"].includes(one.name) ? [] : [one],
);
