//! Compiles the .proto files in Rust: no protoc needed for ours.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let files = ["adsum/feed/v1/feed.proto"];
    println!("cargo:rerun-if-changed=../../proto");
    let set = protox::compile(files, ["../../proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(set)?;
    Ok(())
}
