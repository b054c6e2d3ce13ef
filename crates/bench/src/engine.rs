//! Thousands of clients on one thread: sockets that are polled, frames out and in, beats. What
//! they do and what becomes of what they hear is up to an [`Actor`].

use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use mio::{Events, Interest, Poll, Token, net::TcpStream};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with},
};
use slab::Slab;

use crate::{
    args::Spoken,
    arrival,
    speech::{Heard, Hello, Line, Speech},
    wire,
};

const BUFFER: usize = 256 * 1024;

/// Of so many clients one notes when something arrives: that takes time, and the few tell as much
/// as all. Odd, because neighbours are on different gateways.
const NOTED: u8 = 7;

/// How a loop waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// In the kernel, a millisecond at most: leaves the processor to what is measured.
    Millisecond,
    /// Not at all: takes a core, and sees everything as soon as it is there.
    Spinning,
}

/// The number of a client.
pub(crate) type Id = usize;

/// What the clients do.
pub(crate) trait Actor {
    /// The session stands.
    fn opened(&mut self, _id: Id, _took: Duration) {}
    /// What is told next was here by then, whenever it was read, if that was noted.
    fn arrived(&mut self, _at: Option<Instant>) {}
    /// A line of a diff.
    fn line(&mut self, _id: Id, _line: Line<'_>, _now: Instant) {}
    /// Any other frame; also a diff, after its lines.
    fn heard(&mut self, _id: Id, _heard: Heard, _now: Instant) {}
    /// The connection is gone.
    fn closed(&mut self, _id: Id, _why: String) {}
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Handshake,
    Hello,
    Open,
}

struct Client {
    stream: TcpStream,
    phase: Phase,
    hello: Vec<u8>,
    begun: Instant,
    /// What came in and is no whole frame yet.
    rest: Vec<u8>,
    /// What the socket did not take yet.
    unsent: Vec<u8>,
    /// The system notes when something arrives.
    notes_arrivals: bool,
    beats: Option<Duration>,
}

/// The loop.
pub(crate) struct Engine {
    speech: Speech,
    poll: Poll,
    events: Events,
    clients: Slab<Client>,
    buffer: Vec<u8>,
    waiting: Waiting,
    /// Whether some of the clients note when something arrives.
    notes_arrivals: bool,
    /// When which client beats next.
    beats: BTreeMap<(Instant, Id), ()>,
    /// How many were opened.
    dialed: u8,
}

impl Engine {
    pub(crate) fn new(spoken: Spoken, waiting: Waiting) -> Result<Self> {
        Ok(Self {
            speech: Speech(spoken),
            poll: Poll::new().context("cannot poll")?,
            events: Events::with_capacity(4096),
            clients: Slab::new(),
            buffer: vec![0; BUFFER],
            waiting,
            notes_arrivals: false,
            beats: BTreeMap::new(),
            dialed: 0,
        })
    }

    pub(crate) fn speech(&self) -> Speech {
        self.speech
    }

    pub(crate) fn waits(&mut self, waiting: Waiting) {
        self.waiting = waiting;
    }

    /// Tells the actor when something arrived, for some of the clients that are opened from now on.
    pub(crate) fn note_arrivals(&mut self) {
        self.notes_arrivals = true;
    }

    /// Connects and says hello; what becomes of it is told.
    pub(crate) fn open(&mut self, server: SocketAddr, token: &str, hello: &Hello) -> Result<Id> {
        let stream = dial(server, self.dialed).with_context(|| format!("connect to {server}"))?;
        self.dialed = self.dialed.wrapping_add(1);
        let notes_arrivals = self.notes_arrivals && self.dialed.is_multiple_of(NOTED);
        if notes_arrivals {
            arrival::note(&stream)?;
        }
        let entry = self.clients.vacant_entry();
        let id = entry.key();
        let client = entry.insert(Client {
            stream,
            phase: Phase::Connecting,
            hello: self.speech.hello(token, hello),
            begun: Instant::now(),
            rest: Vec::new(),
            unsent: Vec::new(),
            notes_arrivals,
            beats: None,
        });
        let both = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        registry.register(&mut client.stream, Token(id), both)?;
        Ok(id)
    }

    /// Hangs up without a word.
    pub(crate) fn drop_client(&mut self, id: Id) {
        if self.clients.contains(id) {
            drop(self.clients.remove(id));
        }
    }

    pub(crate) fn send(&mut self, id: Id, payload: &[u8]) {
        let binary = self.speech.binary();
        if let Some(client) = self.clients.get_mut(id) {
            client.send(binary, payload);
        }
    }

    /// Runs once: waits for events as configured, and deals with them.
    pub(crate) fn turn(&mut self, actor: &mut impl Actor) -> Result<()> {
        let wait = match self.waiting {
            Waiting::Millisecond => Duration::from_millis(1),
            Waiting::Spinning => Duration::ZERO,
        };
        if let Err(error) = self.poll.poll(&mut self.events, Some(wait))
            && error.kind() != ErrorKind::Interrupted
        {
            return Err(error).context("cannot poll");
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            let Token(id) = event.token();
            if event.is_writable() {
                self.writable(id, actor);
            }
            if event.is_readable() {
                self.readable(id, event.is_read_closed(), actor);
            }
        }
        self.events = events;
        self.beat();
        Ok(())
    }

    /// Runs until something is so, or for so long; whether it is.
    pub(crate) fn run_until<A: Actor>(
        &mut self,
        actor: &mut A,
        limit: Duration,
        mut done: impl FnMut(&mut A) -> bool,
    ) -> Result<bool> {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if done(actor) {
                return Ok(true);
            }
            self.turn(actor)?;
        }
        Ok(done(actor))
    }

    fn beat(&mut self) {
        let now = Instant::now();
        while let Some((&(at, id), ())) = self.beats.first_key_value()
            && at <= now
        {
            self.beats.remove(&(at, id));
            let (frame, binary) = (self.speech.heartbeat(), self.speech.binary());
            if let Some(client) = self.clients.get_mut(id)
                && let Some(every) = client.beats
            {
                client.send(binary, &frame);
                self.beats.insert((now + every, id), ());
            }
        }
    }

    fn writable(&mut self, id: Id, actor: &mut impl Actor) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if client.phase == Phase::Connecting {
            let refused = client.stream.take_error().ok().flatten();
            let connected = client.stream.peer_addr();
            match (refused, connected) {
                (None, Ok(server)) => client.greet(&server.to_string(), self.speech),
                // Not yet.
                (None, Err(error)) if error.kind() == ErrorKind::NotConnected => return,
                (Some(error), _) | (None, Err(error)) => {
                    return self.lost(id, error.to_string(), actor);
                }
            }
        }
        client.flush();
    }

    /// `ended` if nothing comes after what is there: the end itself is not told again.
    fn readable(&mut self, id: Id, ended: bool, actor: &mut impl Actor) {
        loop {
            let Some(client) = self.clients.get_mut(id) else {
                return;
            };
            let read = match client.notes_arrivals {
                true => arrival::read(&client.stream, &mut self.buffer),
                false => client.stream.read(&mut self.buffer).map(|n| (n, None)),
            };
            match read {
                Ok((0, _)) => return self.lost(id, "the server hung up".into(), actor),
                Ok((count, arrived)) => {
                    let now = Instant::now();
                    actor.arrived(arrived);
                    let read = client.read(&self.buffer[..count], now, self.speech, |event| {
                        act(id, event, now, actor, &mut self.beats);
                    });
                    if let Err(why) = read {
                        return self.lost(id, why, actor);
                    }
                    if count < BUFFER && !ended {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.lost(id, error.to_string(), actor),
            }
        }
    }

    fn lost(&mut self, id: Id, why: String, actor: &mut impl Actor) {
        self.drop_client(id);
        actor.closed(id, why);
    }
}

/// Connects. On this machine, clients come from many addresses: from one there are not enough ports
/// for all, and long before they are used up the kernel spends its time on finding a free one.
fn dial(server: SocketAddr, n: u8) -> std::io::Result<TcpStream> {
    let SocketAddr::V4(server) = server else {
        return TcpStream::connect(server);
    };
    if !server.ip().is_loopback() {
        return TcpStream::connect(server.into());
    }
    let [.., process, own] = std::process::id().to_be_bytes();
    let source = Ipv4Addr::new(127, process, own, n % 250 + 1);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrV4::new(source, 0))?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from_std(socket.into())),
        Err(error) => Err(error.into()),
    }
}

enum Event<'a> {
    Opened(Duration, Duration),
    Line(Line<'a>),
    Heard(Heard),
}

fn act(
    id: Id,
    event: Event<'_>,
    now: Instant,
    actor: &mut impl Actor,
    beats: &mut BTreeMap<(Instant, Id), ()>,
) {
    match event {
        Event::Opened(took, every) => {
            beats.insert((now + every, id), ());
            actor.opened(id, took);
        }
        Event::Line(line) => actor.line(id, line, now),
        Event::Heard(heard) => actor.heard(id, heard, now),
    }
}

impl Client {
    fn greet(&mut self, host: &str, speech: Speech) {
        // What is asked goes out at once, as from any client.
        let _ = self.stream.set_nodelay(true);
        self.phase = Phase::Handshake;
        self.unsent = speech.handshake(host);
    }

    fn send(&mut self, binary: bool, payload: &[u8]) {
        wire::put(&mut self.unsent, binary, payload);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The socket says when it takes more; one that broke is found when it is read.
                Err(_) => return,
            }
        }
        self.unsent = Vec::new();
    }

    fn read(
        &mut self,
        bytes: &[u8],
        now: Instant,
        speech: Speech,
        mut act: impl FnMut(Event<'_>),
    ) -> Result<(), String> {
        let kept = std::mem::take(&mut self.rest);
        let joined;
        let mut bytes = if kept.is_empty() {
            bytes
        } else {
            joined = [&kept, bytes].concat();
            &joined
        };
        if self.phase == Phase::Handshake {
            match wire::handshake_end(bytes)? {
                Some(end) => bytes = &bytes[end..],
                None => {
                    self.rest = bytes.to_vec();
                    return Ok(());
                }
            }
            self.phase = Phase::Hello;
            let hello = std::mem::take(&mut self.hello);
            self.send(speech.binary(), &hello);
        }
        while let Some((kind, payload, end)) = wire::take(bytes)? {
            match kind {
                wire::Kind::Message => {
                    let heard = speech.hear(payload, |line| act(Event::Line(line)))?;
                    if let Heard::Ping(echo) = heard {
                        self.send(speech.binary(), echo.as_bytes());
                    }
                    self.hear(heard, now, &mut act)?;
                }
                wire::Kind::Close => {
                    let code = payload.first_chunk().map(|code| u16::from_be_bytes(*code));
                    return Err(format!("closed with {}", code.unwrap_or_default()));
                }
                wire::Kind::Other => {}
            }
            bytes = &bytes[end..];
        }
        self.rest = bytes.to_vec();
        Ok(())
    }

    fn hear(
        &mut self,
        heard: Heard,
        now: Instant,
        act: &mut impl FnMut(Event<'_>),
    ) -> Result<(), String> {
        match heard {
            Heard::Welcome { heartbeat_ms } if self.phase == Phase::Hello => {
                self.phase = Phase::Open;
                let every = Duration::from_millis(heartbeat_ms.max(1));
                self.beats = Some(every);
                act(Event::Opened(now - self.begun, every));
            }
            Heard::Error(code) if self.phase == Phase::Hello => {
                return Err(format!("the hello was refused: {code}"));
            }
            heard => act(Event::Heard(heard)),
        }
        Ok(())
    }
}
