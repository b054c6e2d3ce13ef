//! The handle of an app.

use std::sync::Arc;

use adsum_core::{Activity, Manual, Meta, RoomId, Topic};
use adsum_proto::client::frame::{ClientBody, Item, Join, Mode, Patch, Set, Token, Watch};
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    Builder, EndReason, Error, State, View,
    session::{Book, Done},
};

/// What the app wants of the task.
#[derive(Debug)]
pub(crate) enum Command {
    Call(ClientBody, Done),
    /// As a call, but also for the connections to come.
    Token(Token, Done),
    Close,
    #[cfg(feature = "testing")]
    Sever,
    #[cfg(feature = "testing")]
    Freeze(Freeze),
}

/// How a client misbehaves.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Freeze {
    /// Nothing is read.
    pub reading: bool,
    /// Nothing is sent, beats included, and no answer is missed.
    pub beating: bool,
}

#[cfg(feature = "testing")]
impl Freeze {
    /// Neither reads nor beats: the socket stays open, and that is all.
    pub const ALL: Self = Self {
        reading: true,
        beating: true,
    };
}

/// What the handles share.
#[derive(Debug)]
pub(crate) struct Handle {
    /// Boxed, because the channel keeps room for many of them.
    pub(crate) commands: mpsc::Sender<Box<Command>>,
    pub(crate) state: watch::Receiver<State>,
    pub(crate) book: Arc<Book>,
}

/// A client that stays connected. Cheap to clone; it lives as long as one of the clones does, or
/// until it ends by itself.
///
/// Calls resolve when the server has confirmed them. They outlive connections: while there is
/// none, they wait. Dropping the future does not take the call back.
#[derive(Debug, Clone)]
pub struct Client(Arc<Handle>);

impl Client {
    pub(crate) fn new(handle: Handle) -> Self {
        Self(Arc::new(handle))
    }

    /// Sets a client up.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Enters a room. To enter it again changes `meta` there.
    ///
    /// # Errors
    /// As all calls: when the server refuses it for good, or the client is over.
    pub async fn join(&self, room: RoomId, meta: Option<Meta>) -> Result<(), Error> {
        self.call(ClientBody::Join(Join { room, meta })).await
    }

    /// Goes out of a room.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn part(&self, room: RoomId) -> Result<(), Error> {
        self.call(ClientBody::Part(room)).await
    }

    /// Watches a topic, or watches it in another mode. When this resolves, its roster is there.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn watch(&self, topic: Topic, mode: Mode) -> Result<(), Error> {
        let digest = None;
        let watch = Watch {
            topic,
            mode,
            digest,
        };
        self.call(ClientBody::Watch(watch)).await
    }

    /// Watches a topic no more. Its roster and its events that were not read yet are gone.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn unwatch(&self, topic: Topic) -> Result<(), Error> {
        self.call(ClientBody::Unwatch(vec![topic])).await
    }

    /// Says whether the device is in use.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn set_activity(&self, activity: Activity) -> Result<(), Error> {
        let activity = Some(activity);
        let set = Set {
            activity,
            ..Set::default()
        };
        self.call(ClientBody::Set(set)).await
    }

    /// Sets the user's manual status on all devices, or clears it.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn set_status(&self, status: Option<Manual>) -> Result<(), Error> {
        let status = status.map_or(Patch::Clear, Patch::Set);
        let set = Set {
            status,
            ..Set::default()
        };
        self.call(ClientBody::Set(set)).await
    }

    /// Sets the `meta` of this session, or takes it away.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn set_meta(&self, meta: Option<Meta>) -> Result<(), Error> {
        let meta = meta.map_or(Patch::Clear, Patch::Set);
        let set = Set {
            meta,
            ..Set::default()
        };
        self.call(ClientBody::Set(set)).await
    }

    /// Replaces the token, on this connection and for those to come. For apps without a provider,
    /// on [`Event::Expiring`](crate::Event::Expiring).
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub async fn refresh(&self, token: impl Into<Arc<str>>) -> Result<(), Error> {
        let token = Token::new(token);
        self.ask(|done| Command::Token(token, done)).await
    }

    /// Says goodbye, and ends. Watchers are told at once.
    ///
    /// # Errors
    /// When nobody confirmed it within the time-out for answers; the client ends all the same.
    pub async fn leave(&self) -> Result<(), Error> {
        self.call(ClientBody::Leave).await
    }

    /// Ends without a goodbye: the session lingers for a while, as if the line had broken.
    pub async fn close(&self) {
        self.order(Command::Close).await.ok();
        self.ended().await;
    }

    /// Who is known to be in a topic, by id; in mode `count` a sample. Empty if not watched.
    #[must_use]
    pub fn roster(&self, topic: &Topic) -> Vec<Arc<Item>> {
        self.view(topic)
            .map(|view| view.members)
            .unwrap_or_default()
    }

    /// How many are in a topic, as told by the server or else as counted; `None` if not watched.
    #[must_use]
    pub fn count(&self, topic: &Topic) -> Option<u64> {
        self.view(topic).map(|view| view.count)
    }

    /// All that is known of a topic; `None` if not watched.
    #[must_use]
    pub fn view(&self, topic: &Topic) -> Option<View> {
        self.0.book.view(topic)
    }

    /// Where the client stands, now and from now on.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.0.state.clone()
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// When the client ends instead.
    pub async fn online(&self) -> Result<(), Error> {
        let mut state = self.state();
        let known = state.wait_for(|s| matches!(s, State::Online { .. } | State::Ended(_)));
        match known.await.as_deref() {
            Ok(State::Online { .. }) => Ok(()),
            Ok(State::Ended(reason)) => Err(Error::Ended(reason.clone())),
            _ => Err(Error::Ended(EndReason::ClosedByApp)),
        }
    }

    /// Waits until the client is over, and says why.
    pub async fn ended(&self) -> EndReason {
        let mut state = self.state();
        match state
            .wait_for(|s| matches!(s, State::Ended(_)))
            .await
            .as_deref()
        {
            Ok(State::Ended(reason)) => reason.clone(),
            _ => EndReason::ClosedByApp,
        }
    }

    /// Breaks the line without a word, as a network does. The client then comes back.
    #[cfg(feature = "testing")]
    pub async fn sever(&self) {
        self.order(Command::Sever).await.ok();
    }

    /// Misbehaves until told otherwise.
    #[cfg(feature = "testing")]
    pub async fn freeze(&self, freeze: Freeze) {
        self.order(Command::Freeze(freeze)).await.ok();
    }

    /// Behaves again.
    #[cfg(feature = "testing")]
    pub async fn thaw(&self) {
        self.freeze(Freeze::default()).await;
    }

    async fn call(&self, body: ClientBody) -> Result<(), Error> {
        self.ask(|done| Command::Call(body, done)).await
    }

    async fn ask(&self, command: impl FnOnce(Done) -> Command) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        self.order(command(done)).await?;
        match answer.await {
            Ok(result) => result,
            Err(_) => Err(self.over()),
        }
    }

    async fn order(&self, command: Command) -> Result<(), Error> {
        let sent = self.0.commands.send(Box::new(command)).await;
        sent.map_err(|_| self.over())
    }

    fn over(&self) -> Error {
        Error::Ended(match &*self.0.state.borrow() {
            State::Ended(reason) => reason.clone(),
            // The task is gone and could not say why: its runtime was shut down.
            _ => EndReason::ClosedByApp,
        })
    }
}
