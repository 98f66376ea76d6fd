/** Limits: how many executions run at a time or start in a time, who has them and what waits for them. */

import { useState } from "react";
import { type Answer, useChange, useGet, useList } from "../data/api.ts";
import { count } from "../data/format.ts";
import { executionPath, jobPath, Link, searchPath } from "../data/router.tsx";
import { useCan } from "../data/session.ts";
import { Button, TextField } from "../parts/controls.tsx";
import { Confirm, Dialog } from "../parts/dialog.tsx";
import { Empty, Pending } from "../parts/page.tsx";
import { Status, Time } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";
import { brief } from "../parts/tree.tsx";

type Limit = Answer<"get", "/limits/{name}">;

const numbers = (one: Pick<Limit, "limit" | "rates">) =>
  [one.limit !== null && `${one.limit} at a time`, ...one.rates].filter(Boolean).join(", ") || "none";

export function Limits() {
  const list = useList<Limit>("/limits");
  const [shown, setShown] = useState<string | null>(null);
  const columns: Column<Limit>[] = [
    {
      name: "Limit",
      width: "minmax(80px, 1.4fr)",
      cell: (one) => (
        <>
          <button type="button" className="button link cut" onClick={() => setShown(one.name)}>
            {one.name}
          </button>
          {one.is_paused && <Status state="paused" />}
        </>
      ),
    },
    {
      name: "Allows",
      width: "minmax(70px, 1fr)",
      cell: (one) => (
        <span className="cut" title={`declared: ${numbers(one.declared)}`}>
          {numbers(one)}
        </span>
      ),
    },
    {
      name: "Running",
      width: "58px",
      right: true,
      cell: (one) => count(one.running, one.at_least.includes("running")),
    },
    {
      name: "Waiting",
      width: "58px",
      right: true,
      cell: (one) => (
        <span className={one.waiting ? "tone-warn" : "faint"}>
          {count(one.waiting, one.at_least.includes("waiting"))}
        </span>
      ),
    },
    {
      name: "Keys",
      width: "60px",
      from: 760,
      right: true,
      cell: (one) => count(one.keys, one.at_least.includes("keys")),
    },
    { name: "Next start", width: "90px", from: 760, right: true, cell: (one) => <Time at={one.next_at} /> },
    { name: "", width: "160px", from: 640, right: true, cell: (one) => <Actions one={one} /> },
  ];
  return (
    <>
      <Listing
        label="Limits"
        list={list}
        columns={columns}
        keyOf={(one) => one.name}
        height={42}
        empty={
          <Empty icon="hourglass" title="No job has a limit" command={"daybell limits list"}>
            In Python: <code>@app.task(concurrency=3, rate="100/m")</code>; in JSON the options concurrency and rate.
          </Empty>
        }
      />
      {shown && <Detail name={shown} onClose={() => setShown(null)} />}
    </>
  );
}

function Actions({ one }: { one: Limit }) {
  const can = useCan();
  const [asks, setAsks] = useState<"pause" | "set" | null>(null);
  const pause = useChange("post", "/limits/{name}/pause", () => `${one.name} is paused`, "/limits/{name}/resume");
  const resume = useChange("post", "/limits/{name}/resume", () => `${one.name} is resumed`, "/limits/{name}/pause");
  const path = { name: one.name };
  const close = () => setAsks(null);
  if (!can("pause")) return null;
  return (
    <>
      <span className="from-640">
        <Button size="small" kind="quiet" onClick={() => setAsks("set")}>
          Change
        </Button>
      </span>
      {one.is_paused ? (
        <Button size="small" icon="play" onClick={() => resume.mutate({ path, body: {} })}>
          Resume
        </Button>
      ) : (
        <Button size="small" icon="pause" onClick={() => setAsks("pause")}>
          Pause
        </Button>
      )}
      {asks === "set" && <Change one={one} onClose={close} />}
      {asks === "pause" && (
        <Confirm
          title={`Pause ${one.name}?`}
          submit="Pause it"
          busy={pause.isPending}
          onClose={close}
          onConfirm={() => pause.mutate({ path, body: {} }, { onSettled: close })}
        >
          No execution that needs it starts until it is resumed. What runs goes on.
        </Confirm>
      )}
    </>
  );
}

function Change({ one, onClose }: { one: Limit; onClose: () => void }) {
  const [limit, setLimit] = useState(one.limit?.toString() ?? "");
  const [rate, setRate] = useState(one.rates.join(", "));
  const save = useChange("patch", "/limits/{name}", () => `${one.name} is changed`);
  const rates = rate
    .split(",")
    .map((each) => each.trim())
    .filter(Boolean);
  return (
    <Dialog
      title={`Change ${one.name}`}
      submit="Save"
      busy={save.isPending}
      onClose={onClose}
      onSubmit={() =>
        save.mutate(
          {
            path: { name: one.name },
            body: { limit: limit ? Number(limit) : null, rate: rates.length ? rates : null },
          },
          { onSuccess: onClose },
        )
      }
    >
      <p className="muted">Declared by its jobs: {numbers(one.declared)}. A lower limit ends nothing that runs.</p>
      <TextField
        label="At a time"
        hint="Empty: as declared"
        wrong={save.error?.message}
        inputMode="numeric"
        pattern="[0-9]*"
        value={limit}
        onChange={setLimit}
      />
      <TextField label="Starts in a time" hint="Such as 100/m. Empty: as declared" value={rate} onChange={setRate} />
    </Dialog>
  );
}

/** The executions that have a limit, and the number that waits, by the values of its key. */
function Detail({ name, onClose }: { name: string; onClose: () => void }) {
  const found = useGet("/limits/{name}", { path: { name }, every: 3000 });
  const one = found.data;
  // The limit of a job has its name; one that jobs share is none.
  const job = name.split(":")[0] ?? name;
  const owner = useGet("/jobs/{job}", { path: { job }, every: false });
  const jobOf = owner.data?.name === job ? job : undefined;
  return (
    <Dialog title={`Limit ${name}`} wide onClose={onClose}>
      {!one ? (
        <Pending error={found.error} />
      ) : (
        <>
          <p className="muted">
            Allows {numbers(one)}.{" "}
            <Link className="strong" href={searchPath({ status: "running", job: jobOf })}>
              {count(one.running)} running
            </Link>
            ,{" "}
            <Link className="strong" href={searchPath({ status: "waiting", job: jobOf })}>
              {count(one.waiting, one.at_least.includes("waiting"))} waiting
            </Link>
            {jobOf && (
              <>
                {" "}
                of job{" "}
                <Link className="strong" href={jobPath(jobOf)}>
                  {jobOf}
                </Link>
              </>
            )}
            .
          </p>
          <ul className="list bordered">
            {one.buckets.map((bucket) => (
              <li key={bucket.key} className="bucket">
                <span className="row between wrap">
                  <span className="row">
                    <b className="strong cut">{bucket.key || "all"}</b>
                    {bucket.is_paused && <Status state="paused" />}
                  </span>
                  <span className="small muted">
                    {count(bucket.running)} running · {count(bucket.waiting)} waiting
                    {bucket.tokens !== null && ` · ${count(bucket.tokens)} may start now`}
                    {bucket.next_at && (
                      <>
                        {" "}
                        · next <Time at={bucket.next_at} />
                      </>
                    )}
                  </span>
                </span>
                {bucket.holders.slice(0, HOLDERS).map((id) => (
                  <Holder key={id} id={id} />
                ))}
                {bucket.holders.length > HOLDERS && (
                  <span className="small faint">and {count(bucket.running - HOLDERS)} more</span>
                )}
              </li>
            ))}
          </ul>
          {!one.buckets.length && <p className="muted">No execution has it or waits for it now.</p>}
        </>
      )}
    </Dialog>
  );
}

const HOLDERS = 5;

/** An execution that has a limit. */
function Holder({ id }: { id: string }) {
  const found = useGet("/executions/{id}", { path: { id }, every: 5000 });
  const one = found.data;
  return (
    <span className="row small holder">
      <Status state={one?.status ?? "running"} bare />
      <Link className="strong" href={executionPath(id)}>
        {one?.job ?? id.slice(-8)}
      </Link>
      {one && <span className="faint mono cut">{brief(one.args, 80)}</span>}
      <span className="grow" />
      {one?.started_at && (
        <span className="muted nowrap">
          since <Time at={one.started_at} />
        </span>
      )}
    </span>
  );
}
