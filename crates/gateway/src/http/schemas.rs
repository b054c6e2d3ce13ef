//! Words of the OpenAPI document that are no structs: ids, statuses, and values of two shapes.
//!
//! JSON Schema counts characters where ids count bytes, so the pattern says what surely fits: up to
//! 128 of ASCII, or up to 32 of anything, four bytes each.

use std::borrow::Cow;

use serde_json::json;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Ref, RefOr, Schema, Type,
        schema::{AnyOfBuilder, ObjectBuilder, SchemaType},
    },
};

/// Without control characters (Unicode's `Cc`).
macro_rules! id {
    () => {
        r"([ -~]{1,128}|[^\x00-\x1f\x7f-\x9f]{1,32})"
    };
}

const ID: &str = concat!("^", id!(), "$");
/// Bytes of a user's id in hex.
const PAGE_TOKEN: &str = "^([0-9a-f]{2}){0,128}$";
const KIND: &str = "^[a-z0-9_-]{1,32}$";
const TOPIC: &str = concat!("^(tenant|(room|user):", id!(), ")$");

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident = $schema:expr;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    RefOr::T($schema)
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    Cow::Borrowed(stringify!($name))
                }
            }
        )*
    };
}

words! {
    /// An id.
    Id = text(Some(ID), "1 to 128 bytes of UTF-8, no control characters");
    /// A device kind.
    Kind = text(Some(KIND), "A device kind: web, mobile, desktop, …; `other` if none was named");
    /// A topic.
    TopicName = text(Some(TOPIC), "`room:<id>`, `user:<id>` or `tenant`");
    /// A page token.
    PageTokenText = text(Some(PAGE_TOKEN), "Opaque; from the page before. Empty: the first page");
    /// What a person is.
    StatusWord = word(
        &["online", "away", "busy", "dnd", "invisible", "offline"],
        "`invisible` is told to the user alone, and to services that see everybody",
    );
    /// What a device reports.
    ActivityWord = word(&["online", "away"], "What the device reports; `online` if not said");
    /// Who may see a user.
    VisibilityWord = word(&["everyone", "contacts", "nobody"], "Who may see the user");
    /// How much is told.
    ModeWord = word(&["members", "interval", "count"], "The least that is wanted");
    /// A manual status, or none.
    ManualWord = Schema::Object(
        ObjectBuilder::new()
            .schema_type(nullable(Type::String))
            .enum_values(Some([
                json!("away"), json!("busy"), json!("dnd"), json!("invisible"), json!(null),
            ]))
            .description(Some("Overrides the devices; `null`: none"))
            .build(),
    );
    /// A version.
    VersionText = text(Some("^[0-9]+-[0-9]+$"), "Changes with every change; compare for equality");
    /// A room of a session.
    RoomEntry = Schema::AnyOf(
        AnyOfBuilder::new()
            .item(Id::schema())
            .item(<super::bodies::RoomBody as PartialSchema>::schema())
            .description(Some("A room's id, or an object with `room` and `meta`"))
            .build(),
    );
    /// One of many beats.
    BeatOfMany = one_of_many();
    /// What a heartbeat carries.
    HeartbeatBody = Schema::AnyOf(
        AnyOfBuilder::new()
            .item(Ref::from_schema_name("Beat"))
            .item(Ref::from_schema_name("Beats"))
            .description(Some("One beat, or `beats`"))
            .build(),
    );
}

/// Any object: of many beats each that is none gets an error of its own, so that it does not harm
/// the others. What makes a good one is said by `Beat`.
fn one_of_many() -> Schema {
    let any = || ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    let fields = [
        "user", "device", "conn", "rev", "kind", "activity", "meta", "rooms",
    ];
    let beat = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("A `Beat`; one that is none gets an error of its own"));
    let beat = fields
        .into_iter()
        .fold(beat, |beat, field| beat.property(field, any()));
    Schema::Object(beat.build())
}

fn nullable(kind: Type) -> SchemaType {
    SchemaType::from_iter([kind, Type::Null])
}

fn text(pattern: Option<&str>, description: &str) -> Schema {
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(pattern)
        .description(Some(description));
    Schema::Object(text.build())
}

fn word(words: &[&'static str], description: &str) -> Schema {
    let word = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(words.iter().copied()))
        .description(Some(description));
    Schema::Object(word.build())
}
