//! What a node says of itself. Its id is made of its name and a random part, anew for every
//! lease, so that nothing done under a lost lease can be taken for the work of the next one.

use adsum_core::NodeId;
use adsum_core::membership::{Member, MembershipError, Role};

/// Leaves room in an id for the random part here, and for the number of an incarnation.
const LONGEST: usize = 96;

/// A node as it wants to be known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// The stem of its ids, for example the name of its host.
    pub name: String,
    /// Where its feed listens, `host:port`.
    pub address: String,
    /// What it does.
    pub roles: Vec<Role>,
    /// Where it stands: shown to others, and in telemetry.
    pub zone: String,
    /// The release it runs.
    pub version: String,
}

impl Profile {
    /// Whether a node can have this name.
    ///
    /// # Errors
    /// Says what it must be.
    pub fn check_name(name: &str) -> Result<(), String> {
        check_word(name, LONGEST)
    }

    /// A member of this profile with an id that was never used before.
    ///
    /// # Errors
    /// When the name can't be part of an id.
    pub(crate) fn member(&self) -> Result<Member, MembershipError> {
        Self::check_name(&self.name)
            .map_err(|why| MembershipError::Refused(format!("the node's name {why}")))?;
        let id = format!("{}-{:08x}", self.name, rand::random::<u32>());
        let node = NodeId::new(id).map_err(|e| MembershipError::Refused(e.to_string()))?;
        Ok(Member {
            node,
            address: self.address.clone(),
            roles: self.roles.clone(),
            zone: self.zone.clone(),
            version: self.version.clone(),
        })
    }
}

/// Names are parts of keys: a slash would put a node into another's folder.
pub(crate) fn check_word(word: &str, longest: usize) -> Result<(), String> {
    let problem = match word {
        "" => "must not be empty".to_owned(),
        _ if word.len() > longest => format!("must have at most {longest} bytes"),
        _ if word.contains('/') => "must not contain a slash".to_owned(),
        _ if word.chars().any(char::is_control) => {
            "must not contain a control character".to_owned()
        }
        _ => return Ok(()),
    };
    Err(format!(
        "{problem}: ids, and keys in Redis and etcd, are made of it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_of_a_profile_has_its_own_id() {
        let profile = Profile {
            name: "gw".into(),
            ..Profile::default()
        };
        let (one, two) = (profile.member().unwrap(), profile.member().unwrap());
        assert!(one.node.as_str().starts_with("gw-"));
        assert_ne!(one.node, two.node);
    }

    #[test]
    fn names_that_break_keys_are_refused() {
        for name in ["", "a/b", "a\nb", &"x".repeat(97)] {
            let profile = Profile {
                name: name.into(),
                ..Profile::default()
            };
            assert!(!profile.member().unwrap_err().retry(), "{name:?}");
        }
    }
}
