/** The calendar: fires by day and hour in any time zone, changes of the clock, and the minutes in which many meet. */

import { useEffect, useMemo, useState } from "react";
import { type Answer, useList } from "../data/api.ts";
import { command, count, plural, useNow, ZONE } from "../data/format.ts";
import { executionPath, jobPath, Link, useFilter } from "../data/router.tsx";
import { Button } from "../parts/controls.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Card, Empty, Notice, Page, Pending } from "../parts/page.tsx";
import { Status } from "../parts/status.tsx";
import { type When, WhenFields, ZoneField } from "../parts/when.tsx";

type Entry = Answer<"get", "/schedules/upcoming">["items"][number];

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const DAYS = 7;
const TIMES_MAX = 300;
const CROWD = 5;

interface Fire {
  at: number;
  job: string;
  decision: Entry["fires"][number]["decision"];
  number: number;
  reason: string | null;
  execution: string | null;
}

const STATE_OF = { fired: "succeeded", skipped: "skipped", missed: "failed", upcoming: "scheduled" } as const;

const dayName = (day: string) =>
  new Date(`${day}T12:00:00Z`).toLocaleDateString("en", {
    weekday: "short",
    day: "numeric",
    month: "short",
    timeZone: "UTC",
  });

const wall = (at: number, zone: string) =>
  new Date(at).toLocaleString("en", {
    timeZone: zone || "UTC",
    weekday: "short",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });

interface Slot {
  day: string;
  hour: number;
}

/** The wall clock of a zone. */
function useSlots(zone: string) {
  return useMemo(() => {
    let format: Intl.DateTimeFormat;
    try {
      format = new Intl.DateTimeFormat("en-CA", {
        timeZone: zone || "UTC",
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        hourCycle: "h23",
      });
    } catch {
      format = new Intl.DateTimeFormat("en-CA", {
        timeZone: "UTC",
        year: "numeric",
        month: "2-digit",
        day: "2-digit",
        hour: "2-digit",
        hourCycle: "h23",
      });
    }
    return (at: number): Slot => {
      const [day = "", hour = "0"] = format.format(at).split(", ");
      return { day, hour: Number(hour) };
    };
  }, [zone]);
}

/** The hours of these days that the clock skips (0) or has twice (2). A change by half an hour is not seen. */
function changesOf(slotOf: (at: number) => Slot, start: number, days: string[]) {
  const seen = new Map<string, number>();
  for (let at = start - DAY; at < start + (DAYS + 1) * DAY; at += HOUR) {
    const { day, hour } = slotOf(at);
    const key = `${day} ${hour}`;
    seen.set(key, (seen.get(key) ?? 0) + 1);
  }
  const found = new Map<string, number>();
  for (const day of days)
    for (let hour = 0; hour < 24; hour++) {
      const times = seen.get(`${day} ${hour}`) ?? 0;
      if (times !== 1) found.set(`${day} ${hour}`, times);
    }
  return found;
}

export default function CalendarPage() {
  const [isTrying, setTrying] = useState(false);
  const [tried, setTried] = useState<When>({ mode: "cron", text: "0 9 * * mon-fri", tz: ZONE });
  const [zone, setZone] = useFilter("tz", ZONE);
  const [offset, setOffset] = useFilter("week", "0");
  const [picked, setPicked] = useState<Slot | null>(null);
  const now = useNow();
  const slotOf = useSlots(zone);
  const week = Number(offset) || 0;
  const today = Math.floor(now / DAY) * DAY;
  const start = today + week * DAYS * DAY;
  const end = start + DAYS * DAY;
  const list = useList<Entry>("/schedules/upcoming", {
    since: new Date(start).toISOString(),
    until: new Date(end).toISOString(),
    limit: 100,
  });
  // One view shows all schedules: the rest of them is read as well.
  useEffect(() => list.more());
  const often = list.rows.filter((one) => one.has_more);
  const fires = list.rows
    .filter((one) => !one.has_more)
    .flatMap((one) =>
      one.fires.map((fire): Fire => ({
        at: Date.parse(fire.at),
        job: one.job,
        decision: fire.decision,
        number: fire.count,
        reason: fire.reason,
        execution: fire.execution_id,
      })),
    );
  const coming = fires.filter((fire) => fire.decision === "upcoming");
  const cells = new Map<string, Fire[]>();
  for (const fire of fires) {
    const { day, hour } = slotOf(fire.at);
    const key = `${day} ${hour}`;
    cells.set(key, [...(cells.get(key) ?? []), fire]);
  }
  const days = [...new Set(Array.from({ length: DAYS * 4 }, (_, at) => slotOf(start + at * (DAY / 4)).day))].slice(
    0,
    DAYS,
  );
  const changes = useMemo(() => changesOf(slotOf, start, days), [slotOf, start, days.join()]);
  const most = Math.max(1, ...[...cells.values()].map((one) => one.length));
  const minutes = new Map<number, Set<string>>();
  for (const fire of coming) {
    const minute = Math.floor(fire.at / 60_000) * 60_000;
    minutes.set(minute, (minutes.get(minute) ?? new Set()).add(fire.job));
  }
  // The same jobs meet day after day: one notice for all of their minutes.
  const crowds = new Map<string, number[]>();
  for (const [minute, names] of minutes)
    if (names.size >= CROWD) {
      const key = [...names].sort().join(", ");
      crowds.set(key, [...(crowds.get(key) ?? []), minute]);
    }
  const crowded = [...crowds].sort((a, b) => b[0].split(", ").length - a[0].split(", ").length).slice(0, 3);
  const shown = picked ? (cells.get(`${picked.day} ${picked.hour}`) ?? []).sort((a, b) => a.at - b.at) : [];
  const nowSlot = slotOf(now);
  return (
    <Page
      title="Calendar"
      cli={command("export", { what: "ticks", since: "7d" })}
      actions={
        <>
          <Button onClick={() => setTrying(true)}>Try a schedule</Button>
          <Button onClick={() => setOffset(String(week - 1))}>Earlier</Button>
          <Button pressed={week === 0} onClick={() => setOffset("0")}>
            This week
          </Button>
          <Button onClick={() => setOffset(String(week + 1))}>Later</Button>
        </>
      }
    >
      {isTrying && (
        <Dialog title="Try a schedule: nothing is stored" wide onClose={() => setTrying(false)}>
          <WhenFields when={tried} isNew={false} onChange={setTried} />
        </Dialog>
      )}
      {[...changes].map(([key, times]) => {
        const [day = "", hour = ""] = key.split(" ");
        const from = `${hour.padStart(2, "0")}:00`;
        return (
          <Notice key={key} tone="warn">
            <b>The clocks change on {dayName(day)}</b>: the hour from {from} in {zone}{" "}
            {times ? "comes twice" : "does not exist"}. The dst option of a schedule decides about its times in it.
          </Notice>
        );
      })}
      <div className="toolbar calendar-zone">
        <ZoneField value={zone} onChange={setZone} />
        <span className="small faint">A number is how many times fire in the hour; press it to see them.</span>
      </div>
      {list.isPending ? (
        <Pending error={list.error} lines={8} />
      ) : !list.rows.length ? (
        <Card>
          <Empty
            icon="calendar"
            title="Nothing fires in these days"
            command={'daybell jobs create disk --every 1h --command "df -h ."'}
          />
        </Card>
      ) : (
        <>
          {crowded.map(([names, at]) => (
            <Notice key={names} tone="warn">
              <b>{plural(names.split(", ").length, "job")} fire in the same minute</b> at{" "}
              {at
                .slice(0, 7)
                .map((minute) => wall(minute, zone))
                .join(", ")}
              {at.length > 7 && ` and ${plural(at.length - 7, "more time")}`}:{" "}
              {names.split(", ").slice(0, 6).join(", ")}
              {names.split(", ").length > 6 && ", …"}. A jitter spreads them.
            </Notice>
          ))}
          <Card flush>
            <div className="calendar" role="region" aria-label="Fires by day and hour" tabIndex={0}>
              <div className="calendar-row calendar-head">
                <span />
                {Array.from({ length: 24 }, (_, hour) => (
                  <span key={hour} className="num">
                    {String(hour).padStart(2, "0")}
                  </span>
                ))}
              </div>
              {days.map((day) => (
                <div key={day} className="calendar-row">
                  <span className="num small">{dayName(day)}</span>
                  {Array.from({ length: 24 }, (_, hour) => {
                    const here = cells.get(`${day} ${hour}`) ?? [];
                    const bad = here.filter((fire) => fire.decision === "missed").length;
                    const isNow = nowSlot.day === day && nowSlot.hour === hour;
                    const change = changes.get(`${day} ${hour}`);
                    const said =
                      change === undefined ? "" : change ? ", this hour comes twice" : ", this hour does not exist";
                    const text = `${day} ${hour}:00, ${plural(here.length, "time")}${bad ? `, ${bad} missed` : ""}${said}`;
                    return (
                      <button
                        key={hour}
                        type="button"
                        className="calendar-cell"
                        data-now={isNow}
                        data-bad={bad > 0}
                        data-clock={change === undefined ? undefined : change ? "twice" : "none"}
                        aria-label={text}
                        title={text}
                        aria-pressed={picked?.day === day && picked.hour === hour}
                        onClick={() => setPicked({ day, hour })}
                        style={{ "--heat": here.length ? 0.15 + 0.7 * (here.length / most) : 0 } as React.CSSProperties}
                      >
                        {here.length > 0 ? count(here.length) : change === undefined ? "" : change ? "×2" : "–"}
                      </button>
                    );
                  })}
                </div>
              ))}
            </div>
          </Card>
          {often.length > 0 && (
            <p className="small muted">
              Fire too often to be drawn:{" "}
              {often.map((one, at) => (
                <span key={one.schedule_id}>
                  {at > 0 && ", "}
                  <Link className="strong" href={jobPath(one.job)}>
                    {one.job}
                  </Link>{" "}
                  ({one.description})
                </span>
              ))}
            </p>
          )}
          {picked && (
            <Card
              title={`${picked.day}, ${String(picked.hour).padStart(2, "0")}:00 ${zone || "UTC"}`}
              flush
              actions={<span className="small muted">{plural(shown.length, "time")}</span>}
            >
              <ul className="list">
                {shown.slice(0, TIMES_MAX).map((fire, at) => (
                  <li key={at}>
                    <span className="num small muted">
                      {new Date(fire.at).toLocaleTimeString("en", { timeZone: zone || "UTC", hourCycle: "h23" })}
                    </span>
                    <span title={fire.decision}>
                      <Status state={STATE_OF[fire.decision]} bare />
                    </span>{" "}
                    {fire.decision}
                    <Link className="strong" href={fire.execution ? executionPath(fire.execution) : jobPath(fire.job)}>
                      {fire.job}
                    </Link>
                    <span className="muted small">
                      {fire.number > 1 && plural(fire.number, "time")} {fire.reason?.replaceAll("_", " ")}
                    </span>
                  </li>
                ))}
              </ul>
            </Card>
          )}
        </>
      )}
    </Page>
  );
}
