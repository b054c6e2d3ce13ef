//! Flags that several commands have.

use std::path::PathBuf;

use adsum_core::TenantId;
use anyhow::{Context, Result};
use clap::Args;

/// The public port of a server, and who is asking.
#[derive(Debug, Clone, Args)]
pub(super) struct Server {
    /// Where the server is: ws://, wss://, http:// or https://.
    #[arg(
        long,
        env = "ADSUM_SERVER",
        default_value = "ws://127.0.0.1:8080",
        value_name = "URL"
    )]
    pub(super) server: String,
    /// Certificates (PEM) to trust instead of the public ones.
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// The token; without one the unsigned identity of --tenant and --as, which servers in
    /// development take.
    #[arg(long, env = "ADSUM_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[command(flatten)]
    tenant: Tenant,
    /// Who to be, without a token [default: your login name].
    #[arg(long = "as", id = "as", value_name = "USER")]
    identity: Option<String>,
}

impl Server {
    /// The token to show.
    pub(super) fn token(&self) -> String {
        match &self.token {
            Some(token) => token.clone(),
            None => format!("dev:{}:{}", self.tenant.tenant, self.user()),
        }
    }

    /// A token to look with, without being there: an unsigned service, unless one is given.
    pub(super) fn onlooker(&self) -> String {
        match (&self.token, &self.identity) {
            (None, None) => serde_json::json!({
                "tenant": self.tenant.tenant, "role": "service",
                "watch": ["room:*", "user:*", "tenant"],
            })
            .to_string(),
            _ => self.token(),
        }
    }

    /// Who to be.
    pub(super) fn user(&self) -> String {
        let login = || {
            let name = ["USER", "LOGNAME", "USERNAME"]
                .iter()
                .find_map(|v| std::env::var(v).ok());
            name.filter(|name| !name.is_empty())
                .unwrap_or_else(|| "me".to_owned())
        };
        self.identity.clone().unwrap_or_else(login)
    }

    /// Of which tenant.
    pub(super) fn tenant(&self) -> &str {
        &self.tenant.tenant
    }

    /// The server for HTTP requests.
    pub(super) fn http(&self) -> String {
        let server = self.server.trim_end_matches('/');
        match server.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            _ => server.to_owned(),
        }
    }

    /// The certificates to trust, if they are not the public ones.
    ///
    /// # Errors
    /// When the file can't be read.
    pub(super) fn ca_pem(&self) -> Result<Option<Vec<u8>>> {
        let read = |file: &PathBuf| {
            std::fs::read(file).with_context(|| format!("--ca: {} can't be read", file.display()))
        };
        self.ca.as_ref().map(read).transpose()
    }
}

/// Which tenant is meant.
#[derive(Debug, Clone, Args)]
pub(super) struct Tenant {
    /// The tenant.
    #[arg(long, env = "ADSUM_TENANT", default_value = "demo")]
    pub(super) tenant: String,
}

impl Tenant {
    /// Checked.
    ///
    /// # Errors
    /// When it is no id.
    pub(super) fn id(&self) -> Result<TenantId> {
        TenantId::new(self.tenant.as_str()).context("--tenant")
    }
}

/// The internal port of a node.
#[derive(Debug, Clone, Args)]
pub(super) struct Internal {
    /// A node's internal address (listen.internal).
    #[arg(
        long,
        env = "ADSUM_INTERNAL",
        default_value = "http://127.0.0.1:8082",
        value_name = "URL"
    )]
    pub(super) internal: String,
}

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Output {
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        server: Server,
    }

    fn server(args: &[&str]) -> Server {
        let args = ["x"].iter().chain(args);
        Line::try_parse_from(args).unwrap().server
    }

    #[test]
    fn without_a_token_one_is_made_up() {
        let ann = server(&["--as", "ann", "--tenant", "acme"]);
        assert_eq!(ann.token(), "dev:acme:ann");
        assert_eq!(ann.onlooker(), "dev:acme:ann");
        assert_eq!(server(&["--token", "t"]).onlooker(), "t");
        assert!(server(&[]).onlooker().contains("\"role\":\"service\""));
    }

    #[test]
    fn every_scheme_leads_to_http() {
        let http = |url| server(&["--server", url]).http();
        assert_eq!(http("ws://h:1/"), "http://h:1");
        assert_eq!(http("wss://h"), "https://h");
        assert_eq!(http("https://h"), "https://h");
    }
}
