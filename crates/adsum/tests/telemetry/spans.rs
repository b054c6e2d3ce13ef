//! Spans as the collector prints them, and trees of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

/// A span that the collector got.
#[derive(Debug, Clone, Default)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    /// Traces that it names as having to do with it.
    pub(crate) links: Vec<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Spans(pub(crate) Vec<Span>);

impl Spans {
    pub(crate) fn read(text: &str) -> Self {
        let (mut spans, mut node) = (Vec::<Span>::new(), String::new());
        let (mut in_links, mut in_head) = (false, true);
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with("ResourceSpans") {
                in_head = true;
            } else if line.starts_with("Span #") {
                (in_links, in_head) = (false, false);
                spans.push(Span {
                    node: node.clone(),
                    ..Span::default()
                });
            } else if line.starts_with("Links") || line.starts_with("SpanLink") {
                in_links = true;
            } else if let Some((key, value)) = attribute(line) {
                match spans.last_mut() {
                    _ if key == "service.instance.id" => node = value,
                    Some(span) if !in_head => drop(span.attributes.insert(key, value)),
                    _ => {}
                }
            } else if let (Some(span), Some((key, value))) =
                (spans.last_mut(), line.split_once(':'))
            {
                let value = value.trim().to_owned();
                match key.trim().trim_start_matches("-> ") {
                    "Trace ID" if in_links => span.links.push(value),
                    "Trace ID" => span.trace = value,
                    "ID" if !in_links => span.id = value,
                    "Parent ID" => span.parent = value,
                    "Name" => span.name = value,
                    "Start time" => span.start = value.parse().unwrap_or(0),
                    "End time" => span.end = value.parse().unwrap_or(0),
                    _ => {}
                }
            }
        }
        Self(spans)
    }

    /// Those of one trace, in the order of their beginning.
    pub(crate) fn of(&self, trace: &str) -> Vec<Span> {
        let mut spans: Vec<_> = self
            .0
            .iter()
            .filter(|s| s.trace == trace)
            .cloned()
            .collect();
        spans.sort_by_key(|s| s.start);
        spans
    }

    /// Those with this name.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Span> {
        let name = name.to_owned();
        self.0.iter().filter(move |span| span.name == name)
    }
}

/// `-> key: Str(value)`.
fn attribute(line: &str) -> Option<(String, String)> {
    let (key, value) = line.strip_prefix("-> ")?.split_once(": ")?;
    let (_, value) = value.split_once('(')?;
    Some((key.to_owned(), value.strip_suffix(')')?.to_owned()))
}

/// Names along the way from the root, `join/commit/tail`, with their nodes.
pub(crate) fn paths(spans: &[Span]) -> BTreeSet<(String, String)> {
    let by_id: BTreeMap<_, _> = spans.iter().map(|s| (s.id.as_str(), s)).collect();
    let path = |span: &Span| {
        let (mut names, mut at) = (vec![span.name.clone()], span);
        while let Some(parent) = by_id.get(at.parent.as_str()) {
            names.insert(0, parent.name.clone());
            at = parent;
        }
        (names.join("/"), span.node.clone())
    };
    spans.iter().map(path).collect()
}

/// A trace as people read it.
pub(crate) fn tree(spans: &[Span]) -> String {
    let ids: BTreeSet<_> = spans.iter().map(|s| s.id.as_str()).collect();
    let began = spans.iter().map(|s| s.start).min().unwrap_or(0);
    let mut text = String::new();
    let roots = spans.iter().filter(|s| !ids.contains(s.parent.as_str()));
    roots.for_each(|root| branch(&mut text, spans, root, began, 0));
    text
}

fn branch(text: &mut String, spans: &[Span], span: &Span, began: u64, depth: usize) {
    let ms = |ns: u64| ns as f64 / 1e6;
    let name = format!("{}{}", "  ".repeat(depth), span.name);
    let (at, took) = (
        ms(span.start.saturating_sub(began)),
        ms(span.end.saturating_sub(span.start)),
    );
    let _ = write!(
        text,
        "  {name:<22} {:<8} +{at:7.3} ms {took:7.3} ms",
        span.node
    );
    for (key, value) in &span.attributes {
        let _ = write!(text, "  {key}={value}");
    }
    for link in &span.links {
        let _ = write!(text, "  link={link}");
    }
    text.push('\n');
    let children = spans.iter().filter(|s| s.parent == span.id);
    children.for_each(|child| branch(text, spans, child, began, depth + 1));
}
