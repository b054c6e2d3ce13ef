//! What stands in the head of a request: who asks, whom or what for, and which page.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use adsum_core::{DeviceId, IdError, RoomId, UserId};
use adsum_proto::client::Fault;
use axum::{
    extract::{ConnectInfo, FromRequestParts, Path, Query},
    http::{Extensions, HeaderMap, request::Parts},
};
use serde::de::DeserializeOwned;

use super::HttpError;
use crate::{
    Caller,
    auth::token_of,
    requests::{PageToken, Requests},
};

/// The caller, admitted. Comes first among the arguments of a handler: who may not come in is not
/// told what else is wrong.
pub(super) struct Admitted(pub(super) Caller);

impl FromRequestParts<Requests> for Admitted {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &Requests) -> Result<Self, HttpError> {
        let token = token_of(&parts.headers)?;
        Ok(Self(state.admit(Some(token), peer(&parts.extensions))?))
    }
}

/// The token of the head, for doors where it may come in another way instead.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    token_of(headers).ok()
}

/// The trace that the head names.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let header = headers.get("traceparent")?;
    header.to_str().ok().map(str::to_owned)
}

/// The other end of the connection; one that is not known is nobody's machine.
pub(crate) fn peer(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip())
}

/// Ids in a path.
pub(super) trait Place: Sized {
    /// As they are spelled.
    type Raw: DeserializeOwned + Send;

    /// Checks them.
    fn read(raw: Self::Raw) -> Result<Self, IdError>;
}

macro_rules! place {
    ($($id:ty),*) => {
        $(impl Place for $id {
            type Raw = String;
            fn read(raw: String) -> Result<Self, IdError> {
                Self::new(raw)
            }
        })*
    };
}

place!(UserId, RoomId, DeviceId);

impl Place for (UserId, DeviceId) {
    type Raw = (String, String);
    fn read((user, device): (String, String)) -> Result<Self, IdError> {
        Ok((UserId::new(user)?, DeviceId::new(device)?))
    }
}

/// The ids of the path, checked.
pub(super) struct At<T>(pub(super) T);

impl<T: Place> FromRequestParts<Requests> for At<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &Requests) -> Result<Self, HttpError> {
        let path = Path::<T::Raw>::from_request_parts(parts, state).await;
        let Path(raw) = path.map_err(|error| Fault::Malformed(error.body_text()))?;
        Ok(Self(T::read(raw)?))
    }
}

/// Which page: `page_size` and `page_token`.
#[derive(Debug, Default)]
pub(super) struct Paging {
    pub(super) size: u32,
    pub(super) after: Option<PageToken>,
}

impl FromRequestParts<Requests> for Paging {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &Requests) -> Result<Self, HttpError> {
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(pairs) = query.map_err(|error| Fault::Malformed(error.body_text()))?;
        let one = |name: &str| {
            let mut values = pairs.iter().filter(|(key, _)| key == name);
            let first = values.next().map(|(_, value)| value.as_str());
            match values.next() {
                Some(_) => Err(Fault::Malformed(format!("{name}: comes twice"))),
                None => Ok(first),
            }
        };
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| Fault::Malformed("page_size: not a number from 0 to 2^32 - 1".into()))
        };
        Ok(Self {
            size: one("page_size")?.map(number).transpose()?.unwrap_or(0),
            after: PageToken::read(one("page_token")?.unwrap_or(""))?,
        })
    }
}
