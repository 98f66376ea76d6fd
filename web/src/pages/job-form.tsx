/** Create and edit jobs of any kind. The schedule is explained while it is typed. */

import { useState } from "react";
import { ApiError, call, type Job, type NewJob, queries, useGet } from "../data/api.ts";
import { command, readJson, readObject, ZONE } from "../data/format.ts";
import { jobPath, navigate } from "../data/router.tsx";
import { toast } from "../data/toast.ts";
import { Button, Field, Segments, TextField } from "../parts/controls.tsx";
import { Card, Notice, Page, Pending } from "../parts/page.tsx";
import { type When, WhenFields, whenOf, whenToSend } from "../parts/when.tsx";
import { OptionFields, optionsToSend, type OptionTexts, textsOf } from "./job-options.tsx";

const KINDS = [
  ["command", "Command"],
  ["http", "HTTP request"],
  ["task", "Python task"],
  ["sql", "SQL"],
  ["notify", "Notification"],
  ["workflow", "Workflow"],
] as const;
type Kind = (typeof KINDS)[number][0];

const HINTS: Record<Kind, [string, string, string]> = {
  task: ["Task", "", ""],
  command: ["Command", "df -h .", "It runs without a shell: quotes group words. Workers need --allow-command."],
  http: ["Request", "https://example.org/health", 'An address, or JSON: {"url": "…", "method": "POST", "body": {}}'],
  sql: [
    "Statement, as JSON",
    '{"connection": "warehouse", "statement": "select 1"}',
    "The connection is the name of a secret.",
  ],
  notify: [
    "Message, as JSON",
    '{"to": "mailto://…", "title": "Done", "body": "…"}',
    "Addresses of Apprise; keep them in secrets.",
  ],
  workflow: [
    "Graph, as JSON",
    '{"nodes": [{"name": "a", "task": "extract"}], "edges": []}',
    "Nodes and edges, as in files.",
  ],
};

interface Draft {
  name: string;
  kind: Kind;
  work: string;
  args: string;
  when: When;
  description: string;
  options: OptionTexts;
}

const EMPTY: Draft = {
  name: "",
  kind: "command",
  work: "",
  args: "",
  when: { mode: "cron", text: "0 9 * * mon-fri", tz: ZONE },
  description: "",
  options: {},
};

export default function JobForm({ name }: { name?: string }) {
  const found = useGet("/jobs/{job}", { path: { job: name ?? "" }, on: name !== undefined, every: false });
  if (name === undefined) return <Form start={EMPTY} />;
  if (!found.data)
    return (
      <Page title={`Edit ${name}`}>
        <Pending error={found.error} />
      </Page>
    );
  return <Form start={draftOf(found.data)} job={found.data} />;
}

const text = (value: unknown) =>
  typeof value === "string" ? value : value === null || value === undefined ? "" : JSON.stringify(value, null, 2);

function draftOf(job: Job): Draft {
  const kind = job.kind as Kind;
  const work = {
    command: job.command,
    http: job.http,
    sql: job.sql,
    notify: job.notify,
    workflow: job.workflow,
    task: job.task,
  }[kind];
  const { description, ...options } = textsOf(job);
  return {
    name: job.name,
    kind,
    work: text(work),
    args: job.args && Object.keys(job.args).length ? text(job.args) : "",
    when: whenOf(job),
    description: description ?? "",
    options,
  };
}

/** Make the request. Text that looks like JSON is sent as JSON. */
function request(draft: Draft): { body?: NewJob; wrong?: Record<string, string> } {
  const wrong: Record<string, string> = {};
  const body: Record<string, unknown> = { name: draft.name };
  const isJson = ["sql", "notify", "workflow"].includes(draft.kind) || /^\s*[[{]/.test(draft.work);
  const work = draft.kind !== "task" && isJson ? readJson(draft.work) : { value: draft.work.trim(), wrong: false };
  if (work.wrong || !work.value) wrong.work = work.wrong ? "This is not JSON." : "Say what is to be run.";
  body[draft.kind] = work.value;
  if (draft.args.trim()) {
    const args = readObject(draft.args);
    if (!args) wrong.args = "This is not a JSON object.";
    body.args = args;
  }
  const schedule = whenToSend(draft.when);
  if (schedule !== undefined) body.schedule = schedule;
  Object.assign(body, optionsToSend({ description: draft.description, ...draft.options }));
  return Object.keys(wrong).length ? { wrong } : { body: body as NewJob };
}

function Form({ start, job }: { start: Draft; job?: Job }) {
  const [draft, setDraft] = useState(start);
  const [wrong, setWrong] = useState<Record<string, string>>({});
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const set = (some: Partial<Draft>) => setDraft((now) => ({ ...now, ...some }));
  const save = async () => {
    const made = request(draft);
    setWrong(made.wrong ?? {});
    setProblem("");
    if (!made.body) return;
    setBusy(true);
    try {
      const saved = job ? await change(job, start, made.body) : await call("post", "/jobs", { body: made.body });
      for (const one of saved.warnings ?? []) toast(one, "bad");
      toast(job ? `${saved.name} is version ${saved.version} now` : `${saved.name} is created`);
      void queries.invalidateQueries();
      navigate(jobPath(saved.name));
    } catch (error) {
      const fields = error instanceof ApiError ? error.fields : [];
      setWrong(Object.fromEntries(fields.map((one) => [placeOf(one.field), one.message])));
      setProblem((error as Error).message);
    }
    setBusy(false);
  };
  const input = (field: "name" | "description", label: string, hint = "") => (
    <TextField
      label={label}
      hint={hint}
      wrong={wrong[field]}
      required={field === "name"}
      disabled={field === "name" && job !== undefined}
      value={draft[field]}
      onChange={(value) => set({ [field]: value })}
    />
  );
  return (
    <Page
      title={job ? `Edit ${job.name}` : "New job"}
      crumbs={[["Jobs", "/jobs"]]}
      cli={job ? command("jobs update", {}, job.name) : "daybell jobs create --help"}
    >
      <form
        className="job-form"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        {problem && <Notice>{problem}</Notice>}
        {job?.author.startsWith("code:") && (
          <Notice tone="warn">
            This job is declared in code ({job.author.slice(5)}), which may set it again when its worker starts.
          </Notice>
        )}
        <Card title="What">
          <div className="stack">
            <div className="grid two tight">
              {input("name", "Name", "Unique; it cannot be changed later")}
              {input("description", "Description")}
            </div>
            {!job && (
              <Segments label="Kind" value={draft.kind} options={KINDS} onChange={(kind) => set({ kind, work: "" })} />
            )}
            {draft.kind === "task" ? (
              <TaskField
                value={draft.work}
                wrong={wrong.work}
                onChange={(work) => set({ work })}
                disabled={job !== undefined}
              />
            ) : (
              <TextField
                label={HINTS[draft.kind][0]}
                hint={HINTS[draft.kind][2]}
                wrong={wrong.work}
                rows={draft.kind === "workflow" ? 12 : 2}
                placeholder={HINTS[draft.kind][1]}
                value={draft.work}
                onChange={(value) => set({ work: value })}
              />
            )}
            <TextField
              label="Arguments, as a JSON object"
              hint="Empty: none"
              wrong={wrong.args}
              rows={1}
              placeholder="{}"
              value={draft.args}
              onChange={(value) => set({ args: value })}
            />
          </div>
        </Card>
        <Card title="When">
          <WhenFields when={draft.when} wrong={wrong.schedule} onChange={(when) => set({ when })} isNew={!job} />
        </Card>
        <Card title="How">
          <OptionFields texts={draft.options} wrong={wrong} onChange={(options) => set({ options })} />
        </Card>
        <div className="row">
          <Button type="submit" kind="primary" disabled={isBusy}>
            {job ? "Save as a new version" : "Create the job"}
          </Button>
          <Button onClick={() => navigate(job ? jobPath(job.name) : "/jobs")}>Cancel</Button>
        </div>
      </form>
    </Page>
  );
}

/** Send what differs; what was emptied goes back to its default. */
async function change(job: Job, start: Draft, body: NewJob): Promise<Job> {
  const before = (request(start).body ?? {}) as Record<string, unknown>;
  const after = body as unknown as Record<string, unknown>;
  const names = new Set([...Object.keys(before), ...Object.keys(after)]);
  const some: Record<string, unknown> = {};
  for (const name of names)
    if (JSON.stringify(before[name]) !== JSON.stringify(after[name])) some[name] = after[name] ?? null;
  return call("patch", "/jobs/{job}", { path: { job: job.name }, body: some as never });
}

const placeOf = (field: string) => {
  const name = field.split(/[.[]/)[0] ?? "";
  return ["command", "http", "sql", "notify", "workflow", "task"].includes(name)
    ? "work"
    : ["cron", "every", "at", "rrule", "tz"].includes(name)
      ? "schedule"
      : name;
};

function TaskField({
  value,
  wrong,
  disabled,
  onChange,
}: {
  value: string;
  wrong?: string;
  disabled: boolean;
  onChange: (value: string) => void;
}) {
  const workers = useGet("/workers", { every: false });
  const tasks = [...new Set((workers.data?.items ?? []).flatMap((one) => Object.keys(one.tasks ?? {})))].sort();
  return (
    <Field label="Task" hint="A task that a worker has registered" wrong={wrong}>
      {(id) => (
        <>
          <input
            id={id}
            className="input mono"
            list={`${id}-tasks`}
            disabled={disabled}
            value={value}
            onChange={(event) => onChange(event.target.value)}
          />
          <datalist id={`${id}-tasks`}>
            {tasks.map((one) => (
              <option key={one} value={one} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}
