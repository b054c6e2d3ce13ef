//! One list per section of the configuration: its keys, their defaults and what they mean. The
//! structs, `default-config` and the reference page all come from it.

/// A key of a section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it means, line by line as written.
    pub(crate) about: &'static [&'static str],
}

/// A section, for those who describe it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    /// Its name in the file.
    pub(crate) name: &'static str,
    /// What it is about.
    pub(crate) about: &'static [&'static str],
    /// What it has.
    pub(crate) keys: &'static [Key],
}

/// Defines a section's struct with its defaults, and `ABOUT` and `KEYS` that describe it.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident {
            $($(#[doc = $doc:literal])* $field:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $name {
            $($(#[doc = $doc])* $vis $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $name {
            pub(crate) const ABOUT: &'static [&'static str] = &[$($about),*];
            pub(crate) const KEYS: &'static [$crate::config::Key] = &[
                $($crate::config::Key { name: stringify!($field), about: &[$($doc),*] }),*
            ];
        }
    };
}

pub(crate) use section;
