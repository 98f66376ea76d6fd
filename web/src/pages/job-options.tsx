/** The options of a job, from their table: fields to set them, and those that are set. */

import { useState } from "react";
import { type Job } from "../data/api.ts";
import { duration } from "../data/format.ts";
import { type JobOption, OPTIONS } from "../data/options.ts";
import { Button, Search } from "../parts/controls.tsx";
import { Fact } from "../parts/page.tsx";
import { Told } from "../parts/status.tsx";

export type OptionTexts = Record<string, string>;

const KNOWN = new Map(OPTIONS.map((one) => [one.name, one]));
/** Options with a field in sight; all others are found by their name or meaning. */
const USUAL = ["queue", "priority", "retries", "timeout", "overlap", "concurrency", "rate", "user_id"];
/** Parts of an answer that are options of a request. */
const PARTS: Record<string, (job: Job) => unknown> = {
  retries: (job) => (job.retry as { retries?: number }).retries,
  backoff: (job) => {
    const { retries: _, ...rest } = job.retry as Record<string, unknown>;
    return rest;
  },
};
const DEFAULT_BACKOFF = { backoff: "exponential", base: 1, factor: 2, cap: 3600, jitter: 0.1 };

const isEmpty = (value: unknown) =>
  value === null || value === undefined || value === "" || (typeof value === "object" && !Object.keys(value).length);

/** The value of an option, if it is not the default. */
function valueOf(job: Job, one: JobOption): unknown {
  const value = PARTS[one.name]?.(job) ?? (job as unknown as Record<string, unknown>)[one.name];
  const unset = one.name === "backoff" ? DEFAULT_BACKOFF : one.unset;
  return isEmpty(value) || JSON.stringify(value) === JSON.stringify(unset) ? undefined : value;
}

const textOf = (value: unknown) =>
  value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);

/** The texts of the fields for a job. */
export const textsOf = (job: Job): OptionTexts =>
  Object.fromEntries(OPTIONS.map((one) => [one.name, textOf(valueOf(job, one))]).filter(([, text]) => text));

/** What is sent: text that is JSON as JSON, unless the option is a text. */
export function optionsToSend(texts: OptionTexts): Record<string, unknown> {
  const read = (name: string, text: string): unknown => {
    if (["text", "choice"].includes(KNOWN.get(name)?.type ?? "text")) return text;
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  };
  return Object.fromEntries(
    Object.entries(texts)
      .filter(([, text]) => text.trim())
      .map(([name, text]) => [name, read(name, text.trim())]),
  );
}

const labelOf = (name: string) =>
  (name === "user_id" ? "owner" : name.replaceAll("_", " ")).replace(/^./, (first) => first.toUpperCase());
const unsetOf = (one: JobOption) => (isEmpty(one.unset) ? "not set" : textOf(one.unset));

interface Fields {
  texts: OptionTexts;
  wrong: Record<string, string>;
  onChange: (texts: OptionTexts) => void;
}

function OptionRow({ one, texts, wrong, onChange }: Fields & { one: JobOption }) {
  const id = `option-${one.name}`;
  const value = texts[one.name] ?? "";
  const set = (text: string) => onChange({ ...texts, [one.name]: text });
  const choices = one.type === "flag" ? ["true", "false"] : one.choices;
  return (
    <div className="option-row field">
      <div>
        <label htmlFor={id}>{labelOf(one.name)}</label>
        <p className="hint">
          <Told text={one.meaning} />
        </p>
      </div>
      <div>
        {choices.length ? (
          <select id={id} className="select" value={value} onChange={(event) => set(event.target.value)}>
            <option value="">default: {unsetOf(one)}</option>
            {choices.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        ) : (
          <input
            id={id}
            className={`input ${/^[[{]/.test(value) ? "mono" : ""}`}
            spellCheck={false}
            placeholder={unsetOf(one)}
            value={value}
            onChange={(event) => set(event.target.value)}
          />
        )}
        {wrong[one.name] && (
          <span className="wrong" role="alert">
            {wrong[one.name]}
          </span>
        )}
      </div>
    </div>
  );
}

export function OptionFields(fields: Fields) {
  const { texts, wrong } = fields;
  const [q, setQ] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [given] = useState(() => Object.keys(texts));
  const word = q.trim().toLowerCase();
  // What is set, or wrong, is always in sight.
  const isUsual = (one: JobOption) => USUAL.includes(one.name) || given.includes(one.name) || one.name in wrong;
  const usual = OPTIONS.filter((one) => isUsual(one) && one.name !== "description");
  const others = OPTIONS.filter((one) => !isUsual(one) && one.name !== "description");
  const found = others.filter((one) => `${labelOf(one.name)} ${one.name} ${one.meaning}`.toLowerCase().includes(word));
  return (
    <div className="option-rows">
      {usual.map((one) => (
        <OptionRow key={one.name} one={one} {...fields} />
      ))}
      <div className="row option-more">
        <Button size="small" icon={isOpen ? "up" : "down"} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Fewer options" : `All options (${others.length} more)`}
        </Button>
        {isOpen && (
          <Search
            label="Find an option"
            placeholder="Find an option: debounce, cache, gpu…"
            value={q}
            onChange={setQ}
          />
        )}
      </div>
      {isOpen && found.map((one) => <OptionRow key={one.name} one={one} {...fields} />)}
      {isOpen && !found.length && <p className="muted">No option has this in its name or meaning.</p>}
    </div>
  );
}

/** A value as people read it: `limit 2, key account`. */
function wordsOf(value: unknown): string {
  if (Array.isArray(value))
    return value.map(wordsOf).join(Array.isArray(value[0]) || typeof value[0] === "object" ? "; " : ", ");
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value)
    .filter(([, one]) => !isEmpty(one))
    .map(([name, one]) => `${name} ${wordsOf(one)}`)
    .join(", ");
}

/** The options of a job that are not the default. */
export function SetOptions({ job }: { job: Job }) {
  const set = OPTIONS.flatMap((one) => {
    const value = one.name === "description" ? undefined : valueOf(job, one);
    return value === undefined ? [] : [{ one, value }];
  });
  return (
    <>
      {set.map(({ one, value }) => (
        <Fact key={one.name} name={labelOf(one.name)} title={one.meaning}>
          {one.type === "duration" && typeof value === "number" ? duration(value) : wordsOf(value)}
        </Fact>
      ))}
    </>
  );
}
