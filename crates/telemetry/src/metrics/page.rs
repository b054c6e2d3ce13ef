//! `docs/metrics.md`: every instrument, from the catalogue itself.

use std::fmt::Write as _;

use super::{Label, Measured, measured};

const HEAD: &str = include_str!("page_head.md");

/// The page. A test keeps the file equal to it.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(HEAD);
    for (name, title) in GROUPS {
        let _ = write!(
            text,
            "\n## {title}\n\n| metric | in Prometheus | kind, labels | |\n|---|---|---|---|\n"
        );
        let here = |m: &Measured| group(m.about.name) == name;
        for m in measured().iter().filter(|m| here(m)) {
            let about = &m.about;
            let unit = match about.unit {
                "" => String::new(),
                unit => format!(" `{unit}`"),
            };
            let labels: Vec<_> = about
                .labels
                .iter()
                .map(|l| format!("`{}`", l.replace('.', "_")))
                .collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("; {}", labels.join(", ")),
            };
            let _ = writeln!(
                text,
                "| `{}`{unit} | `{}` | {}{labels} | {} |",
                about.name,
                about.exposed(),
                about.kind.word(),
                about.help.replace('|', "\\|"),
            );
        }
    }
    text.push_str("\n## Values of labels\n\n| label | values |\n|---|---|\n");
    for (label, values) in [
        values::<super::Transport>(""),
        values::<super::TopicKind>(""),
        values::<super::Hop>(""),
        values::<adsum_core::Reason>("adsum.detection.duration"),
        values::<super::Renewal>(""),
        values::<super::Loss>(""),
        values::<super::Operation>(""),
        values::<super::StoreFault>("adsum.store.errors"),
        values::<super::Call>(""),
        values::<super::RegistryFault>("adsum.registry.errors"),
        values::<super::Limit>(""),
        values::<super::Refusal>("adsum.auth.failures"),
        values::<super::Signal>(""),
    ] {
        let _ = writeln!(text, "| {label} | {values} |");
    }
    text
}

const GROUPS: [(&str, &str); 5] = [
    ("gateway", "Gateways"),
    ("dispatcher", "Dispatchers"),
    ("reaper", "Reapers"),
    ("backends", "Redis and etcd, as every node sees them"),
    ("node", "Every node"),
];

fn group(name: &str) -> &'static str {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    if starts(&[
        "adsum.view",
        "adsum.shard.",
        "adsum.dispatcher.",
        "adsum.feed.queue",
    ]) {
        "dispatcher"
    } else if starts(&["adsum.reaper."]) {
        "reaper"
    } else if starts(&["db.", "adsum.store.", "adsum.registry.", "adsum.member"]) {
        "backends"
    } else if starts(&["process.", "adsum.build.", "adsum.telemetry."]) {
        "node"
    } else {
        "gateway"
    }
}

/// A label and its values; of which metric, if others have one of that name with other values.
fn values<L: Label>(of: &str) -> (String, String) {
    let values: Vec<_> = L::VALUES.iter().map(|v| format!("`{v}`")).collect();
    let name = L::NAME.replace('.', "_");
    let label = match of {
        "" => format!("`{name}`"),
        of => format!("`{name}` of `{of}`"),
    };
    (label, values.join(", "))
}
