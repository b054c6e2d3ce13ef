//! The presence service: one binary, all roles.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Chosen by measurement: see docs/performance.md.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    adsum::main()
}
