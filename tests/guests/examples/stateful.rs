//! Well-behaved, asks for the grant `state`: `/set SCOPE KEY TEXT`, `/get SCOPE
//! KEY`, `/delete SCOPE KEY`, `/fill SCOPE KEY BYTES`, with SCOPE one of provider,
//! project, session. The reply is the value, `none`, `ok` or the error. Discovery
//! answers the value of the session's key `k` in its note, or the error.
use guests::*;
use harness_guest::state::{self, Scope};

struct It;

fn scope(word: &str) -> Scope {
    match word {
        "provider" => Scope::Provider,
        "project" => Scope::Project,
        _ => Scope::Session,
    }
}

async fn perform(text: &str) -> Result<String, ChannelError> {
    let words: Vec<&str> = text.splitn(4, ' ').collect();
    Ok(match words.as_slice() {
        ["/set", place, key, value] => {
            state::set(scope(place), key, value.as_bytes().to_vec()).await?;
            "ok".to_owned()
        }
        ["/fill", place, key, bytes] => {
            let bytes = bytes.parse().unwrap_or(0);
            state::set(scope(place), key, vec![b'f'; bytes]).await?;
            "ok".to_owned()
        }
        ["/get", place, key] => match state::get(scope(place), key).await? {
            Some(value) => String::from_utf8_lossy(&value).into_owned(),
            None => "none".to_owned(),
        },
        ["/delete", place, key] => {
            state::delete(scope(place), key).await?;
            "ok".to_owned()
        }
        _ => "what?".to_owned(),
    })
}

impl Guest for It {
    const NAME: &'static str = "stateful";

    async fn get_command_state(_: Discovery) -> Result<Option<CommandState>, Error> {
        let note = perform("/get session k")
            .await
            .unwrap_or_else(|error| format!("{error:?}"));
        Ok(Some(CommandState {
            note: Some(note),
            ..command_state()
        }))
    }

    async fn invoke(prep: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        let answer = perform(&prep.text).await;
        Ok(Answer::Completed(Some(
            answer.unwrap_or_else(|error| format!("{error:?}")),
        )))
    }
}

guests::export!(It);
