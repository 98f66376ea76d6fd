/** Arguments: a form made from the signature of a job or from its last run, or JSON. */

import { useState } from "react";
import { type Job, useGet } from "../data/api.ts";
import { readJson, readObject } from "../data/format.ts";
import { Button, Field, TextField } from "./controls.tsx";
import { Pending } from "./page.tsx";

interface ArgField {
  name: string;
  type: "string" | "number" | "integer" | "boolean" | "choice" | "json";
  choices: unknown[];
  isNeeded: boolean;
  /** What it takes, or what applies if the field is left empty. */
  hint: string;
}

interface Args {
  fields: ArgField[];
  texts: Record<string, string>;
  json: string;
  isJson: boolean;
  isPending: boolean;
  takesNone: boolean;
  /** Null: what was typed cannot be sent. */
  value: Record<string, unknown> | null;
  wrong: Record<string, string>;
  set: (name: string, text: string) => void;
  setJson: (text: string) => void;
  flip: () => void;
}

const typeOf = (value: unknown): ArgField["type"] =>
  typeof value === "string" || typeof value === "number" || typeof value === "boolean"
    ? (typeof value as ArgField["type"])
    : "json";
const textOf = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

interface Schema {
  type?: string;
  format?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  anyOf?: Schema[];
  $ref?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  $defs?: Record<string, Schema>;
  additionalProperties?: boolean;
}

const PLAIN = ["string", "number", "integer", "boolean"];

/** What a value may be: one field for plain types and choices, JSON for all else. */
function inputOf(schema: Schema, defs: Record<string, Schema>): Pick<ArgField, "type" | "choices"> & { words: string } {
  const known = schema.$ref ? (defs[schema.$ref.split("/").at(-1) ?? ""] ?? {}) : schema;
  const some = known.anyOf?.filter((one) => one.type !== "null");
  if (some?.length === 1) return inputOf(some[0] as Schema, defs);
  const choices = known.enum?.filter((one) => one !== null) ?? [];
  if (choices.length) return { type: "choice", choices, words: "" };
  const type = PLAIN.includes(known.type ?? "") ? (known.type as ArgField["type"]) : "json";
  return { type, choices: [], words: known.format ?? known.type ?? "any value, as JSON" };
}

/** The arguments that the code declares, or those of the last run with their types. */
function fieldsOf(schema: Schema | null, before: Record<string, unknown>): ArgField[] {
  if (!schema?.properties)
    return Object.entries(before).map(([name, value]) => ({
      name,
      type: typeOf(value),
      choices: [],
      isNeeded: false,
      hint: "Empty: not sent",
    }));
  return Object.entries(schema.properties).map(([name, one]): ArgField => {
    const { type, choices, words } = inputOf(one, schema.$defs ?? {});
    const isUntyped = !Object.keys(one).some((key) => key !== "default");
    const isNeeded = schema.required?.includes(name) ?? false;
    const unset =
      "default" in one ? `default: ${JSON.stringify(one.default)}` : isNeeded ? "required" : "empty: not sent";
    return {
      name,
      type: isUntyped ? typeOf(before[name] ?? one.default ?? null) : type,
      choices,
      isNeeded,
      hint: [words, unset].filter(Boolean).join(", "),
    };
  });
}

/** The state of a form for the arguments of a job. */
export function useArgs(job: Pick<Job, "name" | "args">, given?: Record<string, unknown>): Args {
  const last = useGet("/executions", { query: { job: job.name, limit: 1 }, every: false, on: given === undefined });
  const signature = useGet("/jobs/{job}/signature", { path: { job: job.name }, every: false });
  const before = given ?? last.data?.items[0]?.args ?? job.args ?? {};
  const schema = (signature.data?.schema as Schema | null) ?? null;
  const fields = fieldsOf(schema, before);
  const takesNone = schema?.additionalProperties === false && !fields.length;
  const [typed, setTyped] = useState<Record<string, string>>({});
  const [typedJson, setTypedJson] = useState<string | null>(null);
  const [asksJson, setAsksJson] = useState(false);
  const isJson = asksJson || (!fields.length && !takesNone);
  const texts = Object.fromEntries(
    fields.map(({ name }) => [name, typed[name] ?? (name in before ? textOf(before[name]) : "")]),
  );
  const wrong: Record<string, string> = {};
  const made: Record<string, unknown> = {};
  for (const field of fields) {
    const text = texts[field.name] ?? "";
    if (text === "") {
      if (field.isNeeded) wrong[field.name] = "It has no default.";
      continue;
    }
    const read = readField(field, text);
    if (read.wrong) wrong[field.name] = read.wrong;
    else made[field.name] = read.value;
  }
  const json = typedJson ?? JSON.stringify(before, null, 2);
  return {
    fields,
    texts,
    json,
    isJson,
    wrong,
    takesNone,
    isPending: (last.isPending && given === undefined) || signature.isPending,
    value: isJson ? readObject(json) : Object.keys(wrong).length ? null : made,
    set: (name, text) => setTyped((all) => ({ ...all, [name]: text })),
    setJson: setTypedJson,
    flip: () => {
      if (!isJson) setTypedJson(JSON.stringify(made, null, 2));
      setAsksJson(!isJson);
    },
  };
}

function readField({ type, choices }: ArgField, text: string): { value?: unknown; wrong?: string } {
  if (type === "string") return { value: text };
  if (type === "boolean") return { value: text === "true" };
  if (type === "choice") return { value: choices.find((one) => textOf(one) === text) };
  if (type === "integer" && !/^[+-]?\d+$/.test(text.trim())) return { wrong: "This is not a whole number." };
  if (type === "number" || type === "integer")
    return Number.isNaN(Number(text)) ? { wrong: "This is not a number." } : { value: Number(text) };
  const read = readJson(text);
  return read.wrong ? { value: text } : { value: read.value };
}

export function ArgsFields({ args }: { args: Args }) {
  if (args.isPending) return <Pending error={null} lines={3} />;
  if (args.takesNone) return <p className="muted">It takes no arguments.</p>;
  return (
    <>
      {args.isJson ? (
        <TextField
          label="Arguments, as a JSON object"
          hint="Those of the last run are filled in"
          wrong={args.value ? undefined : "This is not a JSON object."}
          rows={8}
          value={args.json}
          onChange={(value) => args.setJson(value)}
        />
      ) : (
        args.fields.map((field, at) => <ArgInput key={field.name} field={field} args={args} isFirst={at === 0} />)
      )}
      {args.fields.length > 0 && (
        <span>
          <Button size="small" kind="quiet" onClick={args.flip}>
            {args.isJson ? "Use the form" : "Edit as JSON"}
          </Button>
        </span>
      )}
    </>
  );
}

function ArgInput({ field, args, isFirst }: { field: ArgField; args: Args; isFirst: boolean }) {
  const { name, type } = field;
  const text = args.texts[name] ?? "";
  const set = (value: string) => args.set(name, value);
  return (
    <Field label={name} hint={field.hint} wrong={args.wrong[name]}>
      {(id) =>
        type === "boolean" || type === "choice" ? (
          <select
            id={id}
            className="select"
            autoFocus={isFirst}
            value={text}
            onChange={(event) => set(event.target.value)}
          >
            <option value="">not set</option>
            {(type === "boolean" ? [true, false] : field.choices).map((one) => (
              <option key={textOf(one)}>{textOf(one)}</option>
            ))}
          </select>
        ) : type === "json" ? (
          <textarea
            id={id}
            className="area"
            autoFocus={isFirst}
            rows={2}
            spellCheck={false}
            value={text}
            onChange={(event) => set(event.target.value)}
          />
        ) : (
          <input
            id={id}
            className="input"
            autoFocus={isFirst}
            required={field.isNeeded}
            inputMode={type === "number" || type === "integer" ? "decimal" : undefined}
            value={text}
            onChange={(event) => set(event.target.value)}
          />
        )
      }
    </Field>
  );
}
