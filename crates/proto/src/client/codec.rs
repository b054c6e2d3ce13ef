//! Protobuf on gRPC streams that keep little: by default each has two buffers of 8 KiB from its
//! first moment, and most frames are shorter than a hundredth of that.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What a stream begins with, and grows by; larger frames take what they need.
const BUFFER: usize = 256;
/// Frames that wait together are handed on when they are this long.
const TOGETHER: usize = 32 * 1024;

pub(super) fn small() -> BufferSettings {
    BufferSettings::new(BUFFER, TOGETHER)
}

/// See the file.
#[derive(Debug, Clone)]
pub struct SmallCodec<T, U>(PhantomData<(T, U)>);

// Derived, it would ask for `T: Default`.
impl<T, U> Default for SmallCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(small())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(small())
    }
}
