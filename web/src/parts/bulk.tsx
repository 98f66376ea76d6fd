/** Act on many executions: those that are selected, or all that a query finds. */

import { useEffect, useState } from "react";
import { type BulkCounts, call, queries } from "../data/api.ts";
import { count, plural } from "../data/format.ts";
import { toast } from "../data/toast.ts";
import { Confirm } from "./dialog.tsx";
import { Pending } from "./page.tsx";

export type BulkPath = "/executions/cancel" | "/executions/retry" | "/dead-letters/retry" | "/dead-letters/discard";
const WORDS: Record<BulkPath, [string, string, string]> = {
  "/executions/cancel": [
    "Cancel executions?",
    "Cancel them",
    "Those that run are asked to stop; what has ended stays as it is.",
  ],
  "/executions/retry": [
    "Run executions again?",
    "Run them again",
    "Dead ones go on, cancelled ones run as new executions.",
  ],
  "/dead-letters/retry": ["Run dead letters again?", "Retry them", "Their tries are counted anew."],
  "/dead-letters/discard": ["Discard dead letters?", "Discard them", "They leave the list and stay in the history."],
};

/** Executions of one request: so that the progress is seen, and no request is long. */
const PART = 1000;

/** Ask the server how many it is about, have that confirmed, and do it, part by part. */
export function BulkDialog({
  path,
  ids,
  q,
  onClose,
}: {
  path: BulkPath;
  ids?: string[];
  q?: string;
  onClose: () => void;
}) {
  const [seen, setSeen] = useState<Pick<BulkCounts, "matched" | "at_least"> | null>(
    ids ? { matched: ids.length } : null,
  );
  const [error, setError] = useState<Error | null>(null);
  const [done, setDone] = useState<number | null>(null);
  const body = ids ? { ids } : { filter: q ? { q } : {} };
  const part = ids ? {} : { limit: PART };
  useEffect(() => {
    if (!ids) call("post", path, { body: { ...body, dry_run: true } }).then(setSeen, setError);
  }, [path, q]);
  const run = async () => {
    const sums: Record<string, number> = {};
    let cursor: string | null | undefined;
    try {
      do {
        setDone(sums.matched ?? 0);
        const answer = await call("post", path, { body: { ...body, ...part, ...(cursor && { cursor }) } });
        for (const [name, value] of Object.entries(answer))
          if (typeof value === "number") sums[name] = (sums[name] ?? 0) + value;
        cursor = answer.next_cursor;
      } while (cursor);
      const { matched: _, ...results } = sums;
      toast(
        Object.entries(results)
          .filter(([, value]) => value)
          .map(([name, value]) => `${count(value)} ${name.replaceAll("_", " ")}`)
          .join(", ") || "There was nothing to do",
      );
      onClose();
    } catch (problem) {
      setError(problem as Error);
    }
    setDone(null);
    void queries.invalidateQueries();
  };
  const [title, submit, says] = WORDS[path];
  return (
    <Confirm
      title={title}
      number={seen?.matched}
      submit={submit}
      busy={!seen || done !== null}
      onClose={onClose}
      onConfirm={() => void run()}
    >
      {error ? (
        <Pending error={error} />
      ) : !seen ? (
        <Pending error={null} lines={2} />
      ) : (
        <p>
          <b>
            {plural(seen.matched, "execution")}
            {seen.at_least && " or more"}
          </b>
          {!ids && (
            <>
              {" "}
              that match <code>{q || "everything"}</code>
            </>
          )}
          . {says}
          {done !== null && <span className="muted"> {count(done)} done…</span>}
        </p>
      )}
    </Confirm>
  );
}
