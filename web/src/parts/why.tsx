/** Why something does not run: the cause in words, and what would remove it, as buttons. */

import { useState } from "react";
import { queries, type Remedy, send, useGet } from "../data/api.ts";
import { count, plural } from "../data/format.ts";
import { executionPath, Link } from "../data/router.tsx";
import { session } from "../data/session.ts";
import { useStore } from "../data/store.ts";
import { toast } from "../data/toast.ts";
import { Button, Command } from "./controls.tsx";
import { Confirm, Dialog } from "./dialog.tsx";
import { Card, Empty, Notice, Pending } from "./page.tsx";
import { Status, Time, Told } from "./status.tsx";

/** A remedy as a button; as a command where only a person at a terminal can do it. */
function RemedyButton({ remedy }: { remedy: Remedy }) {
  const [asks, setAsks] = useState(false);
  const mine = useStore(session);
  const { request } = remedy;
  const label = remedy.label.replace(/^./, (first) => first.toUpperCase());
  if (!request || mine?.read_only || mine?.role === "viewer") return <Command text={remedy.command} />;
  const run = async () => {
    try {
      await send(request.method, request.path, request.body ?? {});
      toast(`Done: ${remedy.label}`);
      void queries.invalidateQueries();
    } catch (error) {
      toast((error as Error).message, "bad");
    }
    setAsks(false);
  };
  return (
    <>
      <Button size="small" onClick={() => setAsks(true)}>
        {label}
      </Button>
      {asks && (
        <Confirm title={`${label}?`} submit={label} onClose={() => setAsks(false)} onConfirm={() => void run()}>
          <Command text={remedy.command} />
        </Confirm>
      )}
    </>
  );
}

export function Remedies({ actions }: { actions: Remedy[] }) {
  if (!actions.length) return null;
  return (
    <div className="row wrap remedies">
      {actions.map((one) => (
        <RemedyButton key={one.command} remedy={one} />
      ))}
    </div>
  );
}

export const words = (code: string) => code.replaceAll("_", " ");

const DECIDED = { fired: "succeeded", skipped: "skipped", missed: "failed", upcoming: "scheduled" } as const;

/** Why a job does not run now: its executions, its schedules and the last decisions about them. */
export function JobWhy({ name }: { name: string }) {
  const found = useGet("/jobs/{job}/why", { path: { job: name } });
  const why = found.data;
  if (!why) return <Pending error={found.error} />;
  return (
    <>
      <Notice tone="wait">
        <b>{words(why.code)}</b>: <Told text={why.detail} />
        {why.next_at && (
          <>
            {" "}
            · may change <Time at={why.next_at} />
          </>
        )}
        <Remedies actions={why.actions} />
      </Notice>
      {why.executions.length > 0 && (
        <Card title="Unfinished executions" flush>
          <ul className="list">
            {why.executions.map((one) => (
              <li key={one.execution_id} className="step">
                <Status state={one.status} bare />
                <span className="grow">
                  <Link className="strong" href={executionPath(one.execution_id)}>
                    {words(one.code)}
                  </Link>{" "}
                  <span className="muted">
                    <Told text={one.detail} />
                  </span>
                </span>
              </li>
            ))}
          </ul>
        </Card>
      )}
      <div className="grid two">
        <Card title="Schedules" flush>
          {!why.schedules.length ? (
            <Empty icon="hand" title="It has no schedule" />
          ) : (
            <ul className="list">
              {why.schedules.map((one) => (
                <li key={one.schedule_id} className="step">
                  <span className="grow">
                    <b>{one.name || words(one.code)}</b>{" "}
                    <span className="muted">
                      <Told text={one.detail} />
                    </span>
                    <Remedies actions={one.actions} />
                  </span>
                  {one.next_at && (
                    <span className="small">
                      <Time at={one.next_at} />
                    </span>
                  )}
                </li>
              ))}
            </ul>
          )}
        </Card>
        <Card title="Last decisions" flush>
          {!why.ticks.length ? (
            <Empty icon="clock" title="No time has come yet" />
          ) : (
            <ul className="list">
              {why.ticks.map((one) => (
                <li key={`${one.schedule} ${one.at}`}>
                  <Status state={DECIDED[one.decision]} bare />
                  <span className="grow cut" title={one.detail}>
                    {one.execution_id ? (
                      <Link className="strong" href={executionPath(one.execution_id)}>
                        {one.decision}
                      </Link>
                    ) : (
                      <b>{one.decision}</b>
                    )}{" "}
                    <span className="muted small">
                      <Told text={one.detail} />
                    </span>
                  </span>
                  <span className="small muted">
                    <Time at={one.at} />
                  </span>
                </li>
              ))}
            </ul>
          )}
        </Card>
      </div>
    </>
  );
}

/** Why the due executions of a queue are not taken, and what they need of workers. */
export function QueueWhy({ name, onClose }: { name: string; onClose: () => void }) {
  const found = useGet("/queues/{name}/why", { path: { name } });
  const why = found.data;
  return (
    <Dialog title={`Queue ${name}`} wide onClose={onClose}>
      {!why ? (
        <Pending error={found.error} />
      ) : (
        <>
          <Notice tone={why.code === "due" || why.code === "empty" ? "idle" : "warn"}>
            <b>{words(why.code)}</b>: <Told text={why.detail} />
            {why.next_at && (
              <>
                {" "}
                · all of it has started <Time at={why.next_at} />
              </>
            )}
            <Remedies actions={why.actions} />
          </Notice>
          <p className="muted small">
            {plural(why.workers, "worker")} with {plural(why.capacity, "slot")}, {count(why.running)} in use
            {why.starts_per_second !== null && (
              <> · {why.starts_per_second.toFixed(2)} starts per second in the last ten minutes</>
            )}
          </p>
          {why.needs.length > 0 && (
            <Card title="What waits needs" flush>
              <ul className="list">
                {why.needs.map((one) => (
                  <li key={one.needs}>
                    <b className="mono">{one.needs}</b>
                    <span className="grow muted small">
                      {count(one.queued, one.at_least)} queued, oldest <Time at={one.oldest_run_at} />
                    </span>
                    <span className={`small ${one.workers ? "muted" : "tone-bad"}`}>
                      {plural(one.workers, "worker")}
                    </span>
                  </li>
                ))}
              </ul>
            </Card>
          )}
        </>
      )}
    </Dialog>
  );
}
