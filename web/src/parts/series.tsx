/** Charts of what happened over time: ends, success rate, run time and start delay. */

import { lazy, Suspense, useMemo } from "react";
import { type Answer, ApiError, useGet } from "../data/api.ts";
import { count, duration, percent } from "../data/format.ts";
import { jobPath, Link, searchPath, setFilters, useAddress, useFilter } from "../data/router.tsx";
import { Button, Segments } from "./controls.tsx";
import { Legend, type Line } from "./marks.tsx";
import { Card, Pending, Skeleton } from "./page.tsx";

type Series = Answer<"get", "/stats/series">;
const Chart = lazy(() => import("./chart.tsx"));
const SPANS = [
  ["1h", "1 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
] as const;
const METRICS =
  "enqueued,succeeded,dead,cancelled,skipped,failed_attempts,late,missed,run_p50,run_p95,delay_p50,delay_p99";

/** How many were unfinished at the end of each step: as many as now, without those that came since, with those that ended. */
function unfinishedOf(series: Series, now: number) {
  const of = (metric: string) => series.series[metric] ?? [];
  const ends = ["succeeded", "dead", "cancelled", "skipped"].map(of);
  const values: number[] = [];
  let number = now;
  for (let at = of("enqueued").length - 1; at >= 0; at--) {
    values[at] = Math.max(0, number);
    number += ends.reduce((sum, one) => sum + (one[at] ?? 0), 0) - (of("enqueued")[at] ?? 0);
  }
  return values;
}

/** Bars of one metric over the last hours. */
export function Spark({
  metric,
  job,
  queue,
  since,
  bad,
}: {
  metric: string;
  job?: string;
  queue?: string;
  since: string;
  bad?: boolean;
}) {
  const found = useGet("/stats/series", {
    query: { metric, job, queue, since, step: since === "1h" ? "2m" : "1h" },
    every: 30_000,
  });
  const values = found.data?.series[metric] ?? [];
  const most = Math.max(1, ...values.map((one) => one ?? 0));
  const total = found.data?.totals[metric] ?? 0;
  if (!found.data) return <span className="spark" aria-hidden="true" />;
  return (
    <span
      className={`spark ${bad ? "is-bad" : ""}`}
      role="img"
      aria-label={`${count(total)} ${metric} in ${since}`}
      title={`${count(total)} ${metric} in ${since}`}
    >
      {values.map((one, at) => (
        <i key={at} data-some={Boolean(one)} style={{ height: `${(100 * (one ?? 0)) / most}%` }} />
      ))}
    </span>
  );
}

/** A length of time that all steps of a series have. */
const STEPS: Record<number, string> = {
  60: "minute",
  300: "5 minutes",
  600: "10 minutes",
  3600: "hour",
  86_400: "day",
};

interface Shown {
  title: string;
  label: string;
  lines: Line[];
  kind?: "bars" | "lines";
  isDuration?: boolean;
}

/** The charts of a series: of all, or of a job. */
function chartsOf(series: Series, job: string | undefined, backlog: number[] | null): Shown[] {
  const line = (name: string, metric: string, color: string): Line => ({
    name,
    color,
    values: series.series[metric] ?? [],
  });
  const ended: Shown = {
    title: `Ended per ${STEPS[series.step] ?? duration(series.step)}`,
    label: "Ended executions",
    kind: "bars",
    lines: [
      ...(series.totals.cancelled ? [line("cancelled", "cancelled", "idle-fill")] : []),
      line("succeeded", "succeeded", "ok-fill"),
      line("dead", "dead", "bad-fill"),
    ],
  };
  const unfinished: Shown[] = backlog
    ? [
        {
          title: "Unfinished",
          label: "Unfinished executions",
          lines: [{ name: "unfinished", color: "wait-fill", values: backlog }],
        },
      ]
    : [];
  const delay: Shown = {
    title: "Start delay",
    label: "Start delay",
    isDuration: true,
    lines: [line("median", "delay_p50", "run-fill"), line("p99", "delay_p99", "warn-fill")],
  };
  const runTime: Shown = {
    title: "Run time",
    label: "Run time",
    isDuration: true,
    lines: [line("median", "run_p50", "run-fill"), line("p95", "run_p95", "warn-fill")],
  };
  return [ended, ...(job ? [runTime] : unfinished), delay];
}

/** The sums of a series, each with a link to the executions that it counts. */
function Sums({ series, job, span }: { series: Series; job?: string; span: string }) {
  const { query } = useAddress();
  const total = (name: string) => series.totals[name] ?? null;
  const number = (name: string) => count(total(name) ?? 0, series.at_least.includes(name));
  const ends = (total("succeeded") ?? 0) + (total("dead") ?? 0);
  const from = query.get("from");
  const during = from ? { since: from, until: query.get("to") ?? undefined } : { finished: `<${span}` };
  const sums: [string, string, string, string?][] = [
    [
      ends ? percent((total("succeeded") ?? 0) / ends) : "–",
      "succeeded",
      searchPath({ status: "succeeded", job, ...during }),
    ],
    [number("dead"), "dead", searchPath({ status: "dead", job, ...during }), total("dead") ? "bad" : ""],
    [number("failed_attempts"), "failed tries", searchPath({ status: "retrying,dead", job })],
    [duration(total("delay_p50")), "median start delay", searchPath({ job, ...during })],
    [duration(total("delay_p99")), "p99", searchPath({ job, ...during })],
    [number("late"), "late", searchPath({ job, ...during }), total("late") ? "warn" : ""],
    [number("missed"), "missed", job ? `${jobPath(job)}/why` : "/calendar", total("missed") ? "warn" : ""],
  ];
  return (
    <span className="sums small">
      {sums.map(([value, name, href, tone]) => (
        <Link key={name} href={href} className={tone ? `tone-${tone}` : "muted"}>
          <b className="num">{value}</b> {name}
        </Link>
      ))}
    </span>
  );
}

/** What happened over time: of all, or of a job; `unfinished` is the number at this moment. */
export function SeriesCharts({ job, unfinished }: { job?: string; unfinished?: number }) {
  const [span] = useFilter("span", "1h");
  const { query } = useAddress();
  const since = query.get("from") ?? span;
  const until = query.get("to") ?? undefined;
  const found = useGet("/stats/series", { query: { metric: METRICS, since, until, job }, every: 10_000 });
  const series = found.data;
  const times = useMemo(() => {
    const values = Object.values(series?.series ?? {})[0] ?? [];
    const first = Date.parse(series?.since ?? "") / 1000;
    return values.map((_, at) => first + at * (series?.step ?? 60));
  }, [series]);
  const zoom = (from: number, to: number) =>
    setFilters({ from: new Date(from * 1000).toISOString(), to: new Date(to * 1000).toISOString() });
  const reset = () => setFilters({ from: "", to: "" });
  const isNow = until === undefined;
  // As of the moment of the series: it comes less often than the number.
  const backlog = useMemo(
    () => (series && isNow && unfinished !== undefined ? unfinishedOf(series, unfinished) : null),
    [series, isNow, unfinished === undefined],
  );
  const charts = useMemo(() => (series ? chartsOf(series, job, backlog) : []), [series, job, backlog]);
  // A key with a scope may read executions and no statistics.
  if (found.error instanceof ApiError && found.error.status === 403) return null;
  if (found.error && !series) return <Pending error={found.error} retry={() => void found.refetch()} />;
  return (
    <>
      <div className="toolbar">
        <Segments
          label="Time"
          value={since === span ? (span as "1h") : ("" as "1h")}
          options={SPANS}
          onChange={(value) => setFilters({ from: "", to: "", span: value === "1h" ? "" : value })}
        />
        {query.get("from") && (
          <Button size="small" onClick={reset}>
            Zoom out
          </Button>
        )}
        {series && <Sums series={series} job={job} span={span} />}
      </div>
      <div className="grid three">
        {!series &&
          [0, 1, 2].map((one) => (
            <Card key={one} title="…">
              <Skeleton lines={5} />
            </Card>
          ))}
        {charts.map(({ title, ...shown }) => (
          <Card key={shown.label} title={title} actions={shown.lines.length > 1 && <Legend lines={shown.lines} />}>
            <Suspense fallback={<Skeleton lines={5} />}>
              <Chart times={times} onZoom={zoom} onReset={reset} {...shown} />
            </Suspense>
          </Card>
        ))}
      </div>
    </>
  );
}
