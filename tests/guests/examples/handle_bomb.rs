//! Takes handles of the host and never gives one back: abort signals in a control
//! (`/go`), open messages in every turn.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "handle-bomb";

    async fn invoke(_: Prep, _: String, channel: Channel) -> Result<Answer, Error> {
        loop {
            std::mem::forget(channel.abort());
        }
    }

    async fn done(session: Sess) -> Result<Outcome, Error> {
        loop {
            std::mem::forget(session.channel.open_message(Role::Assistant).await?);
        }
    }
}

guests::export!(It);
