/** Log lines of all executions, searched by text, level and job. */

import { type Answer, useList } from "../data/api.ts";
import { clock, command, exact } from "../data/format.ts";
import { executionPath, Link, setFilters, useFilter } from "../data/router.tsx";
import { Button, Search, Segments } from "../parts/controls.tsx";
import { LEVELS, toneOfLevel } from "../parts/level.ts";
import { Empty, Page } from "../parts/page.tsx";
import { type Column, Listing } from "../parts/table.tsx";

type FoundLine = Answer<"get", "/logs">["items"][number];
const SPANS = [
  ["1h", "1 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
] as const;
const columns: Column<FoundLine>[] = [
  {
    name: "When",
    width: "104px",
    cell: (one) => (
      <time className="faint num small" dateTime={one.at} title={exact(one.at)}>
        {clock(one.at)}
      </time>
    ),
  },
  {
    name: "Level",
    width: "64px",
    from: 640,
    cell: (one) => <span className={`tone-${toneOfLevel(one.level)} small`}>{one.level.toLowerCase()}</span>,
  },
  {
    name: "Job",
    width: "minmax(80px, 0.6fr)",
    cell: (one) => (
      <Link className="strong cut" href={`${executionPath(one.execution_id)}/log`}>
        {one.job}
      </Link>
    ),
  },
  {
    name: "Message",
    width: "minmax(140px, 4fr)",
    cell: (one) => (
      <span className="cut mono small" title={one.message}>
        {one.message}
      </span>
    ),
  },
];

export default function LogsPage() {
  const [q, setQ] = useFilter("q");
  const [job, setJob] = useFilter("job");
  const [level, setLevel] = useFilter("level");
  const [since, setSince] = useFilter("since", "24h");
  const list = useList<FoundLine>("/logs", { q, job, level, since }, true, undefined, false);
  return (
    <Page title="Logs" cli={command("logs search", { job, level, since }, ...(q ? [q] : []))}>
      <div className="toolbar">
        <Search label="Text" placeholder="A part of the message" value={q} onChange={setQ} />
        <Search label="Job" placeholder="Job, exactly" value={job} onChange={setJob} />
        <select className="select" aria-label="Level" value={level} onChange={(event) => setLevel(event.target.value)}>
          <option value="">All levels</option>
          {LEVELS.map((one) => (
            <option key={one} value={one}>
              {one} and above
            </option>
          ))}
        </select>
        <Segments label="Time" value={since as "1h"} options={SPANS} onChange={setSince} />
      </div>
      <Listing
        label="Log lines"
        list={list}
        columns={columns}
        keyOf={(one) => `${one.execution_id} ${one.at} ${one.message.slice(0, 80)}`}
        href={(one) => `${executionPath(one.execution_id)}/log`}
        empty={
          q || job || level ? (
            <Empty icon="search" title="No line matches">
              <Button size="small" onClick={() => setFilters({ q: "", job: "", level: "" })}>
                Clear the filters
              </Button>
            </Empty>
          ) : (
            <Empty icon="terminal" title="Nothing was logged in this time">
              What tasks log or print is kept with their executions.
            </Empty>
          )
        }
      />
    </Page>
  );
}
