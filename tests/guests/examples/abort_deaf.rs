//! Never looks at an abort: in discovery (setting `deaf` = `discover`), a control
//! (`/go`), an exclusive (`/work`), and a turn, which binds a native id first.
use guests::*;

struct It;

async fn deaf() -> ! {
    loop {
        host::sleep_ms(1_000).await;
    }
}

impl Guest for It {
    const NAME: &'static str = "abort-deaf";

    async fn get_command_state(_: Discovery) -> Result<Option<CommandState>, Error> {
        if harness_guest::config_value("deaf").as_deref() == Some("discover") {
            deaf().await
        }
        Ok(Some(command_state()))
    }

    async fn invoke(_: Prep, _: String, _: Channel) -> Result<Answer, Error> {
        deaf().await
    }

    async fn done(session: Sess) -> Result<Outcome, Error> {
        let bound = session
            .channel
            .bind_native_session("deaf-native".to_owned());
        bound.await?;
        deaf().await
    }
}

guests::export!(It);
