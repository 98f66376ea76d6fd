/** Levels of log lines. */

export const LEVELS = ["debug", "info", "warning", "error"];
export const toneOfLevel = (level: string) => (/err|crit/i.test(level) ? "bad" : /warn/i.test(level) ? "warn" : "idle");
export const rank = (level: string) =>
  /crit|err/i.test(level) ? 3 : /warn/i.test(level) ? 2 : /info/i.test(level) ? 1 : /debug/i.test(level) ? 0 : 1;
