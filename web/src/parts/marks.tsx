/** The names of the lines of a chart, each with its colour. */

export interface Line {
  name: string;
  /** A design token without its dashes, such as ok-fill. */
  color: string;
  values: (number | null)[];
}

export function Mark({ line }: { line: Line }) {
  return (
    <span className="mark">
      <i style={{ background: `var(--${line.color})` }} />
      {line.name}
    </span>
  );
}

export function Legend({ lines }: { lines: Line[] }) {
  return (
    <span className="marks small muted">
      {lines.map((line) => (
        <Mark key={line.name} line={line} />
      ))}
    </span>
  );
}
