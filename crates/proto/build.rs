//! Compiles the .proto files in Rust: no protoc needed for ours.

use std::{env, error::Error, fs, path::Path};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../../proto");
    let feed = protox::compile(["adsum/feed/v1/feed.proto"], ["../../proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(feed)?;

    let client = protox::compile(["adsum/v1/client.proto"], ["../../proto"])?;
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    // What the public reflection service shows.
    fs::write(out.join("adsum.v1.bin"), client.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .compile_fds(client.clone())?;
    // The service apart from its messages, because its streams carry a type of ours in place of
    // the generated `ServerFrame`: one that can be put together of bytes encoded before.
    let service = out.join("service");
    fs::create_dir_all(&service)?;
    tonic_prost_build::configure()
        .out_dir(service)
        // Its `connect(address)` would collide with our method: `PresenceClient::new(channel)`.
        .build_transport(false)
        .codec_path("crate::client::codec::SmallCodec")
        .extern_path(".adsum.v1", "crate::client::v1")
        .extern_path(".adsum.v1.ServerFrame", "crate::client::WireFrame")
        .compile_fds(client.clone())?;
    // The gateway's side of it: requests are counted before they are decoded, and the frames of a
    // client are handed over as they came.
    let door = out.join("door");
    fs::create_dir_all(&door)?;
    tonic_prost_build::configure()
        .out_dir(door)
        .build_client(false)
        .codec_path("crate::client::incoming::DoorCodec")
        .extern_path(".adsum.v1", "crate::client::v1")
        .extern_path(".adsum.v1.ClientFrame", "crate::client::RawFrame")
        .extern_path(".adsum.v1.ServerFrame", "crate::client::WireFrame")
        .compile_fds(client)?;
    Ok(())
}
