/** A button with a menu below it. Escape and a press outside close it. */

import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import { Icon } from "./status.tsx";

export function Menu({ name, children }: { name: string; children: ReactNode }) {
  const box = useRef<HTMLDetailsElement>(null);
  const close = () => box.current?.removeAttribute("open");
  useEffect(() => {
    const press = (event: PointerEvent) => {
      if (!box.current?.contains(event.target as Node)) close();
    };
    window.addEventListener("pointerdown", press);
    return () => window.removeEventListener("pointerdown", press);
  }, []);
  const leave = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    close();
    box.current?.querySelector("summary")?.focus();
  };
  return (
    <details className="menu" ref={box} onKeyDown={leave}>
      <summary className="button">
        {name} <Icon name="down" />
      </summary>
      <div className="menu-list">{children}</div>
    </details>
  );
}
