/** Answers that the API is about to have. */

import type { components } from "./schema.ts";

declare module "./schema.ts" {
  interface paths {
    "/stats/series": {
      get: {
        parameters: { query?: { metric?: string; job?: string; queue?: string; since?: string; until?: string; step?: string } };
        responses: { 200: { content: { "application/json": { since: string; until: string; step: number; series: Record<string, (number | null)[]>; totals: Record<string, number | null> } } } };
      };
    };
  }
}
export type Schemas = components["schemas"];
