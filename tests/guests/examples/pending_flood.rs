//! Opens questions without end in a turn, all pending at once, and never awaits
//! one to its end; tells how many were refused with `limit`.
use futures::FutureExt;
use guests::*;

struct It;

impl Guest for It {
    const NAME: &'static str = "pending-flood";

    async fn done(session: Sess) -> Result<Outcome, Error> {
        let mut pending = Vec::new();
        let mut refused = 0;
        for n in 0..1_000 {
            let form = QuestionForm {
                id: format!("form-{n}"),
                title: "One of many".to_owned(),
                questions: Vec::new(),
            };
            let mut ask = Box::pin(session.channel.ask(form));
            match ask.as_mut().now_or_never() {
                Some(Err(ChannelError::Limit(_))) => refused += 1,
                _ => pending.push(ask),
            }
        }
        drop(pending);
        say(&session.channel, &format!("refused {refused}")).await?;
        Ok(Outcome::default())
    }
}

guests::export!(It);
