//! A fork bomb of delegates: every turn, a delegate's too, starts delegates until
//! the host refuses one, and tells their number and the refusal. `/go` does the
//! same in a control; `/go each` makes one call of each kind, `/go wait` waits for
//! a result that does not come, `/go other` asks for another's harness.
use guests::*;
use harness_guest::bindings::harness::provider::delegation::{
    DelegateStart, Delegates, DelegationError, Task,
};
use std::fmt::Write as _;

struct It;

fn task(text: &str, background: bool) -> Task {
    Task {
        parts: vec![MessagePart::Text(text.to_owned())],
        background,
        fold: false,
    }
}

fn start(harness: Option<&str>) -> DelegateStart {
    DelegateStart {
        harness_id: harness.map(str::to_owned),
        model: None,
        loop_mode: None,
        task: task("again", true),
    }
}

/// Starts delegates until one is refused.
async fn flood(of: &Delegates) -> String {
    let mut started = 0u32;
    loop {
        match of.start(start(None)).await {
            Ok(_) => started += 1,
            Err(error) => return format!("{started} {error:?}"),
        }
    }
}

async fn each(of: &Delegates) -> Result<String, DelegationError> {
    let child = of.start(start(None)).await?;
    let request = of.send(child.loop_id.clone(), task("more", false)).await?;
    let result = of.await_result(request.clone(), 50).await?;
    let cancelled = of.cancel(request).await?;
    let stopped = of.stop(child.loop_id).await?;
    let children = of.children().await?;
    let mut text = String::new();
    let _ = write!(
        text,
        "{result:?} {cancelled:?} {stopped} {} {:?}",
        children.len(),
        of.send("no such loop".to_owned(), task("x", false)).await
    );
    Ok(text)
}

async fn perform(text: &str, of: &Delegates) -> String {
    let done = match text {
        "/go each" => each(of).await,
        "/go other" => of
            .start(start(Some("some/other")))
            .await
            .map(|_| "started".to_owned()),
        "/go wait" => {
            async {
                let child = of.start(start(None)).await?;
                let result = of.await_result(child.request_id, u32::MAX).await?;
                Ok(format!("{result:?}"))
            }
            .await
        }
        _ => Ok(flood(of).await),
    };
    done.unwrap_or_else(|error| format!("{error:?}"))
}

impl Guest for It {
    const NAME: &'static str = "delegate-bomb";

    fn describe() -> HarnessInfo {
        HarnessInfo {
            features: Features::COMMANDS | Features::DELEGATION,
            ..HarnessInfo::new("guest/delegate-bomb", Self::NAME, "0.0.0")
        }
    }

    async fn invoke(prep: Prep, _: String, channel: Channel) -> Result<Answer, Error> {
        let of = Delegates::of_channel(&channel);
        Ok(Answer::Completed(Some(perform(&prep.text, &of).await)))
    }

    async fn done(session: Sess) -> Result<Outcome, Error> {
        let of = Delegates::of_channel(&session.channel);
        let text = flood(&of).await;
        say(&session.channel, &text).await?;
        Ok(Outcome::default())
    }
}

guests::export!(It);
