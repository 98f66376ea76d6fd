/** A chart over time. Dragging over it shows a part; a double click shows all again. */

import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { count, duration, DURATION_STEPS } from "../data/format.ts";
import { type Line, Mark } from "./marks.tsx";
import { theme } from "../data/theme.ts";
import { useStore } from "../data/store.ts";

interface ChartProps {
  label: string;
  times: number[];
  lines: Line[];
  kind?: "bars" | "lines";
  isDuration?: boolean;
  onZoom?: (from: number, to: number) => void;
  /** Show all again. */
  onReset?: () => void;
}

const HEIGHT = 140;
/** Steps of an axis of numbers: there is no half execution. */
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();
/** A value between two gaps has no line: it is drawn as a point. */
const ALONE: uPlot.Series.Points.Filter = (self, series) => {
  const values = self.data[series] ?? [];
  return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
};

export default function Chart({ label, times, lines, kind = "lines", isDuration, onZoom, onReset }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const names = lines.map((line) => line.name).join();
  const scheme = useStore(theme);
  useEffect(() => {
    const place = box.current;
    if (!place) return;
    // The canvas knows no tokens: the browser resolves them.
    const probe = (token: string) => {
      place.style.color = `var(--${token})`;
      return getComputedStyle(place).color;
    };
    const text = probe("muted");
    const grid = probe("line");
    const colors = lines.map((line) => probe(line.color));
    place.style.color = "";
    const format = (value: number) =>
      value === 0
        ? "0"
        : isDuration
          ? duration(value)
          : value >= 1000
            ? `${Math.round(value / 100) / 10}k`
            : String(value);
    const axis = {
      stroke: text,
      font: "11px Inter Variable",
      grid: { stroke: grid, width: 1 },
      ticks: { show: false },
    };
    const bars = uPlot.paths.bars?.({ size: [0.8, 40], gap: 1 });
    const chart = new uPlot(
      {
        width: place.clientWidth,
        height: HEIGHT,
        padding: [8, 16, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
        scales: {
          x: { time: true },
          y: { range: (_, _least, most) => [0, Math.max(most * 1.1, isDuration ? 0.01 : 1)] },
        },
        axes: [
          {
            ...axis,
            size: 22,
            values: (_, ticks) => ticks.map((at) => timeOf(at, (times.at(-1) ?? 0) - (times[0] ?? 0))),
          },
          {
            ...axis,
            gap: 6,
            space: 26,
            incrs: isDuration ? DURATION_STEPS : WHOLE,
            size: (_, texts) => 12 + 6.2 * Math.max(1, ...(texts ?? []).map((text) => text.length)),
            values: (_, ticks) => ticks.map(format),
          },
        ],
        series: [
          {},
          ...lines.map((line, at): uPlot.Series => ({
            label: line.name,
            stroke: colors[at],
            width: 1.5,
            ...(kind === "bars"
              ? { paths: bars, fill: colors[at], width: 0, points: { show: false } }
              : { points: { show: true, filter: ALONE, size: 5, fill: colors[at] } }),
          })),
        ],
        hooks: {
          setCursor: [(self) => setPointed(self.cursor.idx ?? null)],
          setSelect: [
            (self) => {
              const { left, width } = self.select;
              if (width > 4) onZoom?.(self.posToVal(left, "x"), self.posToVal(left + width, "x"));
              self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            },
          ],
        },
      },
      data(times, lines, kind),
      place,
    );
    plot.current = chart;
    const resize = new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT }));
    resize.observe(place);
    return () => {
      resize.disconnect();
      chart.destroy();
    };
  }, [names, kind, isDuration, scheme]);
  useEffect(() => plot.current?.setData(data(times, lines, kind)), [times, lines, kind]);
  const time = pointed === null ? undefined : times[pointed];
  return (
    <div className="chart-frame" onDoubleClick={onReset}>
      <div
        ref={box}
        className="chart-box"
        role="img"
        aria-label={`${label}: ${lines.map((line) => `${line.name} ${last(line.values)}`).join(", ")}`}
      />
      {pointed !== null && time !== undefined && (
        <div className="chart-tip" data-side={pointed > times.length / 2 ? "left" : "right"} aria-hidden="true">
          <b className="num">{momentOf(time)}</b>
          {[...lines].reverse().map((line) => (
            <span key={line.name} className="row between">
              <Mark line={line} />
              <b className="num">{valueOf(line.values[pointed], isDuration)}</b>
            </span>
          ))}
        </div>
      )}
    </div>
  );
}

const valueOf = (value: number | null | undefined, isDuration?: boolean) =>
  value === null || value === undefined ? "–" : isDuration ? duration(value) : count(value);

const momentOf = (at: number) =>
  new Date(at * 1000).toLocaleString("en", {
    month: "short",
    day: "numeric",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  });

/** Hours and minutes; over more than two days also the day. */
function timeOf(at: number, span: number) {
  const date = new Date(at * 1000);
  const clock = date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return span < 172_800 ? clock : date.toLocaleDateString("en", { month: "short", day: "numeric" });
}

const last = (values: (number | null)[]) => values.findLast((value) => value !== null) ?? "none";

/** Bars stand on each other: each is drawn from the ground to the sum, the tallest first. */
function data(times: number[], lines: Line[], kind: "bars" | "lines"): uPlot.AlignedData {
  if (kind === "lines") return [times, ...lines.map((line) => line.values)];
  const sums = lines.map((_, at) =>
    times.map((_time, step) => lines.slice(at).reduce((sum, line) => sum + (line.values[step] ?? 0), 0)),
  );
  return [times, ...sums];
}
