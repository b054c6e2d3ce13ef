//! The client against a scripted gRPC server: the same frames, the same behaviour.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::pin::Pin;

use adsum_client::{Client, Code, EndReason, Mode, Transport};
use adsum_proto::client::{
    FrameLimits, WireFrame,
    frame::{ClientBody, ServerBody, ServerFrame, Welcome},
    presence_server::{Presence, PresenceServer},
    protobuf, v1,
};
use futures::{Stream, StreamExt};
use support::{fast, item, lobby, problem, soon, state, synced};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

type Frames = Pin<Box<dyn Stream<Item = Result<WireFrame, Status>> + Send>>;

/// Welcomes, tells one state, and acks; a `part` is answered by a kick.
struct Script;

async fn play(
    mut frames: Streaming<v1::ClientFrame>,
    out: mpsc::Sender<Result<WireFrame, Status>>,
) {
    while let Some(Ok(frame)) = frames.next().await {
        let frame = protobuf::from_client(frame, &FrameLimits::default()).unwrap();
        let bodies = match frame.body {
            ClientBody::Hello(hello) => vec![
                ServerBody::Welcome(Welcome {
                    user: adsum_client::UserId::new("ann").unwrap(),
                    device: hello.device.unwrap(),
                    conn: hello.conn.unwrap(),
                    heartbeat_ms: 50,
                    ttl_ms: 150,
                    server_time: 0,
                }),
                state(1, Some(vec![item("bob", 1)])),
            ],
            ClientBody::Part(_) => vec![ServerBody::Error(problem(Code::Kicked))],
            _ => vec![ServerBody::Ack],
        };
        for body in bodies {
            let frame = ServerFrame::new(frame.r#ref.clone(), body);
            if out.send(Ok(WireFrame::from(&frame))).await.is_err() {
                return;
            }
        }
    }
}

macro_rules! unused {
    ($($name:ident($request:ident) -> $response:ident;)*) => {
        // As the attribute below would write it; it does not look into macros.
        $(fn $name<'a, 'b>(
            &'a self,
            _: Request<v1::$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<v1::$response>, Status>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(std::future::ready(Err(Status::unimplemented("not in this script"))))
        })*
    };
}

#[tonic::async_trait]
impl Presence for Script {
    type ConnectStream = Frames;
    type WatchStream = Frames;

    async fn connect(
        &self,
        request: Request<Streaming<v1::ClientFrame>>,
    ) -> Result<Response<Frames>, Status> {
        let (out, frames) = mpsc::channel(8);
        tokio::spawn(play(request.into_inner(), out));
        Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Frames>, Status> {
        Err(Status::unimplemented("not in this script"))
    }

    unused! {
        get(GetRequest) -> GetResponse;
        get_many(GetManyRequest) -> GetManyResponse;
        members(MembersRequest) -> MembersResponse;
        count(CountRequest) -> CountResponse;
        last_seen(LastSeenRequest) -> LastSeenResponse;
        set_status(SetStatusRequest) -> SetStatusResponse;
        set_visibility(SetVisibilityRequest) -> SetVisibilityResponse;
        set_contacts(SetContactsRequest) -> SetContactsResponse;
        heartbeat(HeartbeatRequest) -> HeartbeatResponse;
        disconnect(DisconnectRequest) -> DisconnectResponse;
    }
}

async fn serve() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder().add_service(PresenceServer::new(Script));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    url
}

#[tokio::test]
async fn the_same_frames_over_grpc() {
    let builder = Client::builder()
        .endpoint(serve().await)
        .transport(Transport::Grpc)
        .device(adsum_client::DeviceId::new("laptop").unwrap())
        .timing(fast())
        .watch(lobby(), Mode::Members);
    let (client, mut events) = builder.connect().await.unwrap();
    assert!(!synced(&mut events).await);
    assert_eq!(client.roster(&lobby()).len(), 1);
    let room = adsum_client::RoomId::new("attic").unwrap();
    client.join(room.clone(), None).await.unwrap();
    // Some beats go by.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    soon(client.online()).await.unwrap();
    #[cfg(feature = "testing")]
    {
        client.sever().await;
        assert!(!synced(&mut events).await);
    }
    client.part(room).await.unwrap_err();
    assert_eq!(soon(client.ended()).await, EndReason::Kicked);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let builder = Client::builder()
        .endpoint("http://127.0.0.1:1")
        .transport(Transport::Grpc)
        .timing(fast());
    let (client, _events) = builder.spawn().unwrap();
    let limit = std::time::Duration::from_millis(300);
    assert!(tokio::time::timeout(limit, client.ended()).await.is_err());
}
