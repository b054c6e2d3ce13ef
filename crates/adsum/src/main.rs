//! The presence service: one binary, all roles.

use std::process::ExitCode;

fn main() -> ExitCode {
    adsum::main()
}
