//! Every time constant, and the bounds of what is kept and queued.

use super::section::section;

section! {
    /// Every time constant, in ms. Of those that clients feel (the first four) a tenant may have
    /// its own.
    pub(crate) struct Times {
        /// How often a connected client says something.
        heartbeat_ms: u64 = 15_000,
        /// How long a client may say nothing.
        session_ttl_ms: u64 = 45_000,
        /// How long a broken connection is told to nobody: who is back by then was never away.
        /// Those whose time is up are closed together, up to a fortieth of this later, 250 ms at
        /// most (with `gather_ms` at its moments, 500 ms at most).
        linger_ms: u64 = 10_000,
        /// How long last seen is kept.
        retention_ms: u64 = 90 * 24 * 3_600_000,
        /// How long a client waits for an answer before it reconnects.
        ack_timeout_ms: u64 = 5_000,
        /// A client that connects must say hello within this time.
        hello_ms: u64 = 10_000,
        /// What a client asks of a store that does not answer for so long is answered as taken: it
        /// will be written.
        answer_ms: u64 = 2_000,
        /// How long before its token ends a client is told.
        expiring_ms: u64 = 30_000,
        /// Diffs go at once, or are gathered for at most this long while most watchers have yet to
        /// take the last one.
        window_ms: u64 = 50,
        /// Large topics tell one diff in this time.
        interval_ms: u64 = 1_000,
        /// A gateway that drains sends its clients away over this time.
        drain_window_ms: u64 = 20_000,
        /// Users of a shard that can't be renewed for so long, while others can, are sent to
        /// another gateway.
        stuck_ms: u64 = 10_000,
        /// Sessions are written to the store at whole multiples of this time, those of all gateways
        /// together: a server that is asked several things at once spends less on each. Whoever
        /// connects waits half of it, and so do those who watch them. 0 for at once.
        gather_ms: u64 = 0,
        /// The time for a TLS handshake on the public port.
        handshake_ms: u64 = 10_000,
        /// The time for a connection's first request.
        header_ms: u64 = 10_000,
        /// The time for the body of a request, unless it is a stream of gRPC.
        body_ms: u64 = 30_000,
        /// A connection of the public port with nothing under way is closed after this time.
        idle_ms: u64 = 75_000,
        /// How often certificates and verification keys are looked at for changes.
        watch_files_ms: u64 = 5_000,
        /// How often a gateway renews its deadline in a shard.
        renew_ms: u64 = 5_000,
        /// That deadline.
        holder_ttl_ms: u64 = 30_000,
        /// After so long without renewals and sweeps, sweeps wait for one settling.
        alive_gap_ms: u64 = 10_000,
        /// How long a closed connection can't be opened again.
        tomb_ms: u64 = 60_000,
        /// The longest pause between two sweeps of a shard; what is due is swept when it is. A
        /// deadline that is shorter may be noticed so much later.
        sweep_ms: u64 = 3_000,
        /// A shard without a reaper for so long may be taken by any.
        ownerless_ms: u64 = 2_000,
        /// A node's lease in etcd; etcd counts whole seconds.
        lease_ttl_ms: u64 = 5_000,
        /// How often a dispatcher asks for a shard's position.
        poll_ms: u64 = 500,
        /// A dispatcher that is silent for so long is left.
        silent_ms: u64 = 2_000,
        /// A topic is shown after so long, complete or not.
        complete_ms: u64 = 1_000,
        /// How long a view that nobody wants is kept.
        unload_ms: u64 = 60_000,
        /// The time an operation on the store has, with all its attempts.
        store_deadline_ms: u64 = 5_000,
        /// The time a node has to stop, `drain_window_ms` included.
        stop_ms: u64 = 30_000,
    }
}

section! {
    /// Bounds of what is kept and queued.
    pub(crate) struct Bounds {
        /// Entries of a shard's log.
        log_len: u64 = 10_000,
        /// Bytes of a shard's log.
        log_bytes: u64 = 16 << 20,
        /// Sessions that one sweep closes.
        sweep_limit: usize = 100,
        /// Dispatchers that keep a view of each shard.
        feed_replicas: usize = 2,
        /// States waiting for one gateway.
        feed_queue: usize = 50_000,
        /// Touched topics that a view remembers.
        feed_history: usize = 20_000,
        /// Operations of a gateway waiting for one shard; who comes next is told to retry.
        holder_backlog: usize = 10_000,
        /// Above so many members, counting those whom everybody may see, a topic is told in mode
        /// `interval`.
        interval_above: usize = 2_000,
        /// Above so many in mode `count`.
        count_above: usize = 10_000,
        /// Members in the sample of mode `count`.
        sample: usize = 50,
        /// Entries of one topic that wait for one client; more, and it gets a fresh state.
        outbox_entries: usize = 1_000,
        /// Answers that wait for one client that does not read them; more, and it is closed.
        outbox_answers: usize = 1_000,
        /// Users that one request may name.
        users_per_request: usize = 1_000,
        /// The longest page of members.
        page: usize = 1_000,
        /// Connections that have not sent a whole request yet; of more, the oldest is closed.
        unfinished_connections: usize = 4_096,
        /// Streams of one HTTP/2 connection at a time.
        streams_per_connection: u32 = 256,
    }
}
