/** One execution: where its time went, what it was given, said and returned, and what can be done. */

import { lazy, Suspense, useState } from "react";
import { type Execution, type ExecutionDetail, useChange, useGet, useList } from "../data/api.ts";
import { clock, command, count, duration, exact, readJson, seconds, short } from "../data/format.ts";
import { executionPath, jobPath, Link, navigate, searchPath } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { ArgsFields, useArgs } from "../parts/args.tsx";
import { Button, Copy, TextField } from "../parts/controls.tsx";
import { Confirm, Dialog } from "../parts/dialog.tsx";
import { usual as columns } from "../parts/execution-columns.tsx";
import { errorOf } from "../parts/failure.ts";
import { LogView } from "../parts/log.tsx";
import { Card, Empty, Fact, Notice, Page, Pending, Skeleton, Tabs } from "../parts/page.tsx";
import { Status, Time, Told } from "../parts/status.tsx";
import { Listing } from "../parts/table.tsx";
import { TimelineBar } from "../parts/timeline.tsx";
import { Tree } from "../parts/tree.tsx";
import { Remedies } from "../parts/why.tsx";
import { Compare } from "./compare.tsx";

const RunView = lazy(() => import("./run.tsx"));
const APPROVAL = "daybell.approval.";
/** Remedies that have buttons of their own on this page. */
const HAVE_BUTTONS = /\/(approve|signal|cancel)$/;

export default function ExecutionPage({ id, tab }: { id: string; tab: string }) {
  const [every, setEvery] = useState<number | false>(2000);
  const found = useGet("/executions/{id}", { path: { id }, every, live: true });
  const one = found.data;
  const isOver = one?.finished_at != null;
  if (isOver && every) setEvery(false);
  if (one && !isOver && !every) setEvery(2000);
  if (!one || one.execution_id !== id)
    return (
      <Page title={`Execution ${id.slice(-8)}`} crumbs={[["Executions", "/executions"]]}>
        <Pending error={found.error} retry={() => void found.refetch()} lines={8} />
      </Page>
    );
  const base = executionPath(id);
  const tabs: [string, string, string?][] = [["Details", base]];
  if (one.workflow) tabs.push(["Graph", `${base}/graph`], ["Chart", `${base}/chart`]);
  if (one.steps.length) tabs.push(["Steps", `${base}/steps`, String(one.steps.length)]);
  if (!one.workflow) tabs.push(["Log", `${base}/log`]);
  tabs.push(["History", `${base}/history`]);
  if (one.workflow) tabs.push(["Nodes", `${base}/nodes`]);
  tabs.push(["Compare", `${base}/compare`]);
  const names: Record<string, string> = {
    "": "Details",
    graph: "Graph",
    chart: "Chart",
    steps: "Steps",
    log: "Log",
    history: "History",
    nodes: "Nodes",
    compare: "Compare",
  };
  return (
    <Page
      crumbs={[
        ["Executions", "/executions"],
        [one.job, jobPath(one.job)],
      ]}
      cli={command({ log: "executions logs" }[tab] ?? "executions show", {}, id)}
      title={
        <div className="row wrap">
          <h1 className="cut">
            {one.job}
            {one.node && <span className="muted"> · {one.node}</span>}
          </h1>
          <Status state={one.status} />
          <span className="faint mono small" title={id}>
            {id.slice(-8)}
          </span>
          <Copy text={id} label="Copy the id" />
        </div>
      }
      actions={<Actions one={one} />}
    >
      <WhyNotice one={one} />
      <Card>
        <TimelineBar one={one} />
      </Card>
      <Tabs tabs={tabs} at={names[tab] ?? ""} />
      {tab === "" && <Details one={one} />}
      {tab === "log" && <LogView id={id} />}
      {tab === "steps" && <Steps one={one} />}
      {tab === "history" && <History one={one} />}
      {tab === "nodes" && <Nodes id={id} />}
      {tab === "compare" && <Compare one={one} />}
      {(tab === "graph" || tab === "chart") && one.workflow && (
        <Suspense
          fallback={
            <Card>
              <Skeleton lines={6} />
            </Card>
          }
        >
          <RunView one={one} view={tab} />
        </Suspense>
      )}
    </Page>
  );
}

function Actions({ one }: { one: ExecutionDetail }) {
  const can = useCan();
  const [asks, setAsks] = useState<"cancel" | "again" | null>(null);
  const cancel = useChange("post", "/executions/{id}/cancel", (answer) =>
    answer.cancel_requested ? "It was asked to stop" : "Cancelled",
  );
  const retry = useChange("post", "/executions/{id}/retry", (answer) =>
    answer.created ? "Runs as a new execution" : "Runs again",
  );
  const path = { id: one.execution_id };
  const isOver = one.finished_at !== null;
  const run = () =>
    retry.mutate(
      { path, body: one.status === "succeeded" || one.is_discarded ? { force: true } : {} },
      {
        onSuccess: (answer) => navigate(executionPath(answer.execution_id)),
      },
    );
  // Of a mapped node, all items run again.
  const again = (run: string, node: string) =>
    retry.mutate(
      { path: { id: run }, body: { from: node.split("[")[0], force: true } },
      {
        onSuccess: (answer) => navigate(`${executionPath(answer.execution_id)}/graph`),
      },
    );
  return (
    <>
      {!isOver && can("cancel") && (
        <Button icon="slash" kind="danger" onClick={() => setAsks("cancel")}>
          Cancel
        </Button>
      )}
      {isOver && can("retry") && !one.node && one.status !== "skipped" && (
        <Button icon="retry" kind={one.status === "dead" ? "primary" : ""} disabled={retry.isPending} onClick={run}>
          {one.status === "succeeded" ? "Run again" : "Retry"}
        </Button>
      )}
      {one.node && one.workflow_id && isOver && can("retry") && (
        <Button icon="retry" disabled={retry.isPending} onClick={() => again(one.workflow_id ?? "", one.node ?? "")}>
          Run again from here
        </Button>
      )}
      {can("trigger") && !one.node && (
        <Button icon="edit" onClick={() => setAsks("again")}>
          Run with other arguments
        </Button>
      )}
      {asks === "cancel" && (
        <Confirm
          title={`Cancel ${one.job}?`}
          submit="Cancel it"
          busy={cancel.isPending}
          onClose={() => setAsks(null)}
          onConfirm={() => cancel.mutate({ path }, { onSettled: () => setAsks(null) })}
        >
          {one.status === "running"
            ? "Its worker is told to stop it. What it has done stays done."
            : "It will not start."}
        </Confirm>
      )}
      {asks === "again" && <Again one={one} onClose={() => setAsks(null)} />}
    </>
  );
}

function Again({ one, onClose }: { one: Execution; onClose: () => void }) {
  const args = useArgs({ name: one.job, args: null }, (one.args ?? {}) as Record<string, unknown>);
  const trigger = useChange("post", "/jobs/{job}/trigger", () => "Triggered");
  const run = () =>
    args.value &&
    trigger.mutate(
      { path: { job: one.job }, body: { args: args.value } },
      {
        onSuccess: (answer) => {
          onClose();
          navigate(executionPath(answer.execution_id));
        },
      },
    );
  return (
    <Dialog
      title={`Run ${one.job} with other arguments`}
      submit="Run"
      busy={trigger.isPending}
      disabled={!args.value}
      onClose={onClose}
      onSubmit={run}
    >
      <ArgsFields args={args} />
      {trigger.error && <Notice>{trigger.error.message}</Notice>}
    </Dialog>
  );
}

/** Why it does not run yet, or not go on; what waits for a person can be decided here. */
function WhyNotice({ one }: { one: ExecutionDetail }) {
  const waits = one.finished_at === null && one.status !== "running";
  const why = useGet("/executions/{id}/why", {
    path: { id: one.execution_id },
    on: waits || (one.finished_at === null && one.workflow !== null),
    every: 3000,
    live: true,
  });
  const open = one.steps.filter((step) => step.kind === "wait" && step.status === "waiting");
  const inside = one.workflow?.nodes.flatMap((node) => node.waits) ?? [];
  if (one.finished_at !== null) return null;
  return (
    <>
      {waits && why.data && !(open.length && why.data.code === "event") && (
        <Notice tone={why.data.lack ? "warn" : "wait"}>
          <b>{why.data.code.replaceAll("_", " ")}</b>: <Told text={why.data.detail} />
          {why.data.next_at && (
            <>
              {" "}
              · goes on <Time at={why.data.next_at} />
            </>
          )}
          {why.data.ahead !== null && <> · {count(why.data.ahead, why.data.at_least)} before it</>}
          {why.data.estimated_start && (
            <>
              {" "}
              · starts about <Time at={why.data.estimated_start} />
            </>
          )}
          {why.data.lack && !why.data.detail.includes(why.data.lack) && <div className="strong">{why.data.lack}</div>}
          {why.data.holders.map((one) => (
            <div key={one.execution_id}>
              in its way:{" "}
              <Link className="strong" href={executionPath(one.execution_id)}>
                {one.job}
              </Link>{" "}
              <Status state={one.status} />
            </div>
          ))}
          <Remedies actions={why.data.actions.filter((one) => !HAVE_BUTTONS.test(one.request?.path ?? ""))} />
        </Notice>
      )}
      {open.map((step) => (
        <Decide
          key={step.n}
          id={one.execution_id}
          name={step.name.replace(APPROVAL, "")}
          isApproval={step.name.startsWith(APPROVAL)}
          until={step.wake_at}
        />
      ))}
      {inside.slice(0, 5).map((wait) => (
        <Decide
          key={`${wait.execution_id} ${wait.name}`}
          id={wait.execution_id}
          node={wait.node}
          name={wait.name}
          isApproval={wait.kind === "approval"}
          until={wait.until}
        />
      ))}
    </>
  );
}

function Decide({
  id,
  node,
  name,
  isApproval,
  until,
}: {
  id: string;
  node?: string;
  name: string;
  isApproval: boolean;
  until: string | null;
}) {
  const can = useCan();
  const [asks, setAsks] = useState<"approve" | "reject" | "signal" | null>(null);
  const [text, setText] = useState("");
  const approve = useChange("post", "/executions/{id}/approve", () => "The decision was sent");
  const signal = useChange("post", "/executions/{id}/signal", () => "The signal was sent");
  const busy = approve.isPending || signal.isPending;
  const path = { id };
  const close = () => {
    setAsks(null);
    setText("");
  };
  const data = readJson(text);
  const send = () => {
    if (asks === "signal") signal.mutate({ path, body: { name, data: data.value } }, { onSuccess: close });
    else
      approve.mutate({ path, body: { name, approved: asks === "approve", note: text || null } }, { onSuccess: close });
  };
  return (
    <Notice tone="wait">
      <span className="row wrap">
        <span>
          {node && <b>{node} </b>}waits for {isApproval ? "a decision" : "the event"} <b>{name}</b>
          {until && (
            <>
              , until <Time at={until} as="short" />
            </>
          )}
        </span>
        {can("signal") && isApproval && (
          <>
            <Button size="small" icon="check" onClick={() => setAsks("approve")}>
              Approve
            </Button>
            <Button size="small" icon="cross" kind="danger" onClick={() => setAsks("reject")}>
              Reject
            </Button>
          </>
        )}
        {can("signal") && !isApproval && (
          <Button size="small" icon="events" onClick={() => setAsks("signal")}>
            Send the event
          </Button>
        )}
      </span>
      {asks && (
        <Dialog
          title={{ approve: `Approve ${name}`, reject: `Reject ${name}`, signal: `Send ${name}` }[asks]}
          submit="Send"
          danger={asks === "reject"}
          busy={busy}
          disabled={asks === "signal" && data.wrong}
          onClose={close}
          onSubmit={send}
        >
          <TextField
            label={asks === "signal" ? "Data, as JSON" : "Note, for the audit log"}
            wrong={asks === "signal" && data.wrong ? "This is not JSON." : undefined}
            rows={4}
            value={text}
            onChange={setText}
          />
        </Dialog>
      )}
    </Notice>
  );
}

interface ErrorValue {
  type?: string;
  message?: string;
  traceback?: string;
}

function Details({ one }: { one: ExecutionDetail }) {
  const error = one.error as ErrorValue | null;
  const isBad = one.status !== "succeeded" && error;
  return (
    <>
      {isBad && (
        <Card
          title={<span className="tone-bad">{error.type}</span>}
          actions={error.traceback && <Copy text={error.traceback} label="Copy the traceback" />}
        >
          <div className="stack">
            <p className="strong">{error.message}</p>
            {error.traceback && (
              <pre className="trace" tabIndex={0}>
                {error.traceback}
              </pre>
            )}
          </div>
        </Card>
      )}
      <div className="grid two">
        <Card title="Arguments" actions={<Copy text={JSON.stringify(one.args)} label="Copy the arguments" />}>
          <Tree value={one.args} />
        </Card>
        <Card
          title="Result"
          actions={one.result !== null && <Copy text={JSON.stringify(one.result)} label="Copy the result" />}
        >
          {one.result === null ? (
            <span className="faint">{one.finished_at ? "none" : "not yet"}</span>
          ) : (
            <Tree value={one.result} />
          )}
        </Card>
        {one.checkpoint !== null && (
          <Card title="Checkpoint">
            <Tree value={one.checkpoint} />
          </Card>
        )}
      </div>
      <Card title="Facts">
        <dl className="grid facts">
          <Fact name="Queue">
            <Link href={searchPath({ queue: one.queue })}>{one.queue}</Link>
          </Fact>
          <Fact name="Priority">{one.priority}</Fact>
          <Fact name="Version of the job">
            <Link href={`${jobPath(one.job)}/versions`}>{one.version}</Link>
          </Fact>
          <Fact name="Worker">{one.worker_id ? <WorkerName id={one.worker_id} /> : "–"}</Fact>
          <Fact name="Created">
            <Time at={one.created_at} as="short" />
          </Fact>
          {one.scheduled_for && (
            <Fact name="Scheduled for">
              <Time at={one.scheduled_for} as="short" />
            </Fact>
          )}
          <Fact name="Started">
            <Time at={one.started_at} as="short" />
          </Fact>
          <Fact name="Finished">
            <Time at={one.finished_at} as="short" />
          </Fact>
          <Fact name="Tries">
            {one.attempt}
            {one.failures ? `, ${one.failures} failed` : ""}
            {one.crashes ? `, ${one.crashes} lost` : ""}
          </Fact>
          {one.reason && <Fact name="Reason">{one.reason.replaceAll("_", " ")}</Fact>}
          {one.unique_key && (
            <Fact name="Unique key">
              <Link href={searchPath({ key: one.unique_key })}>{one.unique_key}</Link>
            </Fact>
          )}
          {one.expires_at && (
            <Fact name="Expires">
              <Time at={one.expires_at} as="short" />
            </Fact>
          )}
          {one.timeout !== null && <Fact name="Timeout">{duration(one.timeout)}</Fact>}
          {one.parent_id && (
            <Fact name="Parent">
              <Link className="mono small" href={executionPath(one.parent_id)}>
                {one.parent_id.slice(-8)}
              </Link>
            </Fact>
          )}
          {one.workflow_id && (
            <Fact name="Workflow run">
              <Link className="mono small" href={`${executionPath(one.workflow_id)}/graph`}>
                {one.workflow_id.slice(-8)}
              </Link>
            </Fact>
          )}
        </dl>
      </Card>
      {one.attempts.length > 1 && <Attempts one={one} />}
      {!one.workflow && <Children id={one.execution_id} />}
    </>
  );
}

/** The name of a worker, if it is still known, and the end of its id: several may share a name. */
function WorkerName({ id }: { id: string }) {
  const workers = useGet("/workers", { query: { include_dead: true, limit: 500 }, every: false });
  const name = workers.data?.items.find((one) => one.worker_id === id)?.name;
  return (
    <Link title={id} href={searchPath({ worker: id })}>
      {name} <span className="mono small faint">{id.slice(-8)}</span>
    </Link>
  );
}

/** Executions that this one has started. */
function Children({ id }: { id: string }) {
  const found = useGet("/executions", { query: { workflow_id: id, limit: 20 }, every: 10_000 });
  const all = found.data?.items ?? [];
  if (!all.length) return null;
  return (
    <Card title="Started by it" flush>
      <ul className="list">
        {all.map((one) => (
          <li key={one.execution_id}>
            <Status state={one.status} bare />
            <Link className="strong cut grow" href={executionPath(one.execution_id)}>
              {one.job}
            </Link>
            <span className="small muted">
              <Time at={one.created_at} />
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Attempts({ one }: { one: ExecutionDetail }) {
  return (
    <Card title={`Tries (${one.attempts.length})`} flush>
      <ul className="list">
        {[...one.attempts].reverse().map((attempt) => (
          <li key={attempt.attempt}>
            <span className="faint num">{attempt.attempt}</span>
            <Status state={attempt.outcome} />
            <span className="grow cut small">
              {attempt.error ? (
                <span className="tone-bad">
                  {errorOf({ error: attempt.error, reason: null }).type}:{" "}
                  {errorOf({ error: attempt.error, reason: null }).message}
                </span>
              ) : null}
            </span>
            <span className="small muted num">
              {attempt.started_at ? duration(seconds(attempt.started_at, attempt.ended_at)) : "not started"}
            </span>
            <span className="small muted">
              <Time at={attempt.ended_at} />
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Steps({ one }: { one: ExecutionDetail }) {
  return (
    <Card flush>
      <ul className="list">
        {one.steps.map((step) => (
          <li key={step.n} className="step">
            <span className="faint num">{step.n}</span>
            <Status state={step.status} />
            <span className="grow">
              <b className="strong">{step.name.replace(APPROVAL, "")}</b>{" "}
              <span className="faint">
                {step.kind}
                {step.failures > 0 && `, ${step.failures} failed`}
              </span>
              {step.result !== null && <Tree value={step.result} open={false} />}
              {step.error !== null && <Tree value={step.error} open={false} />}
            </span>
            <span className="small muted num">
              {step.finished_at ? (
                duration(seconds(step.started_at, step.finished_at))
              ) : step.wake_at ? (
                <>
                  until <Time at={step.wake_at} as="short" />
                </>
              ) : (
                ""
              )}
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

function History({ one }: { one: ExecutionDetail }) {
  const begin = one.created_at;
  return (
    <Card flush>
      <ul className="list">
        {one.timeline.map((moment, at) => (
          <li key={at}>
            <time className="num mono small muted" dateTime={moment.at} title={exact(moment.at)}>
              {clock(moment.at)}
            </time>
            <span className="num small faint plus">
              {moment.at === begin ? "" : `+${duration(seconds(begin, moment.at))}`.replace("+<", "<")}
            </span>
            <span className="grow cut">
              <b className="strong">{moment.event.replaceAll("_", " ")}</b>
              {moment.node && <span className="muted"> {moment.node}</span>}
              {moment.step && <span className="muted"> {moment.step}</span>}
              {moment.until && <span className="muted"> until {short(moment.until)}</span>}
            </span>
            {moment.attempt && <span className="small faint">try {moment.attempt}</span>}
          </li>
        ))}
      </ul>
    </Card>
  );
}

function Nodes({ id }: { id: string }) {
  const list = useList<Execution>("/executions", { workflow_id: id, nodes: true });
  return (
    <Listing
      label="Executions of nodes"
      list={list}
      columns={columns}
      keyOf={(one) => one.execution_id}
      href={(one) => executionPath(one.execution_id)}
      empty={<Empty icon="workflows" title="No node has started yet" />}
    />
  );
}
