//! What a connection has to do at the moment.

use std::sync::Arc;

use tokio::sync::watch;

/// What a connection has to do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    /// Requests whose answers have not ended.
    pub(super) under_way: usize,
    /// It has sent a whole head at least once.
    pub(super) served: bool,
}

/// One request, counted until its answer has ended.
pub(super) struct UnderWay(Arc<watch::Sender<Load>>);

impl UnderWay {
    pub(super) fn new(load: &Arc<watch::Sender<Load>>) -> Self {
        load.send_modify(|load| {
            load.under_way += 1;
            load.served = true;
        });
        Self(Arc::clone(load))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|load| load.under_way -= 1);
    }
}
