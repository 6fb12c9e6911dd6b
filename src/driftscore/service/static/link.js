// The part of the address after #: labels and settings, so that a link shows the same thing.
// Recordings are never in it; an example is, by its name.

const FIELDS = ["labels", "noise", "snr", "right", "example", "compare"];

export function readLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  const snr = Number(given.get("snr") ?? "");
  const values = Object.fromEntries(FIELDS.map((name) => [name, given.get(name) ?? ""]));
  const valid = given.get("snr") && Number.isFinite(snr) && snr >= -20 && snr <= 20;
  const first = FIELDS.some((name) => given.has(name)) ? "try" : ""; // else the page chooses
  return { ...values, snr: valid ? Math.round(snr) : null, tab: given.get("tab") ?? first, token: given.get("token") ?? "" };
}

export function writeLink(values) {
  const link = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== "" && value !== null && value !== undefined) link.set(name, value);
  }
  history.replaceState(null, "", `#${link}`);
}
