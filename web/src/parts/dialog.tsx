/** Dialogs. */

import { type FormEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { Button, TextField } from "./controls.tsx";

export function Dialog({
  title,
  wide,
  onClose,
  onSubmit,
  submit,
  danger,
  busy,
  disabled,
  children,
}: {
  title: string;
  wide?: boolean;
  onClose: () => void;
  onSubmit?: () => void;
  submit?: string;
  danger?: boolean;
  busy?: boolean;
  disabled?: boolean;
  children: ReactNode;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const send = (event: FormEvent) => {
    event.preventDefault();
    if (!busy && !disabled) onSubmit?.();
  };
  return (
    <dialog
      ref={dialog}
      className={wide ? "wide" : ""}
      aria-label={title}
      onClose={onClose}
      onMouseDown={(event) => event.target === dialog.current && onClose()}
    >
      <form onSubmit={send}>
        <header>
          <h2>{title}</h2>
        </header>
        <div className="content">{children}</div>
        <footer>
          <Button onClick={onClose}>{onSubmit ? "Cancel" : "Close"}</Button>
          {onSubmit && (
            <Button type="submit" kind={danger ? "danger" : "primary"} disabled={busy || disabled}>
              {submit ?? "OK"}
            </Button>
          )}
        </footer>
      </form>
    </dialog>
  );
}

/** Asks before something that cannot be undone; above 100 things, the number has to be typed. */
export function Confirm({
  title,
  number,
  submit,
  onClose,
  onConfirm,
  busy,
  children,
}: {
  title: string;
  number?: number;
  submit: string;
  onClose: () => void;
  onConfirm: () => void;
  busy?: boolean;
  children: ReactNode;
}) {
  const [typed, setTyped] = useState("");
  const isLarge = (number ?? 0) > 100;
  return (
    <Dialog
      title={title}
      submit={submit}
      danger
      busy={busy}
      disabled={isLarge && typed !== String(number)}
      onClose={onClose}
      onSubmit={onConfirm}
    >
      {children}
      {isLarge && (
        <TextField
          label={`Type ${number} to confirm`}
          inputMode="numeric"
          autoComplete="off"
          value={typed}
          onChange={setTyped}
        />
      )}
    </Dialog>
  );
}
