//! What is said of a configuration that can't be read: where, which key, and what it should be.
//! Never a value nor a line of the file, since both may be secret.

use std::path::Path;

use figment::{
    Error,
    error::{Actual, Kind},
    providers::{Format, Toml},
    value::Dict,
};

/// Why the text of a file is no TOML; nothing if it is.
pub(super) fn syntax(file: &Path, text: &str) -> Option<String> {
    let error = Toml::from_str::<Dict>(text).err()?;
    let line = error.span().map(|span| {
        let before = text.bytes().take(span.start);
        before.filter(|byte| *byte == b'\n').count() + 1
    });
    let line = line.map_or_else(String::new, |line| format!(", line {line}"));
    // Says what is expected there. The error as a whole would show the line itself.
    let expected: Vec<_> = error.message().lines().collect();
    let (file, expected) = (file.display(), expected.join(", "));
    Some(format!("{file}{line}: {expected}"))
}

/// Why values can't be taken over, with the file that they may come from.
pub(super) fn values(error: Error, file: Option<&Path>) -> String {
    let all: Vec<_> = error.into_iter().map(|error| value(&error, file)).collect();
    all.join("; ")
}

fn value(error: &Error, file: Option<&Path>) -> String {
    let problem = problem(&error.kind, &error.path.join("."));
    match place(error, file) {
        Some(place) => format!("{place}: {problem}"),
        None => problem,
    }
}

/// The file or the variable.
fn place(error: &Error, file: Option<&Path>) -> Option<String> {
    let metadata = error.metadata.as_ref();
    if !metadata.is_some_and(|metadata| metadata.name.contains("environment")) {
        return file.map(|file| file.display().to_string());
    }
    // What is inside of a list has no variable of its own.
    let path = error.path.iter();
    let named = path.take_while(|part| part.parse::<usize>().is_err());
    let named: Vec<_> = named.map(|part| part.to_ascii_uppercase()).collect();
    Some(format!("the variable ADSUM_{}", named.join("__")))
}

fn problem(kind: &Kind, key: &str) -> String {
    match kind {
        Kind::InvalidType(actual, expected) => {
            format!("{key} must be {}, not {}", wanted(expected), found(actual))
        }
        Kind::InvalidValue(_, expected) | Kind::InvalidLength(_, expected) => {
            format!("{key} must be {}", wanted(expected))
        }
        Kind::UnknownVariant(_, known) => format!("{key} must be one of {}", known.join(", ")),
        Kind::UnknownField(_, known) => {
            format!(
                "{key} is an unknown key; there are only {}",
                known.join(", ")
            )
        }
        Kind::MissingField(name) if key.is_empty() => format!("{name} is missing"),
        Kind::MissingField(name) => format!("{key}.{name} is missing"),
        Kind::DuplicateField(name) => format!("{key} has {name} twice"),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => {
            format!("{key} is a number out of range")
        }
        Kind::Unsupported(actual) | Kind::UnsupportedKey(actual, _) => {
            format!("{key} can't be {}", found(actual))
        }
        Kind::Message(text) => match text.as_str() {
            "invalid socket address syntax" => format!("{key} must be {ADDRESS}"),
            // Rules of ids are told without the id.
            text if text.starts_with("tenant id ") => format!("{key}: {text}"),
            // Whoever wrote this may have put the value into it.
            _ => format!("{key} has a value that does not fit"),
        },
    }
}

const ADDRESS: &str = "an address with a port (\"127.0.0.1:8080\")";

/// In words of a configuration. What is expected comes from types, never from a value.
fn wanted(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "a table",
        "a string" | "a borrowed string" | "path string" => "a text in quotes",
        "a boolean" => "true or false",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number that is not negative",
        "f64" => "a number",
        "socket address" => ADDRESS,
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// Its type, and nothing of what it is.
const fn found(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "true or false",
        Actual::Unsigned(_) | Actual::Signed(_) => "a number",
        Actual::Float(_) => "a number with a fraction",
        Actual::Char(_) | Actual::Str(_) => "a text",
        Actual::Bytes(_) => "bytes",
        Actual::Unit | Actual::Option => "nothing",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        _ => "something else",
    }
}
