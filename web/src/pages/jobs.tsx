/** The list of jobs, each with its last runs as bars. */

import { type Job, useList } from "../data/api.ts";
import { command } from "../data/format.ts";
import { jobPath, Link, navigate, setFilters, useFilter } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { Button, Search } from "../parts/controls.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { kindOf, RunBars } from "../parts/run-bars.tsx";
import { Status, Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";

const WORDS = ["running", "pending", "paused", "scheduled", "succeeded", "dead", "manual", "deleted"];
const columns: Column<Job>[] = [
  {
    name: "Job",
    width: "minmax(150px, 1.6fr)",
    cell: (one) => (
      <Link className="strong cut" href={jobPath(one.name)} title={one.description}>
        {one.name}
      </Link>
    ),
  },
  { name: "Status", width: "104px", cell: (one) => <Status state={one.status} /> },
  {
    name: "Last runs",
    width: "152px",
    from: 900,
    cell: (one) => <RunBars job={one.name} mark={one.last_execution?.execution_id} />,
  },
  {
    name: "Schedule",
    width: "minmax(120px, 1.6fr)",
    from: 1080,
    cell: (one) => (
      <span className="cut muted small" title={one.schedules[0]?.description ?? undefined}>
        {one.schedules.length ? one.schedules[0]?.description : "by hand or by code"}
        {one.schedules.length > 1 && ` +${one.schedules.length - 1}`}
      </span>
    ),
  },
  { name: "Next run", width: "84px", from: 640, right: true, cell: (one) => <Time at={one.next_run_at} /> },
  {
    name: "Last run",
    width: "84px",
    from: 760,
    right: true,
    cell: (one) => (
      <span className="muted">
        <Time at={one.last_execution?.started_at ?? null} />
      </span>
    ),
  },
  { name: "Kind", width: "80px", from: 1280, cell: (one) => <span className="muted">{kindOf(one)}</span> },
  {
    name: "Queue",
    width: "minmax(70px, 0.6fr)",
    from: 1380,
    cell: (one) => <span className="muted cut">{one.queue}</span>,
  },
  {
    name: "Owner",
    width: "minmax(60px, 0.5fr)",
    from: 1600,
    cell: (one) => <span className="muted cut">{one.user_id ?? ""}</span>,
  },
];

export function JobsPage() {
  const [q, setQ] = useFilter("q");
  const [status, setStatus] = useFilter("status");
  const list = useList<Job>("/jobs", { q, status, limit: 50 });
  const can = useCan();
  return (
    <Page
      title="Jobs"
      cli={command("jobs list", { search: q, status })}
      actions={
        can("define") && (
          <Button kind="primary" icon="plus" onClick={() => navigate("/jobs/new")}>
            New job
          </Button>
        )
      }
    >
      <div className="toolbar">
        <Search label="Search jobs" placeholder="Find a job by name, description or label" value={q} onChange={setQ} />
        <select
          className="select"
          aria-label="Status"
          value={status}
          onChange={(event) => setStatus(event.target.value)}
        >
          <option value="">All states</option>
          {WORDS.map((one) => (
            <option key={one} value={one}>
              {one}
            </option>
          ))}
        </select>
      </div>
      <Listing
        key={`${q} ${status}`}
        label="Jobs"
        list={list}
        columns={columns}
        keyOf={(one) => one.job_id}
        href={(one) => jobPath(one.name)}
        height={40}
        empty={
          q || status ? (
            <Empty icon="search" title="No job matches">
              <Button size="small" onClick={() => setFilters({ q: "", status: "" })}>
                Clear the filters
              </Button>
            </Empty>
          ) : (
            <Empty
              icon="jobs"
              title="There is no job yet"
              command={'daybell jobs create disk --every 1h --command "df -h ."'}
            >
              Write a task in Python, or create a job without code.
            </Empty>
          )
        }
      />
    </Page>
  );
}
