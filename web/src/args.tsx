/** Arguments: a form made from the parameters of a workflow or the last run, or JSON. */

import { useState } from "react";
import { type Job, useGet } from "./api.ts";
import { readJson, readObject } from "./execution.tsx";
import { Button, Field, Pending } from "./ui.tsx";

interface ArgField {
  name: string;
  type: "string" | "number" | "boolean" | "json";
  isNeeded: boolean;
  /** What is sent if the field is left empty: nothing, and this applies. */
  unset: string;
}

interface Args {
  fields: ArgField[];
  texts: Record<string, string>;
  json: string;
  isJson: boolean;
  isPending: boolean;
  /** Null: what was typed cannot be sent. */
  value: Record<string, unknown> | null;
  wrong: Record<string, string>;
  set: (name: string, text: string) => void;
  setJson: (text: string) => void;
  flip: () => void;
}

const typeOf = (value: unknown): ArgField["type"] =>
  typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? (typeof value as ArgField["type"]) : "json";
const textOf = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

/** The parameters of a workflow, or the arguments of the last run with their types. */
function fieldsOf(job: Job, before: Record<string, unknown>): ArgField[] {
  const params = (job.workflow as { params?: (string | { name: string; default?: unknown })[] } | null)?.params ?? [];
  const declared = params.map((one) => (typeof one === "string" ? { name: one } : one)).map((one): ArgField => {
    const hasDefault = "default" in one;
    return { name: one.name, type: hasDefault ? typeOf(one.default) : typeOf(before[one.name] ?? null), isNeeded: !hasDefault, unset: hasDefault ? JSON.stringify(one.default) : "" };
  });
  if (declared.length) return declared;
  return Object.entries(before).map(([name, value]) => ({ name, type: typeOf(value), isNeeded: false, unset: "" }));
}

/** The state of a form for the arguments of a job. */
export function useArgs(job: Job): Args {
  const last = useGet("/executions", { query: { job: job.name, limit: 1 }, every: false });
  const before = last.data?.items[0]?.args ?? job.args ?? {};
  const fields = fieldsOf(job, before);
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [typedJson, setTypedJson] = useState<string | null>(null);
  const [asksJson, setAsksJson] = useState(false);
  const isJson = asksJson || !fields.length;
  const texts = Object.fromEntries(fields.map(({ name }) => [name, typed[name] ?? (name in before ? textOf(before[name]) : "")]));
  const wrong: Record<string, string> = {};
  const made: Record<string, unknown> = {};
  for (const field of fields) {
    const text = texts[field.name] ?? "";
    if (text === "") {
      if (field.isNeeded) wrong[field.name] = "It has no default.";
      continue;
    }
    const read = readField(field.type, text);
    if (read.wrong) wrong[field.name] = read.wrong;
    else made[field.name] = read.value;
  }
  const json = typedJson ?? JSON.stringify(before, null, 2);
  return {
    fields, texts, json, isJson, wrong,
    isPending: last.isPending,
    value: isJson ? readObject(json) : Object.keys(wrong).length ? null : made,
    set: (name, text) => setTyped((all) => ({ ...all, [name]: text })),
    setJson: setTypedJson,
    flip: () => {
      if (!isJson) setTypedJson(JSON.stringify(made, null, 2));
      setAsksJson(!isJson);
    },
  };
}

function readField(type: ArgField["type"], text: string): { value?: unknown; wrong?: string } {
  if (type === "string") return { value: text };
  if (type === "boolean") return { value: text === "true" };
  if (type === "number") return Number.isNaN(Number(text)) ? { wrong: "This is not a number." } : { value: Number(text) };
  const read = readJson(text);
  return read.wrong ? { value: text } : { value: read.value };
}

export function ArgsFields({ args }: { args: Args }) {
  if (args.isPending) return <Pending error={null} lines={3} />;
  return (
    <>
      {args.isJson ? (
        <Field label="Arguments, as a JSON object" hint="Those of the last run are filled in" wrong={args.value ? undefined : "This is not a JSON object."}>
          {(id) => <textarea id={id} className="area" rows={8} spellCheck={false} value={args.json} onChange={(event) => args.setJson(event.target.value)} />}
        </Field>
      ) : (
        args.fields.map((field) => <ArgInput key={field.name} field={field} args={args} />)
      )}
      {args.fields.length > 0 && <span><Button size="small" kind="quiet" onClick={args.flip}>{args.isJson ? "Use the form" : "Edit as JSON"}</Button></span>}
    </>
  );
}

function ArgInput({ field, args }: { field: ArgField; args: Args }) {
  const { name, type } = field;
  const text = args.texts[name] ?? "";
  const set = (value: string) => args.set(name, value);
  return (
    <Field label={name} hint={field.isNeeded ? undefined : field.unset ? `Default: ${field.unset}` : "Empty: not sent"} wrong={args.wrong[name]}>
      {(id) =>
        type === "boolean" ? (
          <select id={id} className="select" value={text} onChange={(event) => set(event.target.value)}>
            <option value="">not set</option><option>true</option><option>false</option>
          </select>
        ) : type === "json" ? (
          <textarea id={id} className="area" rows={2} spellCheck={false} value={text} onChange={(event) => set(event.target.value)} />
        ) : (
          <input id={id} className="input" inputMode={type === "number" ? "decimal" : undefined} value={text} onChange={(event) => set(event.target.value)} />
        )
      }
    </Field>
  );
}
