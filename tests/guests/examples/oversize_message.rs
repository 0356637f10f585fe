//! Writes more than is allowed. A prompt is the size in bytes of one text part;
//! `parts N` writes N parts of 256 KiB in one message. The turn then tells what
//! the host answered. `/go BYTES` answers a control with a message of that size.
use guests::*;

struct It;

fn number(text: &str) -> usize {
    text.rsplit(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

impl Guest for It {
    const NAME: &'static str = "oversize-message";

    async fn invoke(prep: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        Ok(Answer::Completed(Some("m".repeat(number(&prep.text)))))
    }

    async fn done(session: Sess) -> Result<Outcome, Error> {
        let n = number(&session.text);
        let parts = if session.text.starts_with("parts") {
            (0..n)
                .map(|_| MessagePart::Text("p".repeat(256 << 10)))
                .collect()
        } else {
            vec![MessagePart::Text("p".repeat(n))]
        };
        let message = Message {
            role: Role::Assistant,
            parts,
        };
        let answer = match session.channel.append(message).await {
            Ok(()) => "accepted".to_owned(),
            Err(ChannelError::Limit(_)) => "limit".to_owned(),
            Err(other) => format!("{other:?}"),
        };
        say(&session.channel, &answer).await?;
        Ok(Outcome::default())
    }
}

guests::export!(It);
