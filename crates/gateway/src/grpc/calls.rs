//! The calls that are answered once: messages in, `requests` in the middle, messages out.

use adsum_core::{DeviceId, Topic, UserId};
use adsum_proto::client::{
    Fault, LastSeen, RawFrame, check, frame,
    presence_door::Presence,
    protobuf,
    v1::{self, set_status_request::Manual},
};
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::{
    admit::peer,
    answer::status,
    stream::{self, Frames},
};
use crate::{
    Caller, EdgeError,
    auth::AuthError,
    requests::{PageToken, Requests, Sighting},
};

type Answer<T> = Result<Response<T>, Status>;

/// The service.
pub(super) struct PresenceCalls(Requests);

impl PresenceCalls {
    pub(super) const fn new(requests: Requests) -> Self {
        Self(requests)
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<v1::GetResponse, EdgeError> {
        let (caller, asked) = admitted(request)?;
        let found = self.0.get(&caller, named("user", asked.user)?).await?;
        Ok(v1::GetResponse {
            person: Some(person(&found)),
        })
    }

    async fn get_many(
        &self,
        request: Request<v1::GetManyRequest>,
    ) -> Result<v1::GetManyResponse, EdgeError> {
        let (caller, asked) = admitted(request)?;
        let found = self.0.get_many(&caller, ids(asked.users)?).await?;
        Ok(v1::GetManyResponse {
            persons: found.iter().map(person).collect(),
        })
    }

    async fn last_seen(
        &self,
        request: Request<v1::LastSeenRequest>,
    ) -> Result<v1::LastSeenResponse, EdgeError> {
        let (caller, asked) = admitted(request)?;
        let found = self.0.last_seen(&caller, ids(asked.users)?).await?;
        let users = found.iter().map(|seen| v1::LastSeen {
            user: seen.user.to_string(),
            last_seen: seen.last_seen.map(LastSeen::rfc3339),
            last_seen_s: seen.last_seen.map(LastSeen::ago_s),
        });
        Ok(v1::LastSeenResponse {
            users: users.collect(),
        })
    }

    async fn members(
        &self,
        request: Request<v1::MembersRequest>,
    ) -> Result<v1::MembersResponse, EdgeError> {
        let (caller, asked) = admitted(request)?;
        let (topic, after) = (topic(&asked.topic)?, PageToken::read(&asked.page_token)?);
        let page = self
            .0
            .members(&caller, topic, asked.page_size, after.as_ref());
        let page = page.await?;
        let members = page.members.iter();
        let members = members.map(|item| protobuf::to_item(&frame::Item::from(&**item)));
        Ok(v1::MembersResponse {
            members: members.collect(),
            next_page_token: page.next.map(|token| token.to_string()).unwrap_or_default(),
            complete: page.complete,
        })
    }

    async fn count(
        &self,
        request: Request<v1::CountRequest>,
    ) -> Result<v1::CountResponse, EdgeError> {
        let (caller, asked) = admitted(request)?;
        let counted = self.0.count(&caller, topic(&asked.topic)?).await?;
        Ok(v1::CountResponse {
            count: counted.count,
            complete: counted.complete,
        })
    }

    async fn set_status(&self, request: Request<v1::SetStatusRequest>) -> Result<(), EdgeError> {
        let (caller, asked) = admitted(request)?;
        let manual = match asked.manual.ok_or(Fault::Missing("status"))? {
            Manual::Status(number) => Some(protobuf::manual(number)?),
            Manual::ClearStatus(_) => None,
        };
        self.0.set_status(&caller, other(asked.user)?, manual).await
    }

    async fn set_visibility(
        &self,
        request: Request<v1::SetVisibilityRequest>,
    ) -> Result<(), EdgeError> {
        let (caller, asked) = admitted(request)?;
        let visibility = protobuf::visibility(asked.visibility)?;
        let user = other(asked.user)?;
        self.0.set_visibility(&caller, user, visibility).await
    }

    async fn set_contacts(
        &self,
        request: Request<v1::SetContactsRequest>,
    ) -> Result<(), EdgeError> {
        let (caller, asked) = admitted(request)?;
        let (user, contacts) = (other(asked.user)?, ids(asked.contacts)?);
        self.0.set_contacts(&caller, user, contacts).await
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Result<v1::HeartbeatResponse, EdgeError> {
        let (caller, asked) = admitted(request)?;
        let limits = &caller.settings.frame;
        let beats = asked.beats.into_iter();
        let beats = beats
            .map(|beat| protobuf::from_beat(beat, limits))
            .collect();
        let beaten = self.0.heartbeat(&caller, beats).await?;
        let results = beaten.results.iter().map(|result| v1::BeatResult {
            error: result.as_ref().err().map(problem),
        });
        Ok(v1::HeartbeatResponse {
            results: results.collect(),
            heartbeat_ms: beaten.heartbeat_ms,
            ttl_ms: beaten.ttl_ms,
        })
    }

    async fn disconnect(
        &self,
        request: Request<v1::DisconnectRequest>,
    ) -> Result<v1::DisconnectResponse, EdgeError> {
        let (caller, asked) = admitted(request)?;
        let device = asked.device.map(DeviceId::new).transpose()?;
        let user = other(asked.user)?;
        let closed = self.0.disconnect(&caller, user, device).await?;
        Ok(v1::DisconnectResponse { closed })
    }
}

/// Who calls, as `admit` has let them in, and what they ask.
fn admitted<T>(mut request: Request<T>) -> Result<(Caller, T), EdgeError> {
    let caller = request.extensions_mut().remove::<Caller>();
    Ok((caller.ok_or(AuthError::Missing)?, request.into_inner()))
}

/// A text that must be there; in protobuf an empty one is none.
fn named(field: &'static str, user: String) -> Result<UserId, EdgeError> {
    if user.is_empty() {
        return Err(Fault::Missing(field).into());
    }
    Ok(UserId::new(user)?)
}

fn topic(text: &str) -> Result<Topic, EdgeError> {
    if text.is_empty() {
        return Err(Fault::Missing("topic").into());
    }
    Ok(check::topic(text)?)
}

fn other(user: Option<String>) -> Result<Option<UserId>, EdgeError> {
    Ok(user.map(UserId::new).transpose()?)
}

fn ids(users: Vec<String>) -> Result<Vec<UserId>, EdgeError> {
    Ok(users
        .into_iter()
        .map(UserId::new)
        .collect::<Result<_, _>>()?)
}

fn person(seen: &Sighting) -> v1::Person {
    let item = seen.item.as_deref().map(frame::Item::from);
    let item = item.as_ref().map(protobuf::to_item);
    let item = item.unwrap_or_else(|| v1::Item {
        status: v1::Status::Offline.into(),
        ..v1::Item::default()
    });
    v1::Person {
        user: seen.user.to_string(),
        status: item.status,
        devices: item.devices,
        meta: item.meta,
        since: item.since,
        v: item.v,
        last_seen: seen.last_seen.map(LastSeen::rfc3339),
        last_seen_s: seen.last_seen.map(LastSeen::ago_s),
        gateway: seen.gateways.clone(),
    }
}

fn problem(error: &EdgeError) -> v1::Error {
    v1::Error {
        code: error.code.as_str().to_owned(),
        message: error.message.clone(),
        retry_after_ms: error.retry_after_ms,
        conn: error.conn.map(|conn| conn.get()),
    }
}

fn answer<T>(result: Result<T, EdgeError>) -> Answer<T> {
    result.map(Response::new).map_err(|error| status(&error))
}

#[async_trait]
impl Presence for PresenceCalls {
    type ConnectStream = Frames;
    type WatchStream = Frames;

    async fn connect(&self, request: Request<Streaming<RawFrame>>) -> Answer<Frames> {
        let peer = peer(request.extensions());
        stream::connect(&self.0, peer, request)
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Frames> {
        let (caller, asked) = admitted(request).map_err(|error| status(&error))?;
        stream::watch(&self.0, caller, asked)
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        answer(Self::get(self, request).await)
    }

    async fn get_many(&self, request: Request<v1::GetManyRequest>) -> Answer<v1::GetManyResponse> {
        answer(Self::get_many(self, request).await)
    }

    async fn members(&self, request: Request<v1::MembersRequest>) -> Answer<v1::MembersResponse> {
        answer(Self::members(self, request).await)
    }

    async fn count(&self, request: Request<v1::CountRequest>) -> Answer<v1::CountResponse> {
        answer(Self::count(self, request).await)
    }

    async fn last_seen(
        &self,
        request: Request<v1::LastSeenRequest>,
    ) -> Answer<v1::LastSeenResponse> {
        answer(Self::last_seen(self, request).await)
    }

    async fn set_status(
        &self,
        request: Request<v1::SetStatusRequest>,
    ) -> Answer<v1::SetStatusResponse> {
        let done = Self::set_status(self, request).await;
        answer(done.map(|()| v1::SetStatusResponse {}))
    }

    async fn set_visibility(
        &self,
        request: Request<v1::SetVisibilityRequest>,
    ) -> Answer<v1::SetVisibilityResponse> {
        let done = Self::set_visibility(self, request).await;
        answer(done.map(|()| v1::SetVisibilityResponse {}))
    }

    async fn set_contacts(
        &self,
        request: Request<v1::SetContactsRequest>,
    ) -> Answer<v1::SetContactsResponse> {
        let done = Self::set_contacts(self, request).await;
        answer(done.map(|()| v1::SetContactsResponse {}))
    }

    async fn heartbeat(
        &self,
        request: Request<v1::HeartbeatRequest>,
    ) -> Answer<v1::HeartbeatResponse> {
        answer(Self::heartbeat(self, request).await)
    }

    async fn disconnect(
        &self,
        request: Request<v1::DisconnectRequest>,
    ) -> Answer<v1::DisconnectResponse> {
        answer(Self::disconnect(self, request).await)
    }
}
