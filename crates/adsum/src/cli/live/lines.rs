//! Who came, changed and went, one line each.

use serde_json::Value;

use super::super::paint::{Paint, printable};

/// Somebody is there.
pub(super) fn joined(item: &Value, paint: Paint) -> String {
    format!("{} {}", paint.green("+"), person(item, paint))
}

/// Somebody looks different.
pub(super) fn updated(item: &Value, paint: Paint) -> String {
    format!("{} {}", paint.yellow("~"), person(item, paint))
}

/// Somebody is gone.
pub(super) fn left(leave: &Value, paint: Paint) -> String {
    let user = paint.bold(leave["user"].as_str().unwrap_or_default());
    let reason = match leave["reason"].as_str() {
        Some("leave") => " said goodbye",
        Some("disconnect") => " is gone: the connection broke",
        Some("timeout") => " is gone: nothing was heard",
        Some("node_lost") => " is gone: the gateway was lost",
        Some("kicked") => " was closed by a service",
        Some("replaced") => " was replaced",
        _ => " is gone",
    };
    format!("{} {user}{reason}", paint.red("-"))
}

/// How many are there.
pub(super) fn count(count: u64, paint: Paint) -> String {
    paint.bold(&format!("= {count}"))
}

fn person(item: &Value, paint: Paint) -> String {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    let devices = item["devices"].as_array().into_iter().flatten();
    let devices: Vec<_> = devices.filter_map(Value::as_str).map(printable).collect();
    let mut line = format!(
        "{} {}",
        paint.bold(text("user")),
        paint.status(text("status"))
    );
    if !devices.is_empty() {
        line += &paint.dim(&format!(" {}", devices.join(", ")));
    }
    if !item["meta"].is_null() {
        line += &paint.dim(&format!(" {}", item["meta"]));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_line_each() {
        let paint = Paint::stdout();
        let ann = json!({"user": "ann", "status": "online", "devices": ["web"], "meta": {"n": 1}});
        assert_eq!(joined(&ann, paint), "+ ann online web {\"n\":1}");
        let gone = json!({"user": "ann", "reason": "timeout"});
        assert_eq!(left(&gone, paint), "- ann is gone: nothing was heard");
    }
}
