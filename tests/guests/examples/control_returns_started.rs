//! Answers a control (`/go`) with a started turn. The turn runs until its abort
//! signal fires, then says so in the log.
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "control-returns-started";

    async fn invoke(prep: Prep, _: String, channel: Channel) -> Result<Answer, Error> {
        Ok(Answer::Started(Sess {
            text: prep.text,
            channel,
        }))
    }

    async fn done(session: Sess) -> Result<Outcome, Error> {
        let reason = session.channel.abort().wait().await;
        host::log(
            LogLevel::Info,
            &format!("the leaked turn was aborted: {reason:?}"),
        );
        Err(Error::Cancelled)
    }
}

guests::export!(It);
