/** Charts of what happened over time: ends, success rate, run time and start delay. */

import { lazy, Suspense, useMemo } from "react";
import { useGet } from "./api.ts";
import { count, duration, percent } from "./format.ts";
import { setFilters, useAddress, useFilter } from "./router.tsx";
import { Button, Card, Segments, Skeleton } from "./ui.tsx";

const Chart = lazy(() => import("./chart.tsx"));
const SPANS = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"]] as const;
const METRICS = "succeeded,dead,cancelled,failed_attempts,late,run_p50,run_p95,delay_p50,delay_p99";

/** What the charts show: of all, or of a job. */
export function SeriesCharts({ job }: { job?: string }) {
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
  const line = (name: string, metric: string, color: string) => ({ name, color, values: series?.series[metric] ?? [] });
  if (found.error) return null;
  const total = (name: string) => series?.totals[name] ?? null;
  const good = total("succeeded") ?? 0;
  const ends = good + (total("dead") ?? 0);
  return (
    <>
      <div className="toolbar">
        <Segments label="Time" value={since === span ? (span as "1h") : ("" as "1h")} options={SPANS} onChange={(value) => { setFilters({ from: "", to: "" }); setSpan(value); }} />
        {query.get("from") && <Button size="small" onClick={() => setFilters({ from: "", to: "" })}>Zoom out</Button>}
        {series && (
          <span className="small muted row wrap">
            <span><b className="num">{ends ? percent(good / ends) : "–"}</b> succeeded</span>
            <span><b className="num">{count(total("dead") ?? 0)}</b> dead</span>
            <span><b className="num">{count(total("failed_attempts") ?? 0)}</b> failed tries</span>
            <span><b className="num">{duration(total("delay_p50"))}</b> median start delay</span>
            <span><b className="num">{count(total("late") ?? 0)}</b> late</span>
          </span>
        )}
      </div>
      <div className="grid two">
        <Card title="Ended">
          <Suspense fallback={<Skeleton />}>
            {series ? <Chart label="Ended executions" times={times} kind="bars" onZoom={zoom}
              lines={[line("cancelled", "cancelled", "idle-fill"), line("succeeded", "succeeded", "ok-fill"), line("dead", "dead", "bad-fill")]} /> : <Skeleton />}
          </Suspense>
        </Card>
        <Card title={job ? "Run time and start delay" : "Start delay"}>
          <Suspense fallback={<Skeleton />}>
            {series ? <Chart label="Durations" times={times} isDuration onZoom={zoom}
              lines={job
                ? [line("run p50", "run_p50", "run-fill"), line("run p95", "run_p95", "warn-fill"), line("delay p50", "delay_p50", "wait-fill")]
                : [line("p50", "delay_p50", "run-fill"), line("p99", "delay_p99", "warn-fill")]} /> : <Skeleton />}
          </Suspense>
        </Card>
      </div>
    </>
  );
}
