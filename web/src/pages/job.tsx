/** One job: its runs, schedules and versions, and what can be done with it. */

import { useState } from "react";
import { type Execution, type Job, type JobVersion, useChange, useGet, useList } from "../data/api.ts";
import { command, plural, short } from "../data/format.ts";
import { executionPath, jobPath, Link, navigate, searchPath, setFilters, useAddress } from "../data/router.tsx";
import { useCan, useIsAtLeast } from "../data/session.ts";
import { ArgsFields, useArgs } from "../parts/args.tsx";
import { Button, Field, Segments, TextField } from "../parts/controls.tsx";
import { Confirm, Dialog } from "../parts/dialog.tsx";
import { ofOneJob } from "../parts/execution-columns.tsx";
import { Card, Empty, Fact, Notice, Page, Pending, Tabs } from "../parts/page.tsx";
import { kindOf, RunBars } from "../parts/run-bars.tsx";
import { SeriesCharts } from "../parts/series.tsx";
import { Status, Time } from "../parts/status.tsx";
import { Listing } from "../parts/table.tsx";
import { brief, Tree } from "../parts/tree.tsx";
import { JobWhy } from "../parts/why.tsx";
import { Hooks } from "./hooks.tsx";
import { SetOptions } from "./job-options.tsx";

export default function JobPage({ name, tab }: { name: string; tab: string }) {
  const found = useGet("/jobs/{job}", { path: { job: name }, live: true });
  const isAdmin = useIsAtLeast("admin");
  const job = found.data;
  const crumbs: [string, string][] = [["Jobs", "/jobs"]];
  if (!job || job.name !== name)
    return (
      <Page title={name} crumbs={crumbs}>
        <Pending error={found.error} retry={() => void found.refetch()} lines={8} />
      </Page>
    );
  const base = jobPath(name);
  return (
    <Page
      crumbs={crumbs}
      cli={command(
        { schedules: "jobs schedules", versions: "jobs versions", why: "jobs why" }[tab] ?? "jobs show",
        {},
        name,
      )}
      title={
        <div className="row wrap">
          <h1 className="cut">{name}</h1>
          <Status state={job.status} />
        </div>
      }
      actions={<Actions job={job} />}
    >
      {job.description && <p className="muted">{job.description}</p>}
      {job.paused_at && (
        <Notice tone="warn">
          Its schedules are paused since <Time at={job.paused_at} />
          {job.pause_note && <>: {job.pause_note}</>}
        </Notice>
      )}
      {job.waits_for
        .filter((one) => !one.is_met)
        .map((one) => (
          <Notice key={one.job} tone="wait">
            Waits for{" "}
            <Link className="strong" href={jobPath(one.job)}>
              {one.job}
            </Link>
            : {one.detail}
          </Notice>
        ))}
      <Tabs
        at={
          {
            "": "Runs",
            definition: "Definition",
            schedules: "Schedules",
            versions: "Versions",
            webhooks: "Webhooks",
            why: "Why",
          }[tab] ?? ""
        }
        tabs={[
          ["Runs", base],
          ["Definition", `${base}/definition`],
          [
            "Schedules",
            `${base}/schedules`,
            job.schedules.length ? String(job.schedules.length) + (job.has_more_schedules ? "+" : "") : undefined,
          ],
          ["Versions", `${base}/versions`, String(job.version)],
          ...(isAdmin ? [["Webhooks", `${base}/webhooks`] as [string, string]] : []),
          ["Why", `${base}/why`],
        ]}
      />
      {tab === "" && <Runs job={job} />}
      {tab === "definition" && <Definition job={job} />}
      {tab === "schedules" && <Schedules job={job} />}
      {tab === "versions" && <Versions job={job} />}
      {tab === "webhooks" && <Hooks job={name} />}
      {tab === "why" && <JobWhy name={name} />}
    </Page>
  );
}

function Runs({ job }: { job: Job }) {
  const list = useList<Execution>("/executions", { job: job.name });
  return (
    <>
      <Card>
        <dl className="grid facts">
          <Fact name="Last runs">
            <span className="bars-large">
              <RunBars job={job.name} mark={job.last_execution?.execution_id} number={30} />
            </span>
          </Fact>
          <Fact name="Next run">
            <Time at={job.next_run_at} />
          </Fact>
          <Fact name="Schedule">{job.schedules[0]?.description ?? "by hand or by code"}</Fact>
          <Fact name="Queue">
            <Link href={searchPath({ queue: job.queue })}>{job.queue}</Link>
          </Fact>
          {job.user_id && <Fact name="Owner">{job.user_id}</Fact>}
        </dl>
      </Card>
      <SeriesCharts job={job.name} />
      <Listing
        label={`Runs of ${job.name}`}
        list={list}
        columns={ofOneJob}
        keyOf={(one) => one.execution_id}
        href={(one) => executionPath(one.execution_id)}
        empty={
          <Empty icon="executions" title="It has not run yet" command={`daybell jobs trigger ${job.name} --wait`} />
        }
      />
    </>
  );
}

const hasSome = (value: unknown) => typeof value === "object" && value !== null && Object.keys(value).length > 0;

function Definition({ job }: { job: Job }) {
  return (
    <>
      <Card>
        <dl className="grid facts">
          <Fact name="Kind">{kindOf(job)}</Fact>
          {job.task && (
            <Fact name="Task">
              <span className="mono">{job.task}</span>
            </Fact>
          )}
          <Fact name="Version">
            {job.version}, by {job.author}
          </Fact>
          <Fact name="Changed">
            <Time at={job.created_at} as="short" />
          </Fact>
          {job.dependencies.length > 0 && (
            <Fact name="Dependencies">
              {job.dependencies.map((one) => (
                <Link key={one} className="chip" href={jobPath(one)}>
                  {one}
                </Link>
              ))}
            </Fact>
          )}
          <SetOptions job={job} />
        </dl>
      </Card>
      <div className="grid two">
        {hasSome(job.args) && (
          <Card title="Arguments">
            <Tree value={job.args} />
          </Card>
        )}
        {hasSome(job.workflow ?? job.settings) && (
          <Card title={job.workflow ? "Graph" : "Settings"}>
            <Tree value={job.workflow ?? job.settings} />
          </Card>
        )}
        {hasSome(job.signature) && (
          <Card title="Signature">
            <Tree value={job.signature} />
          </Card>
        )}
      </div>
    </>
  );
}

function Schedules({ job }: { job: Job }) {
  const list = useList<Job["schedules"][number]>("/jobs/{job}/schedules", {}, true, { job: job.name });
  return (
    <Listing
      label="Schedules"
      list={list}
      keyOf={(one) => one.schedule_id}
      empty={
        <Empty
          icon="calendar"
          title="It has no schedule"
          command={`daybell jobs update ${job.name} --cron "0 9 * * mon-fri"`}
        />
      }
      columns={[
        {
          name: "When",
          width: "minmax(160px, 2fr)",
          cell: (one) => <span className="cut strong">{one.description ?? brief(one.rule)}</span>,
        },
        {
          name: "Name",
          width: "minmax(80px, 1fr)",
          from: 900,
          cell: (one) => <span className="cut muted">{one.name || (one.is_declared ? "declared" : "")}</span>,
        },
        {
          name: "Next",
          width: "92px",
          right: true,
          cell: (one) => (one.is_paused ? <Status state="paused" /> : <Time at={one.next_run_at} />),
        },
        {
          name: "Last success",
          width: "100px",
          from: 700,
          right: true,
          cell: (one) => (
            <span className="muted">
              <Time at={one.last_success_at} />
            </span>
          ),
        },
        { name: "Fired", width: "64px", from: 700, right: true, cell: (one) => one.fired },
        { name: "Skipped", width: "64px", from: 1000, right: true, cell: (one) => one.skipped },
        { name: "Missed", width: "64px", from: 1000, right: true, cell: (one) => one.missed },
      ]}
    />
  );
}

function Versions({ job }: { job: Job }) {
  const list = useList<JobVersion>("/jobs/{job}/versions", { limit: 50 }, true, { job: job.name });
  const [back, setBack] = useState<number | null>(null);
  const rollback = useChange(
    "post",
    "/jobs/{job}/rollback",
    (answer) => `Version ${answer.version} is the current one`,
  );
  const can = useCan();
  if (list.isPending) return <Pending error={list.error} />;
  return (
    <Card flush>
      <ul className="list versions">
        {list.rows.map((one) => (
          <li key={one.version} className="step">
            <b className="num version">{one.version}</b>
            <span className="grow stack">
              <span className="muted small">
                {one.author}, {short(one.created_at)}
              </span>
              {one.changes.map((change) => (
                <span key={change.field} className="diff small">
                  <b>{change.field}</b>{" "}
                  {change.before !== null && <del className="mono">{brief(change.before, 300)}</del>}{" "}
                  {change.after !== null && <ins className="mono">{brief(change.after, 300)}</ins>}
                </span>
              ))}
            </span>
            {one.is_current ? (
              <span className="chip">current</span>
            ) : (
              can("define") && (
                <Button size="small" onClick={() => setBack(one.version)}>
                  Roll back
                </Button>
              )
            )}
          </li>
        ))}
      </ul>
      {back !== null && (
        <Confirm
          title={`Make version ${back} the current one?`}
          submit="Roll back"
          busy={rollback.isPending}
          onClose={() => setBack(null)}
          onConfirm={() =>
            rollback.mutate({ path: { job: job.name }, body: { version: back } }, { onSettled: () => setBack(null) })
          }
        >
          It becomes a new version, so this can be undone. Executions that are on their way keep the version that they
          have.
        </Confirm>
      )}
    </Card>
  );
}

function Actions({ job }: { job: Job }) {
  const can = useCan();
  const { query } = useAddress();
  // In the address, so that the palette can ask as well.
  const asks = query.get("do");
  const setAsks = (what: string) => setFilters({ do: what });
  const close = () => setAsks("");
  const resume = useChange("post", "/jobs/{job}/resume", () => "Its schedules fire again");
  const remove = useChange(
    "delete",
    "/jobs/{job}",
    (answer) => `Deleted; ${plural(answer.cancelled, "execution")} cancelled`,
  );
  const path = { job: job.name };
  if (job.status === "deleted") return null;
  return (
    <>
      {can("pause") &&
        job.schedules.length > 0 &&
        (job.paused_at ? (
          <Button icon="play" disabled={resume.isPending} onClick={() => resume.mutate({ path, body: {} })}>
            Resume
          </Button>
        ) : (
          <Button icon="pause" onClick={() => setAsks("pause")}>
            Pause
          </Button>
        ))}
      {can("backfill") && job.schedules.length > 0 && (
        <Button icon="calendar" onClick={() => setAsks("backfill")}>
          Backfill
        </Button>
      )}
      {can("define") && (
        <Button icon="trash" kind="danger" label={`Delete ${job.name}`} onClick={() => setAsks("delete")} />
      )}
      {can("define") && (
        <Button icon="edit" onClick={() => navigate(`${jobPath(job.name)}/edit`)}>
          Edit
        </Button>
      )}
      {can("trigger") && (
        <Button icon="play" kind="primary" onClick={() => setAsks("trigger")}>
          Trigger
        </Button>
      )}
      {asks === "trigger" && can("trigger") && <TriggerDialog job={job} onClose={close} />}
      {asks === "pause" && can("pause") && <PauseDialog job={job} onClose={close} />}
      {asks === "backfill" && can("backfill") && <BackfillDialog job={job} onClose={close} />}
      {asks === "delete" && can("define") && (
        <Confirm
          title={`Delete ${job.name}?`}
          submit="Delete it"
          busy={remove.isPending}
          onClose={close}
          onConfirm={() => remove.mutate({ path }, { onSuccess: () => navigate("/jobs"), onSettled: close })}
        >
          It fires no more, and its unfinished executions are cancelled. Its history stays.
        </Confirm>
      )}
    </>
  );
}

function TriggerDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const args = useArgs(job);
  const [delay, setDelay] = useState("");
  const [priority, setPriority] = useState("");
  const trigger = useChange("post", "/jobs/{job}/trigger", (answer) =>
    answer.created ? "Triggered" : "It exists already",
  );
  const run = () => {
    if (!args.value) return;
    const body = {
      ...(Object.keys(args.value).length ? { args: args.value } : {}),
      ...(delay && { delay }),
      ...(priority && { priority }),
    };
    trigger.mutate(
      { path: { job: job.name }, body },
      {
        onSuccess: (answer) => {
          onClose();
          navigate(executionPath(answer.execution_id));
        },
      },
    );
  };
  return (
    <Dialog
      title={`Trigger ${job.name}`}
      submit={delay ? "Schedule it" : "Run it now"}
      busy={trigger.isPending}
      disabled={!args.value}
      onClose={onClose}
      onSubmit={run}
    >
      <ArgsFields args={args} />
      <div className="grid two tight">
        <TextField label="Delay" hint="Such as 10m or 2h. Empty: now" value={delay} onChange={setDelay} />
        <Field label="Priority">
          {(id) => (
            <select id={id} className="select" value={priority} onChange={(event) => setPriority(event.target.value)}>
              <option value="">as the job: {job.priority}</option>
              {["critical", "high", "normal", "low"].map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          )}
        </Field>
      </div>
      {trigger.error && <Notice>{trigger.error.message}</Notice>}
    </Dialog>
  );
}

function PauseDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const [note, setNote] = useState("");
  const pause = useChange("post", "/jobs/{job}/pause", () => "Its schedules are paused", "/jobs/{job}/resume");
  return (
    <Dialog
      title={`Pause the schedules of ${job.name}`}
      submit="Pause"
      busy={pause.isPending}
      onClose={onClose}
      onSubmit={() => pause.mutate({ path: { job: job.name }, body: { note } }, { onSuccess: onClose })}
    >
      <p className="muted">What runs goes on, and it can still be triggered.</p>
      <TextField label="Note" hint="For those who find it paused" value={note} maxLength={1000} onChange={setNote} />
    </Dialog>
  );
}

const LOCAL = (at: Date) => new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

function BackfillDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const [since, setSince] = useState(() => LOCAL(new Date(Date.now() - 86_400_000)));
  const [until, setUntil] = useState(() => LOCAL(new Date()));
  const [only, setOnly] = useState<"missing" | "failed" | "all">("missing");
  const preview = useChange("post", "/jobs/{job}/backfill");
  const backfill = useChange("post", "/jobs/{job}/backfill", (answer) => `${plural(answer.created, "run")} enqueued`);
  const body = { since: new Date(since).toISOString(), until: new Date(until).toISOString(), only };
  const path = { job: job.name };
  const seen = preview.data;
  const reset =
    <T,>(set: (value: T) => void) =>
    (value: T) => {
      set(value);
      preview.reset();
    };
  return (
    <Dialog
      title={`Backfill ${job.name}`}
      submit={seen ? `Run ${plural(seen.ticks, "time")}` : "Preview"}
      busy={preview.isPending || backfill.isPending}
      disabled={seen?.ticks === 0}
      onClose={onClose}
      onSubmit={() =>
        seen
          ? backfill.mutate({ path, body }, { onSuccess: onClose })
          : preview.mutate({ path, body: { ...body, dry_run: true } })
      }
    >
      <div className="grid two tight">
        <TextField label="Since" type="datetime-local" required value={since} onChange={reset(setSince)} />
        <TextField label="Until" type="datetime-local" required value={until} onChange={reset(setUntil)} />
      </div>
      <Segments
        label="Which times"
        value={only}
        onChange={reset(setOnly)}
        options={[
          ["missing", "Missing"],
          ["failed", "Failed"],
          ["all", "All"],
        ]}
      />
      {seen && (
        <Notice tone={seen.ticks ? "run" : "idle"}>
          {seen.ticks ? (
            <>{plural(seen.ticks, "run")} would be enqueued:</>
          ) : (
            "There is nothing to run for these times."
          )}
          <ul className="plain small">
            {seen.items.slice(0, 8).map((one) => (
              <li key={one.scheduled_for + one.schedule}>
                <Time at={one.scheduled_for} as="short" /> <span className="faint">{one.schedule}</span>
              </li>
            ))}
          </ul>
          {seen.ticks > 8 && <span className="faint small">and {seen.ticks - 8} more</span>}
        </Notice>
      )}
    </Dialog>
  );
}
