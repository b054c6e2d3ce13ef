//! Patterns against a model that is plain to see.

use adsum_core::Topic;
use proptest::prelude::*;

use super::*;

fn model(pattern: &str, id: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => id.starts_with(prefix),
        None => id == pattern,
    }
}

proptest! {
    #[test]
    fn auth_patterns_allow_exactly_what_some_pattern_names(
        patterns in prop::collection::vec("[ab:*]{1,3}\\*?|\\*", 0..4),
        ids in prop::collection::vec("[ab:*]{1,5}", 1..20),
    ) {
        let mut set = Patterns::default();
        for pattern in &patterns {
            set.add_rooms(pattern).unwrap();
        }
        for id in &ids {
            let named = patterns.iter().any(|p| model(p, id));
            prop_assert_eq!(set.allows(id), named, "{:?} {}", patterns, id);
        }
    }

    #[test]
    fn auth_patterns_of_one_kind_never_reach_another(
        patterns in prop::collection::vec("(room|user):[abt:*]{1,3}\\*?|tenant|[a-z:*]{0,4}", 0..4),
        id in "[abt:*]{1,5}",
    ) {
        let mut set = TopicPatterns::default();
        let fit: Vec<_> = patterns.iter().filter(|p| set.add(p).is_ok()).collect();
        for kind in ["room", "user"] {
            let topic: Topic = format!("{kind}:{id}").parse().unwrap();
            let named = fit.iter().any(|p| match p.split_once(':') {
                Some((k, ids)) => k == kind && model(ids, &id),
                None => p.as_str() == "*",
            });
            prop_assert_eq!(set.allows(&topic), named, "{:?} {}", patterns, topic);
        }
        let named = fit.iter().any(|p| ["tenant", "*"].contains(&p.as_str()));
        prop_assert_eq!(set.allows(&Topic::Tenant), named);
    }
}
