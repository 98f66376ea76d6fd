/** The log of an execution, as it grows. */

import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { BASE, type LogLine } from "../data/api.ts";
import { clock, count, exact } from "../data/format.ts";
import { Button, download, Search } from "./controls.tsx";
import { LEVELS, rank, toneOfLevel } from "./level.ts";
import { Card, Empty, Skeleton } from "./page.tsx";

const LINES_MAX = 100_000;
function useLog(id: string) {
  const [lines, setLines] = useState<LogLine[]>([]);
  const [state, setState] = useState<"opening" | "open" | "ended" | "lost">("opening");
  useEffect(() => {
    // The browser connects again by itself, and continues after the last event that it has seen.
    const source = new EventSource(`${BASE}/executions/${id}/logs`);
    source.onopen = () => setState("open");
    source.onerror = () => setState("lost");
    source.addEventListener("lines", (event) => {
      const { items } = JSON.parse((event as MessageEvent<string>).data) as { items: LogLine[] };
      setLines((all) => [...all, ...items].slice(-LINES_MAX));
    });
    source.addEventListener("end", () => {
      setState("ended");
      source.close();
    });
    return () => source.close();
  }, [id]);
  return { lines, state };
}

export function LogView({ id }: { id: string }) {
  const { lines, state } = useLog(id);
  const [text, setText] = useState("");
  const [level, setLevel] = useState("debug");
  const [isFollowing, setFollowing] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  const shown = useMemo(() => {
    const least = LEVELS.indexOf(level);
    const word = text.toLowerCase();
    return lines.filter((line) => rank(line.level) >= least && line.message.toLowerCase().includes(word));
  }, [lines, level, text]);
  const list = useVirtualizer({
    count: shown.length,
    getScrollElement: () => box.current,
    estimateSize: () => 20,
    overscan: 30,
  });
  useEffect(() => {
    if (isFollowing && shown.length) list.scrollToIndex(shown.length - 1);
  }, [isFollowing, shown.length, list]);
  const save = () => {
    const content = lines.map((line) => `${line.at} ${line.level} ${line.message}`).join("\n");
    download(`${id}.log`, "text/plain", content);
  };
  return (
    <>
      <div className="toolbar">
        <Search label="Search the log" placeholder="Search the log" value={text} onChange={setText} />
        <select className="select" aria-label="Level" value={level} onChange={(event) => setLevel(event.target.value)}>
          {LEVELS.map((one) => (
            <option key={one} value={one}>
              {one} and above
            </option>
          ))}
        </select>
        <Button pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
          Follow
        </Button>
        <Button icon="download" disabled={!lines.length} onClick={save}>
          Download
        </Button>
        <span className="small faint" role="status">
          {count(shown.length)} lines
          {state === "open"
            ? ", live"
            : state === "lost"
              ? ", connecting again"
              : state === "ended"
                ? ", complete"
                : ""}
        </span>
      </div>
      {!shown.length ? (
        <Card>
          {state === "opening" ? (
            <Skeleton />
          ) : (
            <Empty icon="terminal" title={lines.length ? "No line matches" : "It has said nothing"}>
              What a task logs or prints is kept with its execution.
            </Empty>
          )}
        </Card>
      ) : (
        <div
          ref={box}
          className="log fill"
          role="log"
          aria-label="Log"
          tabIndex={0}
          onWheel={(event) => event.deltaY < 0 && setFollowing(false)}
        >
          <div style={{ height: list.getTotalSize(), position: "relative" }}>
            {list.getVirtualItems().map((item) => {
              const line = shown[item.index] as LogLine;
              return (
                <div
                  key={item.key}
                  ref={list.measureElement}
                  data-index={item.index}
                  className="log-line"
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <time className="faint" dateTime={line.at} title={exact(line.at)}>
                    {clock(line.at)}
                  </time>
                  <span className={`tone-${toneOfLevel(line.level)} level`}>{line.level.toLowerCase()}</span>
                  <span className="message">{line.message}</span>
                </div>
              );
            })}
          </div>
        </div>
      )}
    </>
  );
}
