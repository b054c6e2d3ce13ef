//! One try: token, connection, hello, welcome.

use std::{sync::Arc, time::Duration};

use adsum_proto::client::{
    Ref,
    frame::{ClientBody, ClientFrame, Hello, ServerBody, Welcome},
};
use tokio::time::{sleep, timeout};

use crate::{
    Timing,
    link::{Incoming, Link, Route},
    session::{Cause, retry_after},
    tokens::Tokens,
};

/// A connection whose hello was answered.
pub(crate) struct Opened {
    pub(crate) link: Link,
    pub(crate) endpoint: Arc<str>,
    pub(crate) welcome: Welcome,
}

/// Tries once. A server that asks for patience gets the same hello again on the same connection.
pub(crate) async fn open(
    route: Route,
    tokens: Tokens,
    timing: Timing,
    mut hello: Hello,
) -> Result<Opened, Cause> {
    hello.token = in_time(timing.connect_timeout, tokens.get())
        .await?
        .map_err(|error| Cause::Unsaid(format!("no token: {error}")))?;
    let frame = ClientFrame {
        r#ref: Ref::new("hello").ok(),
        traceparent: None,
        body: ClientBody::Hello(Box::new(hello)),
    };
    let mut link = in_time(timing.connect_timeout, Link::open(&route, &frame))
        .await?
        .map_err(cause)?;
    let welcome = loop {
        match in_time(timing.connect_timeout, link.recv()).await? {
            Incoming::Frame(reply) => match answer(reply.body)? {
                Answer::Welcome(welcome) => break welcome,
                Answer::Later(after) => {
                    sleep(after).await;
                    in_time(timing.ack_timeout, link.send(&frame))
                        .await?
                        .map_err(cause)?;
                }
                Answer::None => {}
            },
            other => return Err(cause(other)),
        }
    };
    Ok(Opened {
        link,
        endpoint: route.endpoint.name,
        welcome,
    })
}

enum Answer {
    Welcome(Welcome),
    Later(Duration),
    None,
}

fn answer(body: ServerBody) -> Result<Answer, Cause> {
    Ok(match body {
        ServerBody::Welcome(welcome) => Answer::Welcome(welcome),
        ServerBody::Error(problem) => match retry_after(&problem) {
            Some(after) => Answer::Later(after),
            None => return Err(Cause::Problem(problem)),
        },
        ServerBody::Reconnect { .. } => {
            return Err(Cause::Broken("this server goes away".into()));
        }
        _ => Answer::None,
    })
}

/// What the end of a line means.
pub(crate) fn cause(incoming: Incoming) -> Cause {
    match incoming {
        Incoming::Closed(number) => Cause::Closed(number),
        Incoming::Broken(why) => Cause::Broken(why),
        Incoming::Unreached(why) => Cause::Unsaid(why),
        // Frames do not end a line.
        Incoming::Frame(_) => Cause::Silent,
    }
}

async fn in_time<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, Cause> {
    timeout(limit, future).await.map_err(|_| Cause::Silent)
}
