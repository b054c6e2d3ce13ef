//! Colours, where somebody looks: on a terminal, unless `NO_COLOR` is set.

use std::io::IsTerminal;

/// Whether to colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(bool);

impl Paint {
    /// As stdout is.
    pub(super) fn stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self(std::io::stdout().is_terminal() && !unwanted)
    }

    pub(super) fn green(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(super) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(super) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(super) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(super) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// A status in its own colour.
    pub(super) fn status(self, status: &str) -> String {
        match status {
            "online" => self.green(status),
            "away" => self.yellow(status),
            "busy" | "dnd" => self.red(status),
            _ => self.dim(status),
        }
    }

    fn with(self, code: &str, text: &str) -> String {
        // Ids are the customer's: a terminal must not obey what they contain.
        let text = printable(text);
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text
        }
    }
}

/// A text that a terminal takes as nothing but text.
pub(super) fn printable(text: &str) -> String {
    let harmless = |c: char| {
        if c.is_control() || is_format(c) {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(harmless).collect()
}

/// Characters that turn the writing direction, or are not there to see.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
}

/// A time in the past, roughly: `3 s`, `5 min`, `2 h`, `4 d`.
pub(super) fn ago(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..120 => format!("{s} s"),
        120..7200 => format!("{} min", s / 60),
        7200..172_800 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_commands_from_ids() {
        let paint = Paint(true);
        let painted = paint.green("a\x1b[2Jb");
        assert_eq!(painted, "\x1b[32ma\u{fffd}[2Jb\x1b[0m");
        assert_eq!(Paint(false).red("x"), "x");
        assert_eq!(printable("a\u{202e}b"), "a\u{fffd}b");
    }

    #[test]
    fn times_are_rough() {
        assert_eq!(ago(1500), "1 s");
        assert_eq!(ago(300_000), "5 min");
        assert_eq!(ago(3 * 3_600_000), "3 h");
        assert_eq!(ago(9 * 86_400_000), "9 d");
    }
}
