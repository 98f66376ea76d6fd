/** When a job runs: the fields of a schedule, its meaning in words, and its next ten times. */

import { useEffect, useState } from "react";
import { type Job, useGet } from "../data/api.ts";
import { useNow } from "../data/format.ts";
import { Field, Segments, TextField } from "./controls.tsx";
import { Notice, Pending } from "./page.tsx";

export type Mode = "manual" | "now" | "cron" | "every" | "at" | "rrule" | "other";

export interface When {
  mode: Mode;
  text: string;
  tz: string;
}

const LABELS: Record<string, [string, string]> = {
  cron: ["Cron expression", "0 9 * * mon-fri"],
  every: ["Every", "15m"],
  at: ["At", "2027-01-01T09:00:00Z"],
  rrule: ["Recurrence rule", "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=9;BYMINUTE=0;BYSECOND=0"],
};

/** The schedule of a job, if the fields can show it; otherwise JSON. */
export function whenOf(job: Job): When {
  const declared = job.schedules.filter((one) => one.is_declared).map((one) => one.rule as Record<string, unknown>);
  const [rule] = declared;
  if (!rule) return { mode: "manual", text: "", tz: "" };
  const { tz, ...rest } = rule;
  const [[mode, text] = ["", ""], ...others] = Object.entries(rest);
  if (declared.length === 1 && !others.length && mode in LABELS && typeof text === "string")
    return { mode: mode as Mode, text, tz: typeof tz === "string" ? tz : "" };
  return { mode: "other", text: JSON.stringify(declared.length === 1 ? rule : declared, null, 2), tz: "" };
}

/** What the API is sent; undefined: nothing, which means once, now. */
export function whenToSend({ mode, text, tz }: When): unknown {
  if (mode === "now") return undefined;
  if (mode === "manual") return "manual";
  if (mode === "other") {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  const hasZone = tz !== "" && mode !== "at";
  return { [mode]: text, ...(hasZone && { tz }) };
}

export function WhenFields({
  when,
  wrong,
  isNew,
  onChange,
}: {
  when: When;
  wrong?: string;
  isNew: boolean;
  onChange: (when: When) => void;
}) {
  const modes: [Mode, string][] = [
    ["cron", "Cron"],
    ["every", "Interval"],
    ["at", "Once"],
    ["rrule", "Rule"],
    ["manual", "By hand"],
  ];
  if (isNew) modes.push(["now", "Now, once"]);
  modes.push(["other", "JSON"]);
  const label = LABELS[when.mode];
  return (
    <div className="stack">
      <Segments
        label="Schedule"
        value={when.mode}
        options={modes}
        onChange={(mode) => onChange({ ...when, mode, text: mode === "other" ? "{}" : (LABELS[mode]?.[1] ?? "") })}
      />
      {label && (
        <div className="grid two tight">
          <TextField
            label={label[0]}
            wrong={wrong}
            mono
            placeholder={label[1]}
            value={when.text}
            onChange={(value) => onChange({ ...when, text: value })}
          />
          {when.mode !== "at" && <ZoneField value={when.tz} onChange={(tz) => onChange({ ...when, tz })} />}
        </div>
      )}
      {when.mode === "other" && (
        <TextField
          label="Schedule, as JSON"
          hint="One schedule, or a list"
          wrong={wrong}
          rows={5}
          value={when.text}
          onChange={(value) => onChange({ ...when, text: value })}
        />
      )}
      {when.mode === "manual" && (
        <p className="muted">It runs when it is triggered: here, by the command line, by code, or after other jobs.</p>
      )}
      {when.mode === "now" && <p className="muted">It runs once, as soon as it is created.</p>}
      {label && when.text.trim() && <NextTimes when={when} />}
    </div>
  );
}

export function ZoneField({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const zones = Intl.supportedValuesOf("timeZone");
  return (
    <Field label="Time zone" hint="Empty: UTC">
      {(id) => (
        <>
          <input
            id={id}
            className="input"
            list={`${id}-zones`}
            value={value}
            onChange={(event) => onChange(event.target.value)}
          />
          <datalist id={`${id}-zones`}>
            {zones.map((one) => (
              <option key={one} value={one} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}

function NextTimes({ when }: { when: When }) {
  const [asked, setAsked] = useState(when);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(when), 200);
    return () => clearTimeout(timer);
  }, [when]);
  const query = { [asked.mode]: asked.text, count: 10, ...(asked.tz && asked.mode !== "at" ? { tz: asked.tz } : {}) };
  const preview = useGet("/schedules/preview", { query, every: false });
  useNow();
  if (preview.error) return <Notice tone="warn">{preview.error.message}</Notice>;
  if (!preview.data) return <Pending error={null} lines={2} />;
  return (
    <div className="next-times" aria-live="polite">
      <b>{preview.data.description}</b>
      {preview.data.warnings?.map((one) => (
        <Notice key={one} tone="warn">
          {one}
        </Notice>
      ))}
      <ol className="small num">
        {preview.data.next.map((at) => (
          <li key={at}>{words(at)}</li>
        ))}
      </ol>
      {!preview.data.next.length && <span className="tone-warn">It will never fire.</span>}
    </div>
  );
}

/** A time in the zone of the schedule, which its text has. */
function words(at: string) {
  const date = new Date(`${at.slice(0, 10)}T12:00:00Z`);
  const day = date.toLocaleDateString("en", {
    weekday: "short",
    day: "numeric",
    month: "short",
    year: "numeric",
    timeZone: "UTC",
  });
  return `${day}, ${at.slice(11, 19)} ${at.slice(19).replace("Z", "UTC")}`;
}
