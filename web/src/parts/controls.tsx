/** Buttons and fields. */

import { type ComponentProps, type ReactNode, useEffect, useId, useState } from "react";
import { toast } from "../data/toast.ts";
import { Icon, type IconName } from "./status.tsx";

interface ButtonProps {
  children?: ReactNode;
  icon?: IconName;
  kind?: "primary" | "danger" | "quiet" | "link" | "";
  size?: "small" | "";
  label?: string;
  pressed?: boolean;
  disabled?: boolean;
  title?: string;
  type?: "button" | "submit";
  onClick?: () => void;
}
export function Button({
  children,
  icon,
  kind = "",
  size = "",
  label,
  pressed,
  type = "button",
  ...rest
}: ButtonProps) {
  const only = children === undefined ? "icon-only" : "";
  return (
    <button
      type={type}
      className={`button ${kind} ${size} ${only}`}
      aria-label={label}
      title={label}
      aria-pressed={pressed}
      {...rest}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function Field({
  label,
  hint,
  wrong,
  children,
}: {
  label: string;
  hint?: ReactNode;
  wrong?: string;
  children: (id: string) => ReactNode;
}) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children(id)}
      {wrong ? (
        <span className="wrong" role="alert">
          {wrong}
        </span>
      ) : hint ? (
        <span className="hint">{hint}</span>
      ) : null}
    </div>
  );
}

type TextFieldProps = Omit<ComponentProps<"input">, "value" | "onChange"> & {
  label: string;
  hint?: ReactNode;
  wrong?: string;
  value: string | undefined;
  onChange: (value: string) => void;
  mono?: boolean;
  /** More than one line. */
  rows?: number;
};

/** A field for a text: a line, or an area with some lines. */
export function TextField({ label, hint, wrong, onChange, mono, rows, ...rest }: TextFieldProps) {
  return (
    <Field label={label} hint={hint} wrong={wrong}>
      {(id) =>
        rows ? (
          <textarea
            {...(rest as ComponentProps<"textarea">)}
            id={id}
            className="area"
            rows={rows}
            spellCheck={false}
            onChange={(event) => onChange(event.target.value)}
          />
        ) : (
          <input
            {...rest}
            id={id}
            className={mono ? "input mono" : "input"}
            onChange={(event) => onChange(event.target.value)}
          />
        )
      }
    </Field>
  );
}

export function Segments<T extends string>({
  label,
  value,
  options,
  onChange,
}: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <div className="segments" role="group" aria-label={label}>
      {options.map(([name, text]) => (
        <button key={name} type="button" aria-pressed={name === value} onClick={() => onChange(name)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Search({
  value,
  onChange,
  label,
  placeholder,
}: {
  value: string;
  onChange: (value: string) => void;
  label: string;
  placeholder: string;
}) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text), 250);
    return () => clearTimeout(timer);
  });
  return (
    <div className="search">
      <Icon name="search" />
      <input
        className="input"
        type="search"
        aria-label={label}
        placeholder={placeholder}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
    </div>
  );
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow to copy here", "bad");
    }
  };
  return <Button icon="copy" kind="quiet" size="small" label={label} onClick={() => void copy()} />;
}

/** Have the browser save a text as a file. */
export function download(name: string, type: string, content: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export function Command({ text }: { text: string }) {
  return (
    <span className="command">
      <code tabIndex={0}>{text}</code>
      <Copy text={text} label="Copy the command" />
    </span>
  );
}
