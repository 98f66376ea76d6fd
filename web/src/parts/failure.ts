/** The error of an execution. */

import { type Execution } from "../data/api.ts";

export const errorOf = (one: Pick<Execution, "error" | "reason">) => {
  const error = (one.error ?? {}) as { type?: string; message?: string };
  return { type: error.type ?? one.reason?.replaceAll("_", " ") ?? "unknown", message: error.message ?? "" };
};
