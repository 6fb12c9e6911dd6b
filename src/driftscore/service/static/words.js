// Words and numbers for people.

export const signed = (value) => String(value).replace(/^-(?=0(\.0*)?$)/, "").replace("-", "\u2212");
export const decibels = (snr) => (snr === null ? "no noise" : `${signed(snr)} dB`);

export function splitLabels(text) {
  const seen = new Set();
  return text.split(/[,\n]/).map((word) => word.trim().replace(/\s+/g, " ")).filter((word) => {
    const key = word.toLowerCase();
    return word && !seen.has(key) && seen.add(key);
  });
}

export function labelsProblem(labels, limits) {
  if (labels.length === 0) return "Type the sounds to look for, separated by commas.";
  if (labels.length > limits.labels) return `There are ${labels.length} sounds; the server takes ${limits.labels} at a time.`;
  const long = labels.find((label) => label.length > limits.label_chars);
  return long ? `\u201c${long.slice(0, 24)}\u2026\u201d is longer than ${limits.label_chars} characters.` : "";
}

export const sameWords = (some, others) => [...some].sort().join() === [...others].sort().join();

export const megabytes = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

// Down to which SNR a rule recognises the right label: text and kind of each rule's verdict.
export function verdicts(sweep) {
  const lowest = Math.min(...sweep.snrs_db.filter((snr) => snr !== null));
  const highest = Math.max(...sweep.snrs_db.filter((snr) => snr !== null));
  const place = sweep.labels.indexOf(sweep.right);
  return Object.fromEntries(Object.entries(sweep.down_to_db).map(([rule, border]) => {
    const clean = sweep.rules[rule][0];
    if (border === null) {
      const first = clean.every((score, i) => i === place || score <= clean[place]);
      return [rule, { kind: "fails", text: first ? "recognised without noise only" : "not recognised, even without noise" }];
    }
    if (border <= lowest) return [rule, { kind: "wins", text: `recognised at every SNR, down to ${signed(lowest)} dB` }];
    return [rule, { kind: border >= highest ? "fails" : "some", text: `recognised down to ${signed(border)} dB` }];
  }));
}
