//! Signatures by *ring*, which TLS uses here anyway, so that the binary has one crypto library.
//! Only the four algorithms of the design exist: whatever else a token names has no code behind
//! it.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, EncodingKey,
    crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils},
    errors::{ErrorKind, Result},
    signature::{Error, Signer, Verifier},
};
use ring::{hmac, signature as ring_sig};

/// Makes *ring* the process's provider. Done before keys are made or used; more than once is fine.
pub(super) fn install() {
    // An error means that it was installed before.
    let _ = PROVIDER.install_default();
}

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // For making JWKs of private keys, which we never do. The crate's own stand-ins panic.
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        rsa_pub_components_from_public_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ec_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ed_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        compute_digest: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    },
};

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    match algorithm {
        Algorithm::HS256 if key.family() == algorithm.family() => {
            Ok(Box::new(Hs256::new(key.as_bytes())))
        }
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    // The last wall against a public key used as an HMAC secret.
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    match algorithm {
        Algorithm::HS256 => Ok(Box::new(Hs256::new(key.try_get_as_bytes()?))),
        Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA => Ok(Box::new(Public {
            algorithm: *algorithm,
            key: key.clone(),
        })),
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

struct Hs256(hmac::Key);

impl Hs256 {
    fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl Signer<Vec<u8>> for Hs256 {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        hmac::verify(&self.0, message, signature).map_err(|_| Error::new())
    }
}

impl JwtSigner for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

struct Public {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Public {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let rsa = &ring_sig::RSA_PKCS1_2048_8192_SHA256;
        let check = |algorithm: &'static dyn ring_sig::VerificationAlgorithm, key: &[u8]| {
            ring_sig::UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                ring_sig::RsaPublicKeyComponents { n, e }.verify(rsa, message, signature)
            }
            (Algorithm::RS256, DecodingKeyKind::SecretOrDer(der)) => check(rsa, der),
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                check(&ring_sig::ECDSA_P256_SHA256_FIXED, point)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => {
                check(&ring_sig::ED25519, point)
            }
            _ => Err(ring::error::Unspecified),
        }
        .map_err(|_| Error::new())
    }
}

impl JwtVerifier for Public {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
