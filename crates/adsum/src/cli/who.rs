//! `who`: the members of a room now.

use anyhow::Result;
use clap::Args;

use super::{
    Output,
    args::Server,
    ask::{Ask, segment},
    paint::Paint,
    user::brief,
};
use crate::print;

/// Who is in a room now.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// The room.
    room: String,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    output: Output,
}

impl Who {
    /// Prints them, page by page.
    ///
    /// # Errors
    /// When nothing answers, or it may not be asked.
    pub(super) async fn run(self) -> Result<()> {
        let ask = Ask::public(&self.server, self.server.onlooker())?;
        let path = format!("/v1/rooms/{}", segment(&self.room));
        let (paint, mut total) = (Paint::stdout(), 0);
        let mut next: Option<String> = None;
        loop {
            let page = match &next {
                Some(token) => format!("{path}?page_token={}", segment(token)),
                None => path.clone(),
            };
            let page = ask.get(&page).await?;
            for member in page["members"].as_array().into_iter().flatten() {
                total += 1;
                print(&if self.output.json {
                    member.to_string()
                } else {
                    brief(member, paint)
                });
            }
            if page["complete"] == false && !self.output.json {
                print(&paint.yellow("a part of the cluster did not answer: more may be there"));
            }
            next = page["next_page_token"].as_str().map(str::to_owned);
            if next.is_none() {
                break;
            }
        }
        if total == 0 && !self.output.json {
            print(&paint.dim("nobody whom you may see"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_one_line() {
        let member = serde_json::json!({"user": "ann", "status": "away", "devices": ["web"]});
        assert_eq!(brief(&member, Paint::stdout()), "ann  away  web");
    }
}
