//! `token`: mints a token for development. In production your own issuer does.

use std::path::PathBuf;

use adsum_gateway::auth::{NewClaims, Role, mint};
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use super::args::Tenant;
use crate::{clock, print};

/// What kind of caller.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleWord {
    /// One person.
    User,
    /// A service of the customer.
    Service,
}

/// Mint a token, signed with HS256.
#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(flatten)]
    tenant: Tenant,
    /// The user; services may have none.
    #[arg(long)]
    user: Option<String>,
    /// What kind of caller.
    #[arg(long, value_enum, default_value = "user")]
    role: RoleWord,
    /// Rooms that may be joined and watched, taken literally.
    #[arg(long, value_delimiter = ',')]
    rooms: Vec<String>,
    /// Patterns of rooms that may be joined: an id, `prefix*` or `*`.
    #[arg(long, value_delimiter = ',')]
    join: Vec<String>,
    /// Patterns of topics that may be watched: `room:…`, `user:…`, `tenant`.
    #[arg(long, value_delimiter = ',')]
    watch: Vec<String>,
    /// A service that sees everybody, whatever their visibility.
    #[arg(long)]
    see_all: bool,
    /// How long it is valid, in seconds.
    #[arg(long, default_value_t = 3600, value_name = "SECONDS")]
    ttl: u64,
    /// Whom it is for, if the server asks (auth.audience).
    #[arg(long)]
    audience: Option<String>,
    /// Who made it, if the server asks (auth.issuer).
    #[arg(long)]
    issuer: Option<String>,
    /// What the server calls the key.
    #[arg(long)]
    kid: Option<String>,
    /// The secret of the server's HS256 key; better in the variable, which nobody sees in a list
    /// of processes.
    #[arg(
        long,
        env = "ADSUM_SECRET",
        hide_env_values = true,
        conflicts_with = "key"
    )]
    secret: Option<String>,
    /// A file with that secret.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl Token {
    /// Prints the token, and nothing else.
    ///
    /// # Errors
    /// When the secret is missing or too short.
    pub(super) fn run(self) -> Result<()> {
        print(&self.mint(clock::now_ms() / 1000)?);
        Ok(())
    }

    fn mint(&self, now_s: u64) -> Result<String> {
        let service = matches!(self.role, RoleWord::Service);
        ensure!(
            self.user.is_some() || service,
            "a user's token names a user: give --user, or --role service"
        );
        ensure!(!self.see_all || service, "--see-all is for --role service");
        let claims = NewClaims {
            sub: self.user.clone(),
            tenant: self.tenant.id()?.to_string(),
            role: if service { Role::Service } else { Role::User },
            rooms: list(&self.rooms),
            join: list(&self.join),
            watch: list(&self.watch),
            see: self.see_all.then(|| "all".to_owned()),
            aud: self.audience.clone(),
            iss: self.issuer.clone(),
            nbf: None,
            exp: now_s.saturating_add(self.ttl),
        };
        mint(&claims, &self.secret()?, self.kid.as_deref()).context("no token")
    }

    fn secret(&self) -> Result<Vec<u8>> {
        match (&self.secret, &self.key) {
            (Some(secret), _) => Ok(secret.clone().into_bytes()),
            (None, Some(file)) => {
                let bytes = std::fs::read(file)
                    .with_context(|| format!("--key: {} can't be read", file.display()))?;
                Ok(bytes.trim_ascii().to_vec())
            }
            (None, None) => anyhow::bail!(
                "no secret: set ADSUM_SECRET or --key to what the server has in auth.keys (HS256, \
                 32 bytes or more). A server with --dev needs no token: dev:<tenant>:<user> will do"
            ),
        }
    }
}

fn list(words: &[String]) -> Option<Vec<String>> {
    (!words.is_empty()).then(|| words.to_vec())
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, sync::Arc};

    use adsum_gateway::auth::{Alg, AuthConfig, Authenticator, KeyConfig, Keys};
    use clap::Parser;

    use super::{super::*, *};

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn token(args: &[&str]) -> Result<String> {
        let args = ["adsum", "token", "--secret", SECRET].iter().chain(args);
        let Command::Token(token) = Cli::try_parse_from(args)?.command else {
            anyhow::bail!("not token")
        };
        token.mint(clock::now_ms() / 1000)
    }

    #[test]
    fn a_server_takes_what_is_minted() {
        let key = KeyConfig {
            kid: None,
            alg: Alg::Hs256,
            secret: Some(SECRET.into()),
            file: None,
            tenant: None,
        };
        let config = AuthConfig {
            keys: vec![key],
            ..AuthConfig::default()
        };
        let keys = Arc::new(Keys::load(&config).unwrap());
        let auth = Authenticator::new(keys, &config, false).unwrap();
        let peer: IpAddr = [192, 0, 2, 1].into();
        let text = token(&["--user", "ann", "--rooms", "lobby,den"]).unwrap();
        let ann = auth.authenticate(&text, peer, clock::now_ms()).unwrap();
        assert_eq!(ann.tenant.as_str(), "demo");
        assert!(ann.join.allows("den") && !ann.join.allows("attic"));
        let text = token(&["--role", "service", "--see-all", "--watch", "tenant"]).unwrap();
        assert!(
            auth.authenticate(&text, peer, clock::now_ms())
                .unwrap()
                .see_all
        );
        let text = token(&["--user", "ann", "--ttl", "0"]).unwrap();
        assert!(auth.authenticate(&text, peer, clock::now_ms()).is_err());
    }

    #[test]
    fn what_is_missing_is_said() {
        let said = |args: &[&str]| format!("{:#}", token(args).unwrap_err());
        assert!(said(&[]).contains("give --user"));
        assert!(said(&["--user", "a", "--see-all"]).contains("--role service"));
    }
}
