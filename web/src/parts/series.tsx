/** Charts of what happened over time: ends, success rate, run time and start delay. */

import { lazy, Suspense, useMemo } from "react";
import { type Answer, useGet } from "../data/api.ts";
import { count, duration, percent } from "../data/format.ts";
import { setFilters, useAddress, useFilter } from "../data/router.tsx";
import { Button, Segments } from "./controls.tsx";
import { Card, Skeleton } from "./page.tsx";

type Series = Answer<"get", "/stats/series">;
const Chart = lazy(() => import("./chart.tsx"));
const SPANS = [
  ["1h", "1 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
] as const;
const METRICS = "enqueued,succeeded,dead,cancelled,skipped,failed_attempts,late,run_p50,run_p95,delay_p50,delay_p99";

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

/** What the charts show: of all, or of a job; `unfinished` is the number at this moment. */
export function SeriesCharts({ job, unfinished }: { job?: string; unfinished?: number }) {
  const [span, setSpan] = useFilter("span", "1h");
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
  const isNow = until === undefined;
  // As of the moment of the series: it comes less often than the number.
  const backlog = useMemo(
    () => (series && isNow && unfinished !== undefined ? unfinishedOf(series, unfinished) : null),
    [series, isNow, unfinished === undefined],
  );
  const line = (name: string, metric: string, color: string) => ({ name, color, values: series?.series[metric] ?? [] });
  if (found.error) return null;
  const total = (name: string) => series?.totals[name] ?? null;
  const good = total("succeeded") ?? 0;
  const ends = good + (total("dead") ?? 0);
  return (
    <>
      <div className="toolbar">
        <Segments
          label="Time"
          value={since === span ? (span as "1h") : ("" as "1h")}
          options={SPANS}
          onChange={(value) => {
            setFilters({ from: "", to: "" });
            setSpan(value);
          }}
        />
        {query.get("from") && (
          <Button size="small" onClick={() => setFilters({ from: "", to: "" })}>
            Zoom out
          </Button>
        )}
        {series && (
          <span className="small muted row wrap">
            <span>
              <b className="num">{ends ? percent(good / ends) : "–"}</b> succeeded
            </span>
            <span>
              <b className="num">{count(total("dead") ?? 0)}</b> dead
            </span>
            <span>
              <b className="num">{count(total("failed_attempts") ?? 0)}</b> failed tries
            </span>
            <span>
              <b className="num">{duration(total("delay_p50"))}</b> median start delay
            </span>
            <span>
              <b className="num">{count(total("late") ?? 0)}</b> late
            </span>
          </span>
        )}
      </div>
      <div className={backlog ? "grid three" : "grid two"}>
        <Card title="Ended">
          <Suspense fallback={<Skeleton />}>
            {series ? (
              <Chart
                label="Ended executions"
                times={times}
                kind="bars"
                onZoom={zoom}
                lines={[
                  line("cancelled", "cancelled", "idle-fill"),
                  line("succeeded", "succeeded", "ok-fill"),
                  line("dead", "dead", "bad-fill"),
                ]}
              />
            ) : (
              <Skeleton />
            )}
          </Suspense>
        </Card>
        {backlog && (
          <Card title="Unfinished">
            <Suspense fallback={<Skeleton />}>
              <Chart
                label="Unfinished executions"
                times={times}
                onZoom={zoom}
                lines={[{ name: "unfinished", color: "wait-fill", values: backlog }]}
              />
            </Suspense>
          </Card>
        )}
        <Card title={job ? "Run time and start delay" : "Start delay"}>
          <Suspense fallback={<Skeleton />}>
            {series ? (
              <Chart
                label="Durations"
                times={times}
                isDuration
                onZoom={zoom}
                lines={
                  job
                    ? [
                        line("run p50", "run_p50", "run-fill"),
                        line("run p95", "run_p95", "warn-fill"),
                        line("delay p50", "delay_p50", "wait-fill"),
                      ]
                    : [line("p50", "delay_p50", "run-fill"), line("p99", "delay_p99", "warn-fill")]
                }
              />
            ) : (
              <Skeleton />
            )}
          </Suspense>
        </Card>
      </div>
    </>
  );
}
