import { QueryClientProvider } from "@tanstack/react-query";
import { Component, lazy, type ReactNode, StrictMode, Suspense } from "react";
import { createRoot } from "react-dom/client";
import { queries } from "./data/api.ts";
import { connect, liveStore } from "./data/live.ts";
import { useAddress } from "./data/router.tsx";
import { begin, session } from "./data/session.ts";
import { useStore } from "./data/store.ts";
import { ExecutionsPage } from "./pages/executions.tsx";
import { JobsPage } from "./pages/jobs.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { Button } from "./parts/controls.tsx";
import { Empty, Notice, Page, Skeleton } from "./parts/page.tsx";
import { Login, Shell } from "./shell.tsx";
import "./styles/tokens.css";
import "./styles/app.css";
import "./styles/pages.css";

const ExecutionPage = lazy(() => import("./pages/execution.tsx"));
const JobPage = lazy(() => import("./pages/job.tsx"));
const JobForm = lazy(() => import("./pages/job-form.tsx"));
const DeadLettersPage = lazy(() => import("./pages/dead.tsx"));
const EventsPage = lazy(() => import("./pages/events.tsx"));
const SettingsPage = lazy(() => import("./pages/settings.tsx"));
const WorkflowPage = lazy(() => import("./pages/workflows.tsx"));
const WorkflowsPage = lazy(() => import("./pages/workflows.tsx").then((page) => ({ default: page.WorkflowsPage })));
const QueuesPage = lazy(() => import("./pages/queues.tsx").then((page) => ({ default: page.QueuesPage })));
const WorkersPage = lazy(() => import("./pages/queues.tsx").then((page) => ({ default: page.WorkersPage })));
const AlertsPage = lazy(() => import("./pages/alerts.tsx"));
const LogsPage = lazy(() => import("./pages/logs.tsx"));
const CalendarPage = lazy(() => import("./pages/calendar.tsx"));

function View() {
  const { parts } = useAddress();
  const [page = "", name, verb] = parts;
  switch (page) {
    case "":
      return <OverviewPage />;
    case "jobs":
      if (name === "new") return <JobForm />;
      if (name && verb === "edit") return <JobForm key={name} name={name} />;
      return name ? <JobPage key={name} name={name} tab={verb ?? ""} /> : <JobsPage />;
    case "executions":
      return name ? <ExecutionPage key={name} id={name} tab={verb ?? ""} /> : <ExecutionsPage />;
    case "workflows":
      return name ? <WorkflowPage key={name} name={name} /> : <WorkflowsPage />;
    case "dead-letters":
      return <DeadLettersPage />;
    case "logs":
      return <LogsPage />;
    case "alerts":
      return <AlertsPage tab={name ?? ""} />;
    case "queues":
      return <QueuesPage tab={name ?? ""} />;
    case "workers":
      return <WorkersPage />;
    case "calendar":
      return <CalendarPage />;
    case "events":
      return <EventsPage />;
    case "settings":
      return <SettingsPage tab={name ?? ""} />;
    default:
      return <Nowhere />;
  }
}

function Nowhere() {
  return (
    <Page title="Not found">
      <Empty icon="search" title="There is no page at this address">
        Ctrl K finds pages, jobs and executions.
      </Empty>
    </Page>
  );
}

/** Keeps a mistake on one page away from the others. */
class Boundary extends Component<{ children: ReactNode; path: string }, { error: Error | null }> {
  override state = { error: null as Error | null };
  override componentDidUpdate(before: { path: string }) {
    if (before.path !== this.props.path && this.state.error) this.setState({ error: null });
  }
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <Page title="This page failed">
        <Notice>
          {this.state.error.message}{" "}
          <Button size="small" onClick={() => window.location.reload()}>
            Load it again
          </Button>
        </Notice>
      </Page>
    );
  }
}

function App() {
  const { path, parts } = useAddress();
  const isOut = useStore(liveStore).state === "login";
  const mine = useStore(session);
  if (isOut) return <Login />;
  return (
    <Shell>
      <Boundary key={parts.slice(0, 2).join("/")} path={path}>
        <Suspense
          fallback={
            <Page title="">
              <Skeleton lines={8} />
            </Page>
          }
        >
          {mine ? (
            <View />
          ) : (
            <Page title="">
              <Skeleton lines={8} />
            </Page>
          )}
        </Suspense>
      </Boundary>
    </Shell>
  );
}

// A new build replaces the files that an open page has yet to load. What fails again is shown.
window.addEventListener("vite:preloadError", () => {
  const last = Number(sessionStorage.getItem("daybell.reloaded") ?? 0);
  if (Date.now() - last < 60_000) return;
  sessionStorage.setItem("daybell.reloaded", String(Date.now()));
  window.location.reload();
});

void begin();
connect();
createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
