/** Arguments: a form made from the signature of a task, or JSON where there is none. */

import { useState } from "react";
import { type Job, useGet } from "./api.ts";
import { readObject } from "./execution.tsx";
import { Button, Field, Pending } from "./ui.tsx";

export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  format?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  anyOf?: Schema[];
}

export interface Args {
  schema: Schema | null;
  texts: Record<string, string>;
  json: string;
  isJson: boolean;
  isEmpty: boolean;
  /** Null: what was typed cannot be sent. */
  value: Record<string, unknown> | null;
  wrong: Record<string, string>;
  isPending: boolean;
  set: (name: string, text: string) => void;
  setJson: (text: string) => void;
  flip: () => void;
}

/** The state of a form for the arguments of a job. */
export function useArgs(job: Job): Args {
  const last = useGet("/executions", { query: { job: job.name, limit: 1 }, every: false });
  const schema = signatureOf(job);
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [typed, setTyped] = useState<string | null>(null);
  const [isJson, setIsJson] = useState(schema === null);
  const before = last.data?.items[0]?.args ?? job.args ?? {};
  const json = typed ?? JSON.stringify(before, null, 2);
  const wrong: Record<string, string> = {};
  const made: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(schema?.properties ?? {})) {
    const text = texts[name] ?? "";
    if (text === "") {
      if (schema?.required?.includes(name)) wrong[name] = "";
      continue;
    }
    const read = readField(field, text);
    if (read.wrong) wrong[name] = read.wrong;
    else made[name] = read.value;
  }
  const object = readObject(json);
  return {
    schema, texts, json, isJson, wrong,
    isPending: last.isPending,
    isEmpty: isJson ? object !== null && Object.keys(object).length === 0 : Object.keys(made).length === 0,
    value: isJson ? object : Object.keys(wrong).length ? null : made,
    set: (name, text) => setTexts((all) => ({ ...all, [name]: text })),
    setJson: setTyped,
    flip: () => {
      if (!isJson && Object.keys(made).length) setTyped(JSON.stringify(made, null, 2));
      setIsJson(!isJson);
    },
  };
}

const signatureOf = (job: Job): Schema | null => {
  const found = (job as { parameters?: Schema | null }).parameters;
  return found?.properties ? found : null;
};

const typeOf = (field: Schema) => {
  const types = [field.type, ...(field.anyOf?.map((one) => one.type) ?? [])].flat();
  return types.find((one) => one && one !== "null") ?? "any";
};

function readField(field: Schema, text: string): { value?: unknown; wrong?: string } {
  const type = typeOf(field);
  if (type === "string") return { value: text };
  if (type === "boolean") return { value: text === "true" };
  if (type === "number" || type === "integer") {
    const number = Number(text);
    if (Number.isNaN(number) || (type === "integer" && !Number.isInteger(number)))
      return { wrong: type === "integer" ? "A whole number" : "A number" };
    return { value: number };
  }
  try {
    return { value: JSON.parse(text) };
  } catch {
    return type === "any" ? { value: text } : { wrong: `JSON: ${type}` };
  }
}

export function ArgsFields({ args }: { args: Args }) {
  if (args.isPending) return <Pending error={null} lines={3} />;
  return (
    <>
      {args.isJson || !args.schema ? (
        <Field label="Arguments, as a JSON object" hint="Those of the last run are filled in" wrong={args.value ? undefined : "This is not a JSON object."}>
          {(id) => <textarea id={id} className="area" rows={8} spellCheck={false} value={args.json} onChange={(event) => args.setJson(event.target.value)} />}
        </Field>
      ) : (
        Object.entries(args.schema.properties ?? {}).map(([name, field]) => <ArgField key={name} name={name} field={field} args={args} />)
      )}
      {args.schema && <Button size="small" kind="quiet" onClick={args.flip}>{args.isJson ? "Use the form" : "Edit as JSON"}</Button>}
    </>
  );
}

function ArgField({ name, field, args }: { name: string; field: Schema; args: Args }) {
  const isNeeded = args.schema?.required?.includes(name) ?? false;
  const text = args.texts[name] ?? "";
  const type = typeOf(field);
  const unset = field.default === undefined ? (isNeeded ? "" : "not set") : JSON.stringify(field.default);
  const choices = field.enum?.map(String) ?? (type === "boolean" ? ["true", "false"] : null);
  const set = (value: string) => args.set(name, value);
  return (
    <Field label={isNeeded ? name : `${name} (optional)`} hint={field.description ?? type} wrong={args.wrong[name] || undefined}>
      {(id) =>
        choices ? (
          <select id={id} className="select" required={isNeeded} value={text} onChange={(event) => set(event.target.value)}>
            <option value="">{unset || "choose"}</option>
            {choices.map((one) => <option key={one}>{one}</option>)}
          </select>
        ) : type === "object" || type === "array" ? (
          <textarea id={id} className="area" rows={3} spellCheck={false} required={isNeeded} placeholder={unset} value={text} onChange={(event) => set(event.target.value)} />
        ) : (
          <input id={id} className="input" required={isNeeded} placeholder={unset} inputMode={type === "integer" || type === "number" ? "decimal" : undefined} value={text} onChange={(event) => set(event.target.value)} />
        )
      }
    </Field>
  );
}
