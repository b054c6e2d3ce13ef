//! The sorts of faults.

/// What a fault touches: one fault at a time in each area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// The gateways.
    Gateways,
    /// The dispatchers.
    Dispatchers,
    /// The reapers.
    Reapers,
    /// Redis.
    Redis,
    /// etcd.
    Etcd,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $area:ident $weight:literal,)*) => {
        /// A sort of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name in figures and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// What it touches.
            #[must_use]
            pub const fn touches(self) -> Area {
                match self { $(Self::$kind => Area::$area,)* }
            }

            /// How often it is in a deck.
            #[must_use]
            pub const fn weight(self) -> usize {
                match self { $(Self::$kind => $weight,)* }
            }
        }
    };
}

kinds! {
    /// SIGKILL.
    GatewayKilled "gateway_killed" Gateways 3,
    /// SIGSTOP, and SIGCONT before or after its deadline.
    GatewayFrozen "gateway_frozen" Gateways 2,
    /// SIGTERM, and a new start.
    GatewayDrained "gateway_drained" Gateways 2,
    /// No packets to and from Redis.
    GatewayCut "gateway_cut_from_redis" Gateways 2,
    /// Packets to or from Redis are lost, not both.
    GatewayHalfCut "gateway_half_cut_from_redis" Gateways 1,
    /// No packets to and from the dispatchers.
    FeedCut "gateway_cut_from_dispatchers" Gateways 2,
    /// Packets to or from the dispatchers are lost, not both.
    FeedHalfCut "gateway_half_cut_from_dispatchers" Gateways 1,
    /// The clock of one is off for a while.
    GatewayClock "gateway_clock_jumped" Gateways 1,
    /// Every node in turn, gateways last.
    Rolling "rolling_deploy" Gateways 1,
    /// SIGKILL.
    DispatcherKilled "dispatcher_killed" Dispatchers 3,
    /// SIGSTOP and SIGCONT.
    DispatcherFrozen "dispatcher_frozen" Dispatchers 2,
    /// SIGTERM, and a new start.
    DispatcherRestarted "dispatcher_restarted" Dispatchers 1,
    /// No packets to and from Redis.
    DispatcherDeaf "dispatcher_cut_from_redis" Dispatchers 1,
    /// Packets to or from Redis are lost, not both.
    DispatcherHalfDeaf "dispatcher_half_cut_from_redis" Dispatchers 1,
    /// Every byte of a dispatcher's feed comes 50 to 500 ms late.
    FeedDelayed "feed_delayed" Dispatchers 1,
    /// SIGKILL.
    ReaperKilled "reaper_killed" Reapers 2,
    /// SIGSTOP past its lease, and SIGCONT.
    ReaperFrozen "reaper_frozen" Reapers 2,
    /// SIGTERM, and a new start.
    ReaperRestarted "reaper_restarted" Reapers 1,
    /// No packets to and from etcd.
    ReaperCut "reaper_cut_from_etcd" Reapers 1,
    /// SIGKILL of a master; its replica takes over.
    MasterKilled "redis_master_killed" Redis 2,
    /// SIGSTOP of a master until its replica has taken over.
    MasterFrozen "redis_master_frozen" Redis 1,
    /// SIGKILL of a replica, and a new start.
    ReplicaKilled "redis_replica_killed" Redis 1,
    /// SIGSTOP of a replica.
    ReplicaFrozen "redis_replica_frozen" Redis 1,
    /// SIGSTOP of a master and its replica.
    ShardAway "redis_shard_away" Redis 1,
    /// Every byte to and from Redis comes 50 to 500 ms late.
    RedisDelayed "redis_delayed" Redis 1,
    /// `FLUSHALL` on every master.
    Emptied "redis_flushall" Redis 1,
    /// `FUNCTION FLUSH` on every master.
    FunctionsLost "redis_function_flush" Redis 1,
    /// `CLIENT KILL TYPE pubsub` on every node.
    PushesLost "redis_client_kill_pubsub" Redis 1,
    /// The clock of a master is off for a while.
    RedisClock "redis_clock_jumped" Redis 1,
    /// Slots move to another master, key by key.
    Migrated "redis_slots_migrated" Redis 1,
    /// SIGKILL of a member, and a new start.
    MemberKilled "etcd_member_killed" Etcd 2,
    /// SIGSTOP of a member.
    MemberFrozen "etcd_member_frozen" Etcd 1,
    /// SIGKILL of all members, and a new start with their data.
    EtcdKilled "etcd_all_killed" Etcd 1,
    /// SIGKILL of all members, and a new start with nothing.
    EtcdWiped "etcd_restored_from_nothing" Etcd 1,
}

impl Kind {
    /// Whether it needs the packet filter.
    #[must_use]
    pub const fn is_cut(self) -> bool {
        matches!(
            self,
            Self::GatewayCut
                | Self::GatewayHalfCut
                | Self::FeedCut
                | Self::FeedHalfCut
                | Self::DispatcherDeaf
                | Self::DispatcherHalfDeaf
                | Self::ReaperCut
        )
    }
}
