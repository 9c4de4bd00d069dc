//! The text format of Prometheus, version 0.0.4: families of gauges with labels.

use std::fmt::Write;

/// Prefix of every name.
const PREFIX: &str = "memory_shepherd_";

/// How every page of this program begins.
pub(super) const FIRST_BYTES: &[u8] = b"# HELP memory_shepherd_";

/// Metrics as text. Every sample has the label `fleet`.
pub(super) struct Exposition {
    fleet: String,
    text: String,
}

/// A family of gauges, to which samples are added before the next family begins.
pub(super) struct MetricFamily<'p> {
    page: &'p mut Exposition,
    name: &'static str,
}

impl Exposition {
    pub fn new(fleet: &str) -> Exposition {
        Exposition {
            fleet: escape_label(fleet),
            text: String::new(),
        }
    }

    /// Begins a family of gauges. `help` is one line.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {PREFIX}{name} {help}");
        let _ = writeln!(self.text, "# TYPE {PREFIX}{name} gauge");
        MetricFamily { page: self, name }
    }

    pub fn into_text(self) -> String {
        self.text
    }
}

impl MetricFamily<'_> {
    /// Adds a sample.
    pub fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        let MetricFamily { page, name } = self;
        let mut line = format!("{PREFIX}{name}{{fleet=\"{}\"", page.fleet);
        for (label, text) in labels {
            let _ = write!(line, ",{label}=\"{}\"", escape_label(text));
        }
        let _ = writeln!(page.text, "{line}}} {value}");
    }
}

/// Escapes the value of a label.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Exposition::new("night \"shift\"\\\n");
        page.gauge("agent_state", "Help.")
            .add(&[("agent", "a")], 1_700_000_000.0);
        assert_eq!(
            page.into_text(),
            "# HELP memory_shepherd_agent_state Help.\n\
             # TYPE memory_shepherd_agent_state gauge\n\
             memory_shepherd_agent_state{fleet=\"night \\\"shift\\\"\\\\\\n\",agent=\"a\"} \
             1700000000\n"
        );
    }
}
