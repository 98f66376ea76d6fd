/** Alerts: incidents with what can be done about them, and the rules that open them. */

import { useState } from "react";
import { type Alert, type Answer, ApiError, call, type Incident, queries, useChange, useList } from "../data/api.ts";
import { duration, readJson, seconds, useNow } from "../data/format.ts";
import { Link, searchPath, useFilter } from "../data/router.tsx";
import { useCan, useIsAtLeast } from "../data/session.ts";
import { toast } from "../data/toast.ts";
import { Button, Field, Segments, TextField } from "../parts/controls.tsx";
import { Confirm, Dialog } from "../parts/dialog.tsx";
import { stateOf, Subject } from "../parts/incident.tsx";
import { Empty, Fact, Notice, Page, Tabs } from "../parts/page.tsx";
import { Status, Time, Told } from "../parts/status.tsx";
import { type Column, Listing } from "../parts/table.tsx";
import { brief } from "../parts/tree.tsx";

/** The conditions, in words, with the fields that each takes. */
const CONDITIONS: Record<string, [string, ...Limit[]]> = {
  dead_letter: ["A job has dead letters"],
  failures: ["The last executions of a job are dead", "count"],
  failure_rate: ["A large part of a job's executions is dead", "rate", "within", "count"],
  missed_run: ["A scheduled time passed without a success", "grace"],
  late_start: ["An execution starts late", "grace"],
  long_run: ["An execution runs for too long", "grace"],
  queue_age: ["The oldest execution of a queue waits for too long", "grace"],
  no_worker: ["No worker offers what an execution needs", "grace"],
  lost_workers: ["Workers were lost with executions", "count", "within"],
  paused: ["A job was paused by its failures"],
  store_health: ["A check of the store fails"],
  succeeded: ["An execution of a job succeeded"],
};
type Limit = "count" | "rate" | "within" | "grace";
const LIMITS: Record<Limit, [string, string]> = {
  count: ["Number of executions", "Such as 3"],
  rate: ["Part that is dead", "Between 0 and 1, such as 0.5"],
  within: ["Within", "Such as 1h"],
  grace: ["Grace", "Such as 10m"],
};

export default function AlertsPage({ tab }: { tab: string }) {
  const isAdmin = useIsAtLeast("admin");
  const tabs: [string, string][] = [["Incidents", "/alerts"]];
  if (isAdmin) tabs.push(["Rules", "/alerts/rules"], ["Subscriptions", "/alerts/subscriptions"]);
  const at = isAdmin ? tab : "";
  const [name, cli] = {
    rules: ["Rules", "daybell alerts list"],
    subscriptions: ["Subscriptions", "daybell subscriptions list"],
  }[at] ?? ["Incidents", "daybell alerts incidents"];
  return (
    <Page title="Alerts" cli={cli}>
      <Tabs tabs={tabs} at={name ?? ""} />
      {at === "rules" ? (
        <Rules />
      ) : at === "subscriptions" ? (
        <Subscriptions />
      ) : tab ? (
        <Notice>Rules take an administrator's key: their addresses may hold passwords.</Notice>
      ) : (
        <Incidents />
      )}
    </Page>
  );
}

type Subscription = Answer<"get", "/subscriptions">["items"][number];

/** Receivers of outgoing events; their deliveries are executions of a job. */
function Subscriptions() {
  const list = useList<Subscription>("/subscriptions");
  const can = useCan();
  const [isNew, setNew] = useState(false);
  const [gone, setGone] = useState<string | null>(null);
  const remove = useChange("delete", "/subscriptions/{name}", (answer) => `${answer.name} is deleted`);
  const test = useChange("post", "/subscriptions/{name}/test", () => "The test event is on its way");
  const columns: Column<Subscription>[] = [
    {
      name: "Name",
      width: "minmax(110px, 1fr)",
      cell: (one) => (
        <span className="strong cut" title={one.description}>
          {one.name}
        </span>
      ),
    },
    {
      name: "Address",
      width: "minmax(140px, 2fr)",
      cell: (one) => <span className="cut mono small">{brief(one.url)}</span>,
    },
    {
      name: "Events",
      width: "minmax(100px, 1.4fr)",
      from: 900,
      cell: (one) => <span className="cut muted small">{[...one.types, ...one.status].join(", ") || "all"}</span>,
    },
    {
      name: "About",
      width: "minmax(90px, 1fr)",
      from: 1100,
      cell: (one) => (
        <span className="cut muted small">
          {[one.job && `job ${one.job}`, one.queue && `queue ${one.queue}`].filter(Boolean).join(", ") || "all"}
        </span>
      ),
    },
    {
      name: "Signed",
      width: "64px",
      from: 640,
      cell: (one) => (one.secret ? "yes" : <span className="tone-warn">no</span>),
    },
    {
      name: "Deliveries",
      width: "76px",
      right: true,
      cell: (one) => (
        <Link className="small" href={searchPath({ job: one.delivery_job })}>
          Executions
        </Link>
      ),
    },
    {
      name: "",
      width: "90px",
      from: 640,
      right: true,
      cell: (one) =>
        can("define") && (
          <>
            <Button size="small" kind="quiet" onClick={() => test.mutate({ path: { name: one.name } })}>
              Test
            </Button>
            <Button
              size="small"
              kind="quiet"
              icon="trash"
              label={`Delete ${one.name}`}
              onClick={() => setGone(one.name)}
            />
          </>
        ),
    },
  ];
  return (
    <>
      {can("define") && (
        <div className="toolbar">
          <Button icon="plus" onClick={() => setNew(true)}>
            New subscription
          </Button>
        </div>
      )}
      <Listing
        label="Subscriptions"
        list={list}
        columns={columns}
        keyOf={(one) => one.name}
        empty={
          <Empty
            icon="events"
            title="There is no subscription yet"
            command="daybell subscriptions create orders https://example.org/hook"
          >
            A subscription sends changes of executions, jobs and schedules to a URL.
          </Empty>
        }
      />
      {isNew && <NewSubscription onClose={() => setNew(false)} />}
      {gone && (
        <Confirm
          title={`Delete ${gone}?`}
          submit="Delete it"
          busy={remove.isPending}
          onClose={() => setGone(null)}
          onConfirm={() => remove.mutate({ path: { name: gone } }, { onSettled: () => setGone(null) })}
        >
          It gets no more events. Deliveries that are on their way still arrive.
        </Confirm>
      )}
    </>
  );
}

const SENT = ["", "dead", "succeeded", "cancelled", "skipped", "retrying", "lost"] as const;
const FIELDS = [
  ["name", "Name", "It cannot be changed later"],
  ["url", "Address", "https://…"],
  ["job", "Job", "A name, or a beginning and *. Empty: all"],
  ["queue", "Queue", "Empty: all"],
  ["types", "Events", "Such as execution.* or job.changed. Empty: all"],
  ["secret", "Secret for signatures", "The name of a secret. Empty: not signed"],
] as const;

function NewSubscription({ onClose }: { onClose: () => void }) {
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [status, setStatus] = useState<(typeof SENT)[number]>("");
  const create = useChange("post", "/subscriptions", (answer) => `${answer.name} gets events from now on`);
  const given = Object.fromEntries(
    Object.entries(texts)
      .map(([name, text]) => [name, text.trim()])
      .filter(([, text]) => text),
  );
  const wrong = (name: string) =>
    create.error instanceof ApiError ? create.error.fields.find((one) => one.field === name)?.message : undefined;
  return (
    <Dialog
      title="New subscription"
      submit="Create it"
      busy={create.isPending}
      disabled={!given.name || !given.url}
      onClose={onClose}
      onSubmit={() => create.mutate({ body: { ...given, ...(status && { status }) } as never }, { onSuccess: onClose })}
    >
      {FIELDS.map(([name, label, hint]) => (
        <TextField
          key={name}
          label={label}
          hint={hint}
          wrong={wrong(name)}
          value={texts[name] ?? ""}
          onChange={(value) => setTexts({ ...texts, [name]: value })}
        />
      ))}
      <Field label="Status of executions" wrong={wrong("status")}>
        {(id) => (
          <select
            id={id}
            className="select"
            value={status}
            onChange={(event) => setStatus(event.target.value as "dead")}
          >
            {SENT.map((one) => (
              <option key={one} value={one}>
                {one || "all, and changes of jobs"}
              </option>
            ))}
          </select>
        )}
      </Field>
      {create.error && <Notice>{brief(create.error.message, 400)}</Notice>}
    </Dialog>
  );
}

function Lasted({ one }: { one: Incident }) {
  const now = useNow();
  return <>{duration(Math.max(0, Math.round(seconds(one.opened_at, one.closed_at ?? now))))}</>;
}

function Incidents() {
  const [which, setWhich] = useFilter("which", "open");
  const list = useList<Incident>("/incidents", which === "all" ? {} : { open: true });
  const can = useCan();
  const [silenced, setSilenced] = useState<string | null>(null);
  const [shown, setShown] = useState<Incident | null>(null);
  const acknowledge = useChange("post", "/incidents/{id}/acknowledge", (answer) => `${answer.rule}: acknowledged`);
  const columns: Column<Incident>[] = [
    { name: "State", width: "124px", slim: true, cell: (one) => <Status state={stateOf(one)} /> },
    {
      name: "Incident",
      width: "minmax(110px, 1fr)",
      cell: (one) => (
        <span className="grow">
          <span className="cut block">
            <Subject one={one} />
          </span>
          <span className="cut muted small block" title={one.detail}>
            <Told text={one.detail} />
          </span>
        </span>
      ),
    },
    { name: "Rule", width: "130px", from: 1000, cell: (one) => <span className="cut muted">{one.rule}</span> },
    {
      name: "Acknowledged by",
      width: "140px",
      from: 1400,
      cell: (one) => <span className="cut muted">{one.acknowledged_by || "–"}</span>,
    },
    {
      name: "Opened",
      width: "72px",
      right: true,
      cell: (one) => (
        <span className="muted">
          <Time at={one.opened_at} />
        </span>
      ),
    },
    { name: "Lasted", width: "84px", from: 640, right: true, cell: (one) => <Lasted one={one} /> },
    {
      name: "",
      width: "180px",
      right: true,
      from: 760,
      cell: (one) =>
        can("pause") &&
        !one.closed_at && (
          <>
            {!one.acknowledged_at && (
              <Button
                size="small"
                icon="check"
                disabled={acknowledge.isPending}
                onClick={() => acknowledge.mutate({ path: { id: one.incident_id } })}
              >
                Acknowledge
              </Button>
            )}
            <span className="from-640">
              <Button size="small" kind="quiet" onClick={() => setSilenced(one.rule)}>
                Silence
              </Button>
            </span>
          </>
        ),
    },
  ];
  return (
    <>
      <div className="toolbar">
        <Segments
          label="Which incidents"
          value={which}
          options={[
            ["open", "Open"],
            ["all", "All"],
          ]}
          onChange={setWhich}
        />
      </div>
      <Listing
        label="Incidents"
        list={list}
        columns={columns}
        keyOf={(one) => one.incident_id}
        height={52}
        onOpen={setShown}
        empty={
          which === "open" ? (
            <Empty
              icon="check"
              title="No incident is open"
              command="daybell alerts create dead-letters --on dead_letter"
            >
              A rule opens an incident when its condition is met, and sends a message if it has addresses.
            </Empty>
          ) : (
            <Empty icon="bell" title="There has been no incident in 90 days" />
          )
        }
      />
      {shown && (
        <Dialog title={shown.subject} onClose={() => setShown(null)}>
          <p>
            <Told text={shown.detail} />
          </p>
          <dl className="grid facts">
            <Fact name="State">
              <Status state={stateOf(shown)} />
            </Fact>
            <Fact name="Rule">{shown.rule}</Fact>
            <Fact name="Opened">
              <Time at={shown.opened_at} as="short" />
            </Fact>
            <Fact name="Message sent">
              <Time at={shown.notified_at} as="short" />
            </Fact>
            {shown.acknowledged_at && <Fact name="Acknowledged by">{shown.acknowledged_by}</Fact>}
            {shown.closed_at && (
              <Fact name="Closed">
                <Time at={shown.closed_at} as="short" />
              </Fact>
            )}
          </dl>
          <div className="row wrap">
            <Subject one={shown} />
            {can("pause") && !shown.closed_at && !shown.acknowledged_at && (
              <Button
                size="small"
                icon="check"
                onClick={() => {
                  acknowledge.mutate({ path: { id: shown.incident_id } });
                  setShown(null);
                }}
              >
                Acknowledge
              </Button>
            )}
            {can("pause") && (
              <Button
                size="small"
                icon="pause"
                onClick={() => {
                  setSilenced(shown.rule);
                  setShown(null);
                }}
              >
                Silence the rule
              </Button>
            )}
          </div>
        </Dialog>
      )}
      {silenced && <SilenceDialog rule={silenced} onClose={() => setSilenced(null)} />}
    </>
  );
}

function SilenceDialog({ rule, onClose }: { rule: string; onClose: () => void }) {
  const [length, setLength] = useState("1h");
  const [reason, setReason] = useState("");
  const silence = useChange(
    "post",
    "/alerts/{name}/silence",
    (answer) => `${answer.name} sends no messages for ${length}`,
    "/alerts/{name}/silence",
  );
  return (
    <Dialog
      title={`Silence ${rule}`}
      submit="Silence it"
      busy={silence.isPending}
      disabled={!length.trim()}
      onClose={onClose}
      onSubmit={() =>
        silence.mutate({ path: { name: rule }, body: { duration: length.trim(), reason } }, { onSuccess: onClose })
      }
    >
      <p className="muted">
        Incidents open and close meanwhile. One that is still open at the end gets its message then.
      </p>
      <TextField
        label="For"
        hint="Such as 30m or 2h"
        wrong={silence.error?.message}
        required
        value={length}
        onChange={setLength}
      />
      <TextField label="Reason" maxLength={1000} value={reason} onChange={setReason} />
    </Dialog>
  );
}

/** Rules and their silences. */
export function Rules() {
  const list = useList<Alert>("/alerts");
  const can = useCan();
  const now = useNow();
  const [edited, setEdited] = useState<Alert | "new" | null>(null);
  const [silenced, setSilenced] = useState<string | null>(null);
  const [gone, setGone] = useState<string | null>(null);
  const remove = useChange("delete", "/alerts/{name}", (answer) => `${answer.name} is deleted`);
  const loud = useChange("post", "/alerts/{name}/silence", (answer) => `${answer.name} sends messages again`);
  const test = useChange("post", "/alerts/{name}/test", () => "The test message is on its way");
  const isSilent = (one: Alert) => one.silenced_until !== null && Date.parse(one.silenced_until) > now;
  const columns: Column<Alert>[] = [
    {
      name: "Rule",
      width: "minmax(110px, 1fr)",
      cell: (one) =>
        can("define") ? (
          <button type="button" className="button link cut" onClick={() => setEdited(one)}>
            {one.name}
          </button>
        ) : (
          <span className="strong cut">{one.name}</span>
        ),
    },
    {
      name: "Condition",
      width: "minmax(120px, 2fr)",
      from: 640,
      cell: (one) => <span className="cut muted">{CONDITIONS[one.on]?.[0] ?? one.on}</span>,
    },
    {
      name: "Watches",
      width: "minmax(90px, 1fr)",
      from: 900,
      cell: (one) => <span className="cut muted">{one.job ?? one.queue ?? "all"}</span>,
    },
    {
      name: "Messages",
      width: "minmax(100px, 1fr)",
      cell: (one) =>
        isSilent(one) ? (
          <span className="status tone-warn cut" title={one.silence_reason}>
            silent until <Time at={one.silenced_until} as="short" />
          </span>
        ) : (
          <span className="cut muted">{one.to.length ? `to ${one.to.length}` : "none: listed only"}</span>
        ),
    },
    {
      name: "",
      width: "minmax(80px, 210px)",
      right: true,
      cell: (one) => (
        <>
          {can("pause") &&
            (isSilent(one) ? (
              <Button size="small" onClick={() => loud.mutate({ path: { name: one.name }, body: {} })}>
                End silence
              </Button>
            ) : (
              <Button size="small" onClick={() => setSilenced(one.name)}>
                Silence
              </Button>
            ))}
          <span className="from-640">
            {can("pause") && (
              <Button
                size="small"
                kind="quiet"
                disabled={!one.to.length}
                onClick={() => test.mutate({ path: { name: one.name } })}
              >
                Test
              </Button>
            )}
            {can("define") && (
              <Button
                size="small"
                kind="quiet"
                icon="trash"
                label={`Delete ${one.name}`}
                onClick={() => setGone(one.name)}
              />
            )}
          </span>
        </>
      ),
    },
  ];
  return (
    <>
      {can("define") && (
        <div className="toolbar">
          <Button icon="plus" onClick={() => setEdited("new")}>
            New rule
          </Button>
        </div>
      )}
      <Listing
        label="Alert rules"
        list={list}
        columns={columns}
        keyOf={(one) => one.name}
        height={42}
        empty={
          <Empty icon="bell" title="There is no rule yet" command="daybell alerts create dead-letters --on dead_letter">
            A rule watches jobs, queues, workers or the store, and opens incidents.
          </Empty>
        }
      />
      {silenced && <SilenceDialog rule={silenced} onClose={() => setSilenced(null)} />}
      {edited && <RuleDialog rule={edited === "new" ? null : edited} onClose={() => setEdited(null)} />}
      {gone && (
        <Confirm
          title={`Delete ${gone}?`}
          submit="Delete it"
          busy={remove.isPending}
          onClose={() => setGone(null)}
          onConfirm={() => remove.mutate({ path: { name: gone } }, { onSettled: () => setGone(null) })}
        >
          Its open incidents close without a message.
        </Confirm>
      )}
    </>
  );
}

const TEXTS = ["name", "job", "queue", "count", "rate", "within", "grace", "repeat", "description"] as const;
type Texts = Record<(typeof TEXTS)[number], string>;

/** What a rule says, as texts; a field that is left empty gets its default. */
const textsOf = (rule: Alert | null) =>
  Object.fromEntries(
    TEXTS.map((name) => {
      const value = rule?.[name];
      const takes = !(name in LIMITS) || (CONDITIONS[rule?.on ?? ""] as string[] | undefined)?.includes(name);
      return [name, takes && value !== null && value !== undefined ? String(value) : ""];
    }),
  ) as Texts;

function RuleDialog({ rule, onClose }: { rule: Alert | null; onClose: () => void }) {
  const [texts, setTexts] = useState(() => textsOf(rule));
  const [on, setOn] = useState(rule?.on ?? "dead_letter");
  const [to, setTo] = useState(() =>
    (rule?.to ?? []).map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join("\n"),
  );
  const [error, setError] = useState<Error | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [, ...limits] = CONDITIONS[on] ?? [""];
  const wrong = (name: string) =>
    error instanceof ApiError ? error.fields.find((one) => one.field === name)?.message : undefined;
  const input = (name: keyof Texts, label: string, hint: string) => (
    <TextField
      key={name}
      label={label}
      hint={hint}
      wrong={wrong(name)}
      required={name === "name"}
      disabled={name === "name" && rule !== null}
      value={texts[name]}
      onChange={(value) => setTexts({ ...texts, [name]: value })}
    />
  );
  const save = async () => {
    const addresses = to
      .split("\n")
      .map((one) => one.trim())
      .filter(Boolean)
      .map((one) => (one.startsWith("{") ? (readJson(one).value ?? one) : one));
    const body: Record<string, unknown> = { on, to: addresses };
    if (rule?.message_queue) body.message_queue = rule.message_queue;
    for (const name of TEXTS) {
      if (name in LIMITS && !limits.includes(name as Limit)) continue;
      const text = texts[name].trim();
      const isNumber = ["count", "rate", "within", "grace", "repeat"].includes(name) && /^[\d.]+$/.test(text);
      if (text) body[name] = isNumber ? Number(text) : text;
    }
    setBusy(true);
    try {
      const made = rule
        ? await call("put", "/alerts/{name}", { path: { name: rule.name }, body: body as never })
        : await call("post", "/alerts", { body: body as never });
      toast(`${made.name} is evaluated every 10 seconds`);
      void queries.invalidateQueries();
      onClose();
    } catch (problem) {
      setError(problem as Error);
    }
    setBusy(false);
  };
  return (
    <Dialog
      title={rule ? `Rule ${rule.name}` : "New rule"}
      submit={rule ? "Save" : "Create it"}
      busy={isBusy}
      disabled={!texts.name.trim()}
      onClose={onClose}
      onSubmit={() => void save()}
    >
      {input("name", "Name", "It cannot be changed later")}
      <Field label="Condition" wrong={wrong("on")}>
        {(id) => (
          <select id={id} className="select" value={on} onChange={(event) => setOn(event.target.value)}>
            {Object.entries(CONDITIONS).map(([name, [words]]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
        )}
      </Field>
      <div className="grid two tight">
        {!["queue_age", "store_health", "no_worker"].includes(on) &&
          input("job", "Job", "A name, or a beginning and *. Empty: all")}
        {["queue_age", "no_worker"].includes(on) && input("queue", "Queue", "A name, or a beginning and *. Empty: all")}
        {limits.map((name) => input(name, ...LIMITS[name]))}
        {input("repeat", "Repeat the message", "Such as 4h. Empty: it is sent once")}
      </div>
      <Field
        label="Addresses, one per line"
        hint={
          <>
            Addresses of Apprise, or a secret: <code>{'{"secret": "TEAM_CHAT"}'}</code>. None: incidents are only listed
          </>
        }
        wrong={wrong("to")}
      >
        {(id) => (
          <textarea
            id={id}
            className="area"
            rows={3}
            spellCheck={false}
            value={to}
            onChange={(event) => setTo(event.target.value)}
          />
        )}
      </Field>
      {input("description", "Description", "")}
      {error && <Notice>{brief(error.message, 400)}</Notice>}
    </Dialog>
  );
}
