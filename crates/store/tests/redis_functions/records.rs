//! What is stored is what the codec writes.

use adsum_core::{
    Conn, DeviceId, Kind, Manual, Meta, Origin, Preference, Prefs, RoomId, Versioned, Visibility,
    codec, store::Store,
};
use anyhow::Result;
use redis::cmd;

use crate::lab::{Lab, key, open, options, stamp, state, touch, user};

#[tokio::test]
async fn records_are_what_the_codec_writes() -> Result<()> {
    let lab = Lab::new(options(1)).await?;
    let keys = lab.keys(0);
    let meta = Meta::new(r#"{"a":"ü"}"#, 100)?;
    let mut rich = state(&["a", "b", "c", "d", "e", "f"]);
    rich.kind = Kind::new("web")?;
    rich.meta = Some(Meta::new(format!("\"{}\"", "x".repeat(300)), 1000)?);
    rich.rooms.get_mut(&RoomId::new("b")?).unwrap().meta = Some(meta);
    for (device, state) in [("z", rich.clone()), ("Ä", state(&[])), ("a", rich)] {
        let mut op = open(
            key("ann", device),
            "gw~1",
            stamp(Conn::MAX, Conn::MAX),
            state,
        );
        op.origin = Some(Origin {
            at_us: 1,
            traceparent: Some("00-1".into()),
        });
        op.prefs = Some(Prefs {
            status: Versioned {
                value: Some(Manual::Dnd),
                version: 1 << 40,
            },
            ..Prefs::default()
        });
        lab.store.open(op).await?;
    }
    lab.store
        .prefer(&user("ann"), Preference::Visibility(Visibility::Nobody), 1)
        .await?;
    lab.store
        .kick(&user("ann"), Some(&DeviceId::new("Ä")?))
        .await?;
    lab.store
        .touch(vec![touch(key("bob", "w"), stamp(1, 1), state(&[]))])
        .await?;

    let raw: Vec<u8> = lab
        .raw(
            cmd("HGET")
                .arg(keys.named("people"))
                .arg(user("ann").encode()),
        )
        .await?;
    let person = codec::decode_person(&raw)?;
    assert_eq!(person.sessions.len(), 2);
    assert_eq!(codec::encode_person(&person), raw);
    let prefs: Vec<u8> = lab
        .raw(
            cmd("HGET")
                .arg(keys.named("prefs"))
                .arg(user("ann").encode()),
        )
        .await?;
    assert_eq!(codec::encode_prefs(&codec::decode_prefs(&prefs)?), prefs);
    assert_log_bytes(&lab).await
}

pub(crate) async fn assert_log_bytes(lab: &Lab) -> Result<()> {
    let keys = lab.keys(0);
    type Entry = (String, (String, Vec<u8>));
    let log: Vec<Entry> = lab
        .raw(cmd("XRANGE").arg(keys.named("log")).arg("-").arg("+"))
        .await?;
    let mut bytes = 0;
    for (id, (field, raw)) in &log {
        let change = codec::decode_change(raw)?;
        assert_eq!(codec::encode_change(&change), *raw, "{change:?}");
        assert_eq!(
            (id, field.as_str()),
            (&format!("{}-0", change.version.seq), "e")
        );
        bytes += raw.len();
    }
    let head: Vec<u8> = lab
        .raw(cmd("HGET").arg(keys.named("meta")).arg("head"))
        .await?;
    let mut head = &head[..];
    // shards epoch seq unsettled log_bytes log_first
    let numbers = (0..6).map(|_| rmp::decode::read_int::<u64, _>(&mut head));
    let numbers: Vec<_> = numbers.collect::<Result<_, _>>()?;
    let (counted, first) = (numbers[4], numbers[5]);
    assert_eq!(counted, bytes as u64);
    assert_eq!(
        log.first().map(|(id, _)| id.clone()),
        Some(format!("{first}-0"))
    );
    Ok(())
}
